//! Follows the manifest of kube-apiserver that `--like` named. Entry: [`Follower::look`].
//!
//! If the flags that were taken over change, `mvp` shuts down as at SIGTERM, and its supervisor starts
//! it again with the new ones. It does so when kube-apiserver is ready again ([`restart::due`]), so that
//! the node is not without both. All other changes, such as a new image, have no effect. A manifest that
//! is missing or cannot be used has no effect either: `kubeadm upgrade` moves it away and back.

pub(crate) mod restart;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use tokio::sync::watch;

use crate::cli::{self, Invocation, Origin, Stop, TakenOver};
use crate::config::ServeConfig;
use crate::files;
use crate::mistake::Problem;
use crate::steering::fault::Way;

/// The flags in the manifest, if they are not those in force and `mvp` can start with them.
pub(crate) type NewFlags = Option<Change>;

/// A change of flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The names of the flags that differ from those in force.
    flags: Vec<String>,
    /// The way to the local server with the new flags.
    way: Option<Way>,
}

/// Compares the manifest with what was taken over from it.
pub(crate) struct Follower {
    path: PathBuf,
    /// The command line of this process, which is read again with the new manifest.
    argv: Vec<OsString>,
    in_force: TakenOver,
    /// The contents of the manifest at the last look, and those that have been compared.
    seen: Contents,
    compared: Contents,
    /// Why the manifest cannot be used.
    failing: Option<String>,
    changed: watch::Sender<NewFlags>,
}

type Contents = Result<Vec<u8>, Problem>;

impl Follower {
    /// Follows the manifest of this configuration; `None` if its flags are not from a manifest.
    pub(crate) fn new(
        config: &ServeConfig,
        argv: Vec<OsString>,
        changed: watch::Sender<NewFlags>,
    ) -> Option<Follower> {
        let in_force = config.origins.like()?.clone();
        let Origin::Manifest(path) = &in_force.origin else { return None };
        let seen = Ok(in_force.bytes.clone());
        let (path, compared) = (path.clone(), seen.clone());
        Some(Follower { path, argv, in_force, seen, compared, failing: None, changed })
    }

    /// Reads the manifest once. A change counts after two reads in a row saw the same bytes.
    pub(crate) fn look(&mut self, now: SystemTime) {
        let seen = files::read(&self.path);
        let settled = seen == self.seen;
        self.seen = seen;
        if !settled || (self.seen == self.compared && self.failing.is_none()) {
            return;
        }
        match self.changes(now) {
            Ok(change) => {
                self.compared.clone_from(&self.seen);
                if self.failing.take().is_some() {
                    let path = self.path.display();
                    tracing::info!(%path, "manifest of kube-apiserver can be used again");
                }
                self.publish(change);
            }
            // The files that it names may follow, so that this is tried again.
            Err(reason) => {
                if self.failing.as_ref() != Some(&reason) {
                    let path = self.path.display();
                    tracing::warn!(%path, reason, "manifest of kube-apiserver cannot be used");
                    self.failing = Some(reason);
                }
                // A restart would fail now.
                self.changed.send_replace(None);
            }
        }
    }

    fn publish(&self, change: NewFlags) {
        let path = self.path.display();
        let before = self.changed.borrow().clone();
        match &change {
            _ if before == change => return,
            Some(new) => {
                let flags = new.flags.join(",");
                tracing::info!(%path, flags, "flags of kube-apiserver changed");
            }
            None => tracing::info!(%path, "flags of kube-apiserver are as before"),
        }
        self.changed.send_replace(change);
    }

    /// What the manifest changes, or why `mvp` could not start with it.
    fn changes(&self, now: SystemTime) -> Result<NewFlags, String> {
        self.seen.as_ref().map_err(ToString::to_string)?;
        let (args, origins) = match cli::parse(self.argv.clone()) {
            Ok(Invocation::Serve(args, origins, _)) => (args, origins),
            Err(Stop::Mistake(mistake)) => return Err(mistake.to_string()),
            Ok(_) | Err(Stop::Page(_)) => return Err("the command line is another one".to_owned()),
        };
        let new = origins.like().filter(|new| new.origin == self.in_force.origin);
        let new = new.ok_or_else(|| format!("{} does not exist", self.path.display()))?;
        let old = &self.in_force.flags;
        let names: BTreeSet<&String> = old.keys().chain(new.flags.keys()).collect();
        let differs = |name: &&&String| old.get(**name) != new.flags.get(**name);
        let flags: Vec<String> = names.iter().filter(differs).map(ToString::to_string).collect();
        if flags.is_empty() {
            return Ok(None);
        }
        let checked = ServeConfig::check(*args, &origins, now);
        let config = checked.map_err(|mistake| mistake.to_string())?;
        Ok(Some(Change { flags, way: Way::new(&config) }))
    }
}

#[cfg(test)]
mod tests;
