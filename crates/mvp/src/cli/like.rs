//! `--like`: the flags of kube-apiserver as flags of `mvp serve`. Entry: [`take_over`].
//!
//! The flags come from a static pod manifest ([`manifest`]) or from a running process ([`process`]).
//! [`server_flags`] reads them as kube-apiserver does, [`listener`] decides where `mvp` listens, and
//! [`authority`] finds the CA of the servers. The result is a list of flags for clap, without those
//! that are already set: the command line, the environment and the config file win.

mod authority;
mod command;
mod listener;
mod manifest;
mod process;
mod server_flags;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use self::command::ServerCommand;
use self::server_flags::ServerFlags;
use self::settings::Given;
use crate::files;
use crate::mistake::Mistake;

/// The value of `--like`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LikeSource {
    /// The manifest of kubeadm or of RKE2, else the running process.
    Auto,
    /// This manifest.
    File(PathBuf),
}

/// The manifests of kubeadm and of RKE2, in the order of `auto`.
const MANIFESTS: [&str; 2] = [
    "/etc/kubernetes/manifests/kube-apiserver.yaml",
    "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml",
];

/// What is taken over of a manifest, without a look at files of the host.
#[cfg(fuzzing)]
pub(super) fn fuzzing(bytes: &[u8]) -> Result<TakenOver, Mistake> {
    let command = manifest::command(bytes).map_err(|what| Mistake::trouble("--like", what))?;
    let origin = Origin::Manifest("m.yaml".into());
    let given = Given { set: ["peer-ca-file".to_owned()].into(), ..Given::default() };
    Found { origin, command, bytes: bytes.to_vec() }.take_over(&given)
}

/// The flags for `mvp serve` that `given` does not set.
pub(super) fn take_over(source: &LikeSource, given: &ArgMatches) -> Result<TakenOver, Mistake> {
    let found = match source {
        LikeSource::File(path) => Found::manifest(path)?,
        LikeSource::Auto => match existing_manifest() {
            Some(path) => Found::manifest(path)?,
            None => process::find(Path::new("/proc"))?,
        },
    };
    found.take_over(&Given::of(given))
}

fn existing_manifest() -> Option<&'static Path> {
    MANIFESTS.into_iter().map(Path::new).find(|path| path.symlink_metadata().is_ok())
}

/// The command of kube-apiserver, and where it was found.
#[derive(Debug)]
struct Found {
    origin: Origin,
    command: ServerCommand,
    /// The contents of the manifest, or the command line of the process.
    bytes: Vec<u8>,
}

/// Where the flags of kube-apiserver were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In this manifest.
    Manifest(PathBuf),
    /// In the command line of this process.
    Process(u32),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Manifest(path) => write!(out, "{}", path.display()),
            Origin::Process(id) => write!(out, "process {id}"),
        }
    }
}

impl Found {
    fn manifest(path: &Path) -> Result<Found, Mistake> {
        let wrong = |what: String| Mistake::trouble("--like", what);
        let bytes = files::read(path).map_err(|problem| wrong(problem.to_string()))?;
        let shown = path.display();
        let command =
            manifest::command(&bytes).map_err(|what| wrong(format!("{shown}: {what}")))?;
        Ok(Found { origin: Origin::Manifest(path.to_owned()), command, bytes })
    }

    fn take_over(self, given: &Given) -> Result<TakenOver, Mistake> {
        let Found { origin, command, bytes } = self;
        let server = ServerFlags::parse(command, origin.clone())?;
        let mut taken = TakenOver {
            origin,
            flags: BTreeMap::new(),
            derived: Vec::new(),
            peer_ca: None,
            warnings: server.not_taken_over(),
            bytes,
        };
        let listener = listener::decide(&server, given)?;
        server.take(given, &listener, &mut taken)?;
        taken.derive(listener.flags);
        if !given.is_set("peer-ca-file") && !taken.flags.contains_key("peer-ca-file") {
            let found = authority::find(&server, given)?;
            taken.derive(found.iter().map(|ca| ("peer-ca-file", ca.path.display().to_string())));
            taken.peer_ca = found;
        }
        Ok(taken)
    }
}

/// What `--like` took over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakenOver {
    pub(crate) origin: Origin,
    /// The flags of `mvp serve` that it sets, with their values.
    pub(crate) flags: BTreeMap<String, Vec<String>>,
    /// Those among them that are not flags of kube-apiserver with the same value.
    derived: Vec<String>,
    peer_ca: Option<authority::Found>,
    /// What could not be taken over, one sentence each.
    pub(crate) warnings: Vec<String>,
    /// The contents of the manifest, or the command line of the process.
    pub(crate) bytes: Vec<u8>,
}

impl TakenOver {
    /// What the origin contains now, or why it cannot be read. A process may have another ID by now, or
    /// a manifest.
    pub(crate) fn current(&mut self) -> Result<Vec<u8>, String> {
        match &mut self.origin {
            Origin::Manifest(path) => files::read(path).map_err(|problem| problem.to_string()),
            Origin::Process(id) => match existing_manifest() {
                Some(path) => files::read(path).map_err(|problem| problem.to_string()),
                None => process::command_line_now(Path::new("/proc"), id, &self.bytes)
                    .map_err(|mistake| mistake.to_string()),
            },
        }
    }

    /// Sets flags that follow from those of kube-apiserver.
    fn derive<'a>(&mut self, flags: impl IntoIterator<Item = (&'a str, String)>) {
        for (name, value) in flags {
            self.derived.push(name.to_owned());
            self.flags.insert(name.to_owned(), vec![value]);
        }
    }

    /// The flags as arguments.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let all = self.flags.iter();
        all.flat_map(|(name, values)| values.iter().map(move |value| (name, value)))
            .map(|(name, value)| format!("--{name}={value}").into())
            .collect()
    }

    /// The name of a setting for error messages, if it was taken over.
    pub(super) fn name(&self, key: &str) -> Option<String> {
        self.flags.contains_key(key).then(|| match self.derived.iter().any(|name| name == key) {
            true => format!("--{key}, which --like found with {}", self.origin),
            false => server_flags::name(key, &self.origin),
        })
    }

    /// Logs what was taken over.
    pub(crate) fn log(&self) {
        let names: Vec<&str> = self.flags.keys().map(String::as_str).collect();
        tracing::info!(
            from = %self.origin,
            flags = names.join(","),
            "flags taken over from kube-apiserver"
        );
        if let Some(ca) = &self.peer_ca {
            tracing::info!(
                path = %ca.path.display(),
                flag = ca.flag,
                "peer CA found; it verifies the serving certificate"
            );
        }
    }
}
