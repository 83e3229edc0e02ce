//! Follows the manifest of kube-apiserver that `--like` named. Entry: [`Follower::look`].
//!
//! If the flags that were taken over change, `mvp` shuts down as at SIGTERM, and its supervisor starts
//! it again with the new ones. All other changes, such as a new image, have no effect. A manifest that
//! is missing or cannot be used has no effect either: `kubeadm upgrade` moves it away and back.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use crate::cli::{self, Invocation, Origin, Stop, TakenOver};
use crate::config::ServeConfig;
use crate::files;
use crate::mistake::Problem;

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
    /// Cancelled when the flags change.
    changed: CancellationToken,
}

type Contents = Result<Vec<u8>, Problem>;

impl Follower {
    /// Follows the manifest of this configuration; `None` if its flags are not from a manifest.
    pub(crate) fn new(
        config: &ServeConfig,
        argv: Vec<OsString>,
        changed: CancellationToken,
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
        if !settled || self.changed.is_cancelled() {
            return;
        }
        if self.seen == self.compared && self.failing.is_none() {
            return;
        }
        match self.changes(now) {
            Ok(names) => {
                self.compared.clone_from(&self.seen);
                let path = self.path.display();
                if self.failing.take().is_some() {
                    tracing::info!(%path, "manifest of kube-apiserver can be used again");
                }
                if !names.is_empty() {
                    let flags = names.join(",");
                    tracing::info!(%path, flags, "flags of kube-apiserver changed, restarting");
                    self.changed.cancel();
                }
            }
            // The files that it names may follow, so that this is tried again.
            Err(reason) => {
                if self.failing.as_ref() != Some(&reason) {
                    let path = self.path.display();
                    tracing::warn!(%path, reason, "manifest of kube-apiserver cannot be used");
                    self.failing = Some(reason);
                }
            }
        }
    }

    /// The flags that the manifest changes, or why `mvp` could not start with it.
    fn changes(&self, now: SystemTime) -> Result<Vec<String>, String> {
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
        let names: Vec<String> = names.iter().filter(differs).map(ToString::to_string).collect();
        if !names.is_empty() {
            let checked = ServeConfig::check(*args, &origins, now);
            checked.map_err(|mistake| mistake.to_string())?;
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
