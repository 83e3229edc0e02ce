//! Follows the flags of kube-apiserver that `--like` took over, in its manifest or its process. Entry:
//! [`Follower::look`].
//!
//! If the flags that were taken over change, `mvp` shuts down as at SIGTERM, and its supervisor starts
//! it again with the new ones. It does so when kube-apiserver is ready again ([`restart::due`]), so that
//! the node is not without both. All other changes, such as a new image, have no effect. A manifest that
//! is missing has no effect either: `kubeadm upgrade` moves it away and back. With flags with which it
//! cannot start, `mvp` goes on with the old ones, and pauses the steering after a while
//! ([`NewFlags::fault`]): the server may trust other users than before.

pub(crate) mod restart;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::cli::{self, Invocation, Origin, Stop, TakenOver};
use crate::config::ServeConfig;
use crate::steering::fault::Way;

/// How long `mvp` steers with flags that are no longer those of kube-apiserver, because it cannot start
/// with the new ones. kubelet takes about as long to restart kube-apiserver.
const TOLERATED: Duration = Duration::from_secs(60);

/// The flags of kube-apiserver, compared with those in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum NewFlags {
    /// They are the same, or they are not there at the moment.
    #[default]
    Same,
    /// They are others, and `mvp` can start with them.
    Changed(Change),
    /// `mvp` could not start with them, since this time.
    Unusable { reason: String, since: Instant },
}

impl NewFlags {
    /// Why this gateway must not get connections, if it must not.
    pub(crate) fn fault(&self, now: Instant) -> Option<String> {
        match self {
            NewFlags::Unusable { reason, since } if now.duration_since(*since) >= TOLERATED => {
                Some(format!("the new flags of kube-apiserver cannot be taken over: {reason}"))
            }
            _ => None,
        }
    }
}

/// A change of flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The names of the flags that differ from those in force.
    flags: Vec<String>,
    /// The way to the local server with the new flags.
    way: Option<Way>,
}

/// Compares the flags with those that were taken over.
pub(crate) struct Follower {
    /// The command line of this process, which is read again with the new flags.
    argv: Vec<OsString>,
    in_force: TakenOver,
    /// The contents of the origin at the last look, and those that have been compared.
    seen: Contents,
    compared: Contents,
    /// Why they cannot be used.
    failing: Option<String>,
    changed: watch::Sender<NewFlags>,
}

type Contents = Result<Vec<u8>, String>;

impl Follower {
    /// Follows the flags of this configuration; `None` without `--like`.
    pub(crate) fn new(
        config: &ServeConfig,
        argv: Vec<OsString>,
        changed: watch::Sender<NewFlags>,
    ) -> Option<Follower> {
        let in_force = config.origins.like()?.clone();
        let seen = Ok(in_force.bytes.clone());
        let compared = seen.clone();
        Some(Follower { argv, in_force, seen, compared, failing: None, changed })
    }

    /// Reads the flags once. A change counts after two reads in a row saw the same bytes.
    pub(crate) fn look(&mut self, now: SystemTime) {
        let seen = self.in_force.current();
        let settled = seen == self.seen;
        self.seen = seen;
        if !settled || (self.seen == self.compared && self.failing.is_none()) {
            return;
        }
        match self.changes(now) {
            Ok(change) => {
                self.compared.clone_from(&self.seen);
                if self.failing.take().is_some() {
                    let origin = &self.in_force.origin;
                    tracing::info!(%origin, "flags of kube-apiserver can be used again");
                }
                self.publish(change);
            }
            // The files that it names may follow, so that this is tried again.
            Err(reason) => {
                if self.failing.as_ref() != Some(&reason) {
                    let origin = &self.in_force.origin;
                    tracing::warn!(%origin, reason, "flags of kube-apiserver cannot be used");
                    self.failing = Some(reason.clone());
                }
                // A restart would fail now.
                self.changed.send_modify(|now| {
                    *now = match (&self.seen, &*now) {
                        (Err(_), _) => NewFlags::Same,
                        (Ok(_), NewFlags::Unusable { since, .. }) => {
                            NewFlags::Unusable { reason, since: *since }
                        }
                        (Ok(_), _) => NewFlags::Unusable { reason, since: Instant::now() },
                    };
                });
            }
        }
    }

    fn publish(&self, change: NewFlags) {
        let origin = &self.in_force.origin;
        let before = self.changed.borrow().clone();
        match &change {
            _ if before == change => return,
            NewFlags::Changed(new) => {
                let flags = new.flags.join(",");
                tracing::info!(%origin, flags, "flags of kube-apiserver changed");
            }
            _ => tracing::info!(%origin, "flags of kube-apiserver are as before"),
        }
        self.changed.send_replace(change);
    }

    /// What they change, or why `mvp` could not start with it.
    fn changes(&self, now: SystemTime) -> Result<NewFlags, String> {
        self.seen.as_ref().map_err(String::clone)?;
        let (args, origins) = match cli::parse(self.argv.clone()) {
            Ok(Invocation::Serve(args, origins, _)) => (args, origins),
            Err(Stop::Mistake(mistake)) => return Err(mistake.to_string()),
            Ok(_) | Err(Stop::Page(_)) => return Err("the command line is another one".to_owned()),
        };
        let ours = &self.in_force.origin;
        let is_ours = |origin: &Origin| match ours {
            Origin::Manifest(_) => origin == ours,
            // It restarted, or got a manifest.
            Origin::Process(_) => true,
        };
        let new = origins.like().filter(|new| is_ours(&new.origin));
        let new = new.ok_or_else(|| format!("{ours} does not exist"))?;
        let old = &self.in_force.flags;
        let names: BTreeSet<&String> = old.keys().chain(new.flags.keys()).collect();
        let differs = |name: &&&String| old.get(**name) != new.flags.get(**name);
        let flags: Vec<String> = names.iter().filter(differs).map(ToString::to_string).collect();
        if flags.is_empty() {
            return Ok(NewFlags::Same);
        }
        let checked = ServeConfig::check(*args, &origins, now);
        let config = checked.map_err(|mistake| mistake.to_string())?;
        Ok(NewFlags::Changed(Change { flags, way: Way::new(&config) }))
    }
}

#[cfg(test)]
mod tests;
