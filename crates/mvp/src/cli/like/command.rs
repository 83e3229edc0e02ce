//! The command line of kube-apiserver, and the files as it sees them. Entry: [`ServerCommand`].

use std::path::{Path, PathBuf};

/// The arguments of kube-apiserver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerCommand {
    /// The arguments after its name.
    pub(super) arguments: Vec<String>,
    /// The folder that relative paths start at, as it sees it.
    pub(super) folder: PathBuf,
    /// The folders and files of the host that it sees at other paths, or at the same.
    pub(super) mounts: Vec<Mount>,
}

/// A path of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) inside: PathBuf,
    pub(super) host: PathBuf,
}

impl ServerCommand {
    /// The path on the host of a file that kube-apiserver names.
    pub(super) fn host_path(&self, text: &str) -> PathBuf {
        let inside = self.folder.join(text);
        let mounts = self.mounts.iter().filter(|mount| inside.starts_with(&mount.inside));
        let nearest = mounts.max_by_key(|mount| mount.inside.components().count());
        let moved = nearest.and_then(|mount| {
            let rest = inside.strip_prefix(&mount.inside).ok()?;
            let is_mount = rest.as_os_str().is_empty();
            Some(if is_mount { mount.host.clone() } else { mount.host.join(rest) })
        });
        moved.unwrap_or(inside)
    }
}

/// Whether this is the path or the name of kube-apiserver.
pub(super) fn is_kube_apiserver(word: &str) -> bool {
    Path::new(word).file_name().is_some_and(|name| name == NAME)
}

/// The name of the program and of its container.
pub(super) const NAME: &str = "kube-apiserver";
