//! The files for clients: certificates, tokens and a kubeconfig. Entry: [`Files::write`].

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, getuid, test_kill_process};
use serde_json::{Value, json};

use super::access::TOKENS;
use super::certificates::Certificates;
use super::cluster::Cluster;
use super::server::Server;

/// The files of the demo, in a folder that is deleted when the demo ends.
pub(super) struct Files {
    pub(super) folder: PathBuf,
    /// The open folder, locked as long as the demo runs.
    _lock: File,
}

/// How the names of the folders start; the process ID follows.
const PREFIX: &str = "mvp-demo-";
/// The most folders of other demos with one process ID.
const MAX_FOLDERS: u32 = 1000;

impl Files {
    /// Writes the files into a new folder that only this user can read.
    pub(super) fn write(certificates: &Certificates, cluster: &Cluster) -> anyhow::Result<Files> {
        let files = Files::new(&std::env::temp_dir())?;
        files.put(&[
            ("ca.crt", &certificates.ca),
            ("admin.crt", &certificates.admin.certificate),
            ("admin.key", &certificates.admin.key),
            ("tokens.csv", TOKENS),
            ("kubeconfig", &kubeconfig(&files.folder, cluster)),
        ])?;
        Ok(files)
    }

    /// Writes the files that `mvp serve` needs.
    pub(super) fn for_gateways(certificates: &Certificates) -> anyhow::Result<Files> {
        let files = Files::new(&std::env::temp_dir())?;
        files.put(&[
            ("ca.crt", &certificates.ca),
            ("front-proxy-ca.crt", &certificates.front_proxy_ca),
            ("server.crt", &certificates.server.certificate),
            ("server.key", &certificates.server.key),
            ("proxy.crt", &certificates.proxy.certificate),
            ("proxy.key", &certificates.proxy.key),
        ])?;
        Ok(files)
    }

    /// Makes a folder below `parent`, and removes those of demos that were killed.
    fn new(parent: &Path) -> anyhow::Result<Files> {
        remove_abandoned(parent);
        let name = format!("{PREFIX}{}", std::process::id());
        // In containers that share `parent`, another demo can have the same process ID.
        for number in 1..MAX_FOLDERS {
            let folder = match number {
                1 => parent.join(&name),
                _ => parent.join(format!("{name}-{number}")),
            };
            match make_private_folder(&folder) {
                Ok(Some(lock)) => return Ok(Files { folder, _lock: lock }),
                Ok(None) => {}
                Err(error) => {
                    let folder = folder.display();
                    let advice = "set TMPDIR to a folder that you may write to";
                    return Err(error).with_context(|| format!("cannot make {folder}; {advice}"));
                }
            }
        }
        anyhow::bail!("there are too many folders {name}-… in {}; delete them", parent.display())
    }

    fn put(&self, files: &[(&str, &str)]) -> anyhow::Result<()> {
        for (name, content) in files {
            let path = self.folder.join(name);
            // Some are secrets, and somebody may copy the folder.
            let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(content.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The process ends: there is nobody to report an error to.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a folder that only this user may read, and locks it. `None` if another demo has it.
fn make_private_folder(folder: &Path) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        made => made?,
    }
    // A demo that starts at the same time can take an unlocked folder for an abandoned one.
    let Ok(lock) = File::open(folder) else { return Ok(None) };
    if lock.try_lock().is_err() {
        return Ok(None);
    }
    let is_there = std::fs::symlink_metadata(folder)
        .is_ok_and(|found| lock.metadata().is_ok_and(|locked| found.ino() == locked.ino()));
    Ok(is_there.then_some(lock))
}

/// Removes the folders of demos that were killed: their processes are gone, and nobody holds their
/// locks, which processes that cannot be seen from here would do. Whatever cannot be removed stays.
fn remove_abandoned(parent: &Path) {
    let user = getuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        // Other users' folders are none of our business, and a link could lead anywhere.
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        let id = id.split_once('-').map_or(id, |(id, _)| id);
        let process = id.parse().ok().and_then(Pid::from_raw);
        let is_gone = |process| test_kill_process(process) == Err(Errno::SRCH);
        if !is_own || !process.is_some_and(is_gone) {
            continue;
        }
        let folder = entry.path();
        if let Ok(lock) = File::open(&folder)
            && lock.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

/// A context for each server, and for a reader at the first one.
fn kubeconfig(folder: &Path, cluster: &Cluster) -> String {
    let entries = |entry: &dyn Fn(&Server) -> Value| -> Vec<Value> {
        cluster.servers.iter().map(entry).collect()
    };
    let mut contexts = entries(&|server| context(server.plan.id, server, "admin"));
    contexts.extend(cluster.servers.first().map(|server| context("viewer", server, "viewer")));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster.servers.first().map(|server| server.plan.id),
        "clusters": entries(&|server| json!({
            "name": server.plan.id,
            "cluster": {
                "server": server.url(),
                "certificate-authority": folder.join("ca.crt"),
            },
        })),
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate": folder.join("admin.crt"),
                    "client-key": folder.join("admin.key"),
                },
            },
            {"name": "viewer", "user": {"token": "demo-viewer"}},
        ],
        "contexts": contexts,
    });
    format!("{config:#}\n")
}

fn context(name: &str, server: &Server, user: &str) -> Value {
    json!({
        "name": name,
        "context": {"cluster": server.plan.id, "user": user, "namespace": "default"},
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folders(parent: &Path) -> usize {
        std::fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn a_demo_removes_what_killed_ones_left_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        let running = Files::new(parent).unwrap();
        // No process has an ID above 4194304; process 1 runs always.
        let left = ["mvp-demo-9999999", "mvp-demo-9999999-2"];
        let kept = ["mvp-demo-1", "mvp-demo-x", "other-1"];
        for name in left.iter().chain(&kept) {
            std::fs::create_dir(parent.join(name)).unwrap();
            std::fs::write(parent.join(name).join("admin.key"), "").unwrap();
        }
        let link = "mvp-demo-9999998";
        std::os::unix::fs::symlink(parent.join("other-1"), parent.join(link)).unwrap();
        // Another demo with an ID that means nothing here, as in another container.
        let locked = parent.join("mvp-demo-9999997");
        let lock = make_private_folder(&locked).unwrap();

        let next = Files::new(parent).unwrap();
        assert_ne!(running.folder, next.folder);
        let is_there = |name: &str| parent.join(name).symlink_metadata().is_ok();
        assert!(!left.into_iter().any(is_there));
        assert!(kept.into_iter().all(is_there) && is_there(link) && locked.exists());
        drop(lock);
        assert!(parent.join("other-1/admin.key").exists());
        let before = folders(parent);
        drop((running, next));
        assert_eq!(folders(parent), before - 2);
    }

    #[test]
    fn only_this_user_can_read_the_files() {
        let parent = tempfile::tempdir().unwrap();
        let files = Files::new(parent.path()).unwrap();
        files.put(&[("admin.key", "secret")]).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.folder), 0o700);
        assert_eq!(mode(&files.folder.join("admin.key")), 0o600);
        // It never writes through a link or into a file that somebody else made.
        assert!(files.put(&[("admin.key", "again")]).is_err());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = Files::new(Path::new("/nonexistent")).err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("/nonexistent/mvp-demo-") && text.contains("TMPDIR"), "{text}");
    }
}
