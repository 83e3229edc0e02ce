//! Reloads certificates, keys, CAs and the peers file when they change. Entry: [`Reloader`].
//!
//! A separate thread reads all files every second and compares their bytes. Kernel notifications
//! would need a watch on each directory of each path, fail silently on some mounts, and still need
//! polling as a fallback; reading a dozen small files takes less than a millisecond. A mount that
//! hangs blocks only this thread.
//!
//! A change is used after two reads in a row saw the same bytes, so that a file that is being written
//! is not used. If the new contents are invalid or do not fit together, the old ones stay in use. This
//! is logged once and counted, and the reload is retried every second.

mod expiry;
mod in_use;
mod peers;
mod report;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_membership::{Claim, Claims};
use mvp_net::ReloadableTls;
use mvp_proxy::{Egress, ReloadableOutbound};
use rustls::ClientConfig;
use tokio::sync::watch;

use crate::config::pem::Files;
use crate::config::{Peer, ServeConfig, egress as selector, peers_file};
use crate::files;
use crate::follow::Follower;
use crate::mistake::{Mistake, Problem};
use crate::supervise::Restarts;
use crate::tls;
use expiry::Expiry;
use in_use::{certificates, in_use, new_authorities, new_pair};
use report::Report;

pub(crate) use report::ReloadMetrics;

/// The interval between two reads of the files.
const INTERVAL: Duration = Duration::from_secs(1);
/// The delay before a changed file is read again, to see whether it still changes.
const SETTLING: Duration = Duration::from_millis(200);

/// The parts of a running gateway that a reload replaces.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) tls: ReloadableTls,
    pub(crate) outbound_local: ReloadableOutbound,
    pub(crate) outbound_peers: Option<ReloadableOutbound>,
    /// The proxies on the way to peers.
    pub(crate) egress: Egress,
    /// The members of `--peer` and the peers file.
    pub(crate) members: watch::Sender<Claims>,
    /// The TLS for connections to etcd.
    pub(crate) etcd: watch::Sender<Option<Arc<ClientConfig>>>,
}

impl InForce {
    /// What the configuration at the start asks for.
    pub(crate) fn new(config: &ServeConfig) -> anyhow::Result<InForce> {
        let peers_ca = config.peers.ca.as_ref().filter(|_| config.serves_peers());
        let outbound_peers = peers_ca.map(|ca| tls::outbound(config, ca)).transpose()?;
        Ok(InForce {
            tls: ReloadableTls::new(tls::server(config)?),
            outbound_local: tls::outbound_local(config)?.into(),
            outbound_peers: outbound_peers.map(Into::into),
            egress: selector::ways(config)?.into(),
            members: watch::Sender::new(members(config)),
            etcd: watch::Sender::new(tls::etcd(config)?),
        })
    }
}

/// The thread that reads the files and replaces what changed.
pub(crate) struct Reloader {
    /// The configuration in use, with the files in use.
    config: ServeConfig,
    in_force: InForce,
    /// The contents of the files at the last read, and at the last reload.
    seen: Seen,
    used: Seen,
    report: Report,
    expiry: Expiry,
    /// Follows the manifest of kube-apiserver.
    follower: Option<Follower>,
    /// The configuration before the current reload, to restore it after a panic.
    before: Option<Box<ServeConfig>>,
    /// Whether the last reload panicked and must be repeated.
    interrupted: bool,
    #[cfg(test)]
    panics: bool,
}

/// The contents of each file, or why it cannot be read.
type Seen = BTreeMap<PathBuf, Result<Vec<u8>, Problem>>;

/// The new contents of a file; `None` if they did not change.
type Loaded<T> = Result<Option<T>, Mistake>;

impl Reloader {
    /// `config` is the configuration in use.
    pub(crate) fn new(
        config: ServeConfig,
        in_force: InForce,
        metrics: ReloadMetrics,
        now: SystemTime,
    ) -> Reloader {
        let used = in_use(&config);
        let expiry = Expiry::start(&config, metrics.clone(), now);
        let mut keys: Vec<_> = certificates(&config).map(|file| file.key).collect();
        keys.extend(config.peers.file.iter().map(|_| peers_file::KEY));
        keys.extend(config.peers.egress.iter().map(|_| selector::KEY));
        let report = Report::new(metrics, &keys);
        Reloader {
            config,
            in_force,
            seen: used.clone(),
            used,
            report,
            expiry,
            follower: None,
            before: None,
            interrupted: false,
            #[cfg(test)]
            panics: false,
        }
    }

    /// The same, with the manifest of kube-apiserver.
    pub(crate) fn following(self, follower: Option<Follower>) -> Reloader {
        Reloader { follower, ..self }
    }

    /// Runs until all senders of `wake` are dropped. A message triggers a read at once.
    pub(crate) fn run(mut self, wake: &mpsc::Receiver<()>, mut restarts: Restarts) {
        loop {
            let pause = self.look_again(SystemTime::now(), &mut restarts);
            if wake.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Calls [`Reloader::look`]. After a panic it restores the configuration and repeats the reload.
    fn look_again(&mut self, now: SystemTime, restarts: &mut Restarts) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.look(now))).unwrap_or_else(|_| {
            if let Some(before) = self.before.take() {
                self.config = *before;
                self.interrupted = true;
            }
            restarts.pause()
        })
    }

    /// Reads all files once. Returns the time until the next read.
    fn look(&mut self, now: SystemTime) -> Duration {
        if let Some(follower) = &mut self.follower {
            follower.look(now);
        }
        let seen: Seen = self.used.keys().map(|path| (path.clone(), files::read(path))).collect();
        let settled = seen == self.seen;
        self.seen = seen;
        if !settled {
            return SETTLING;
        }
        if self.seen != self.used || self.report.is_failing() || self.interrupted {
            self.used.clone_from(&self.seen);
            self.before = Some(Box::new(self.config.clone()));
            self.reload(now);
            (self.before, self.interrupted) = (None, false);
        }
        self.expiry.observe(&self.config, now);
        INTERVAL
    }

    /// Uses whatever changed and is valid.
    fn reload(&mut self, now: SystemTime) {
        let (origins, seen) = (self.config.origins.clone(), self.seen.clone());
        let read = move |path: &Path| match seen.get(path) {
            Some(held) => held.clone(),
            None => files::read(path),
        };
        let mut files = Files::new(&origins, now, &read);
        self.reload_serving(&mut files);
        self.reload_sni(&mut files);
        self.reload_clients(&mut files);
        self.reload_outbound(&mut files);
        self.reload_etcd(&mut files);
        self.reload_peers(&read);
        self.reload_egress(&mut files, &read);
    }

    /// Reloads the CAs of clients. They apply to existing connections, too.
    fn reload_clients(&mut self, files: &mut Files<'_>) {
        let config = &mut self.config;
        let old = (config.client_ca.clone(), config.request_header.ca.clone());
        let mut keys = Vec::new();
        for ca in [&mut config.client_ca, &mut config.request_header.ca].into_iter().flatten() {
            if let Some(new) = self.report.take(ca.key, new_authorities(files, ca)) {
                keys.push(ca.key);
                *ca = new;
            }
        }
        if keys.is_empty() {
            return;
        }
        // It may be valid together with a new proxy certificate, which is loaded next; then this is
        // retried.
        let replaced = match tls::check_proxy_is_no_user(&self.config) {
            Ok(()) => self.replace_server(&keys),
            Err(error) => {
                self.report.failed(&keys, &format!("{error:#}"));
                false
            }
        };
        if !replaced {
            (self.config.client_ca, self.config.request_header.ca) = old;
        }
    }

    /// Replaces the TLS of the listener. Returns whether that succeeded.
    fn replace_server(&mut self, keys: &[&'static str]) -> bool {
        #[cfg(test)]
        assert!(!self.panics, "a bug");
        match tls::server(&self.config) {
            Ok(tls) => {
                self.in_force.tls.replace(tls);
                self.report.replaced(keys);
                true
            }
            Err(error) => {
                self.report.failed(keys, &format!("{error:#}"));
                false
            }
        }
    }

    /// Reloads the proxy client certificate and the CAs of servers, together: a new certificate may
    /// need the new CA. Requests in flight stay on their connections.
    fn reload_outbound(&mut self, files: &mut Files<'_>) {
        let config = &mut self.config;
        let local_ca = config.local.as_ref().map(|local| local.ca.clone());
        let old = (config.proxy_client.clone(), local_ca, config.peers.ca.clone());
        let mut keys = Vec::new();
        let local_ca = config.local.as_mut().map(|local| &mut local.ca);
        for ca in [local_ca, config.peers.ca.as_mut()].into_iter().flatten() {
            if let Some(new) = self.report.take(ca.key, new_authorities(files, ca)) {
                keys.push(ca.key);
                *ca = new;
            }
        }
        keys.extend(self.load_proxy(files));
        // One file may be used for both flags.
        keys.dedup();
        if keys.is_empty() {
            return;
        }
        let local = tls::outbound_local(&self.config);
        let peers = self.config.peers.ca.as_ref().map(|ca| tls::outbound(&self.config, ca));
        match local.and_then(|local| Ok((local, peers.transpose()?))) {
            Ok((local, peers)) => {
                self.in_force.outbound_local.replace(local);
                if let (Some(in_force), Some(peers)) = (&self.in_force.outbound_peers, peers) {
                    in_force.replace(peers);
                }
                self.report.replaced(&keys);
            }
            Err(error) => {
                let config = &mut self.config;
                let local_ca;
                (config.proxy_client, local_ca, config.peers.ca) = old;
                if let (Some(local), Some(ca)) = (&mut config.local, local_ca) {
                    local.ca = ca;
                }
                self.report.failed(&keys, &format!("{error:#}"));
            }
        }
    }

    /// Uses a new proxy client certificate and returns its flag.
    ///
    /// A certificate that no server would trust is refused. If a change of the CAs makes the one in
    /// use untrusted, that is reported, too.
    fn load_proxy(&mut self, files: &mut Files<'_>) -> Option<&'static str> {
        let in_use = self.config.proxy_client.clone()?;
        let key = in_use.chain.key;
        let new = match new_pair(files, &in_use) {
            Ok(new) => new,
            Err(mistake) => {
                self.report.failed(&[key], &mistake.to_string());
                return None;
            }
        };
        let is_new = new.is_some();
        if is_new {
            self.config.proxy_client = new;
        }
        match tls::check_proxy_identity(&self.config) {
            Ok(()) if is_new => Some(key),
            Ok(()) => {
                self.report.unchanged(key);
                None
            }
            Err(error) => {
                self.config.proxy_client = Some(in_use);
                self.report.failed(&[key], &format!("{error:#}"));
                None
            }
        }
    }

    /// Reloads the TLS files of etcd. A new connection is opened at once.
    fn reload_etcd(&mut self, files: &mut Files<'_>) {
        let Some(etcd) = &mut self.config.peers.etcd else { return };
        let old = (etcd.ca.clone(), etcd.client.clone());
        let mut keys = Vec::new();
        if let Some(ca) = &mut etcd.ca
            && let Some(new) = self.report.take(ca.key, new_authorities(files, ca))
        {
            keys.push(ca.key);
            *ca = new;
        }
        if let Some(client) = &mut etcd.client
            && let Some(new) = self.report.take(client.chain.key, new_pair(files, client))
        {
            keys.push(client.chain.key);
            *client = new;
        }
        if keys.is_empty() {
            return;
        }
        match etcd.tls() {
            Ok(tls) => {
                self.in_force.etcd.send_replace(tls);
                self.report.replaced(&keys);
            }
            Err(error) => {
                (etcd.ca, etcd.client) = old;
                self.report.failed(&keys, &format!("{error:#}"));
            }
        }
    }
}

/// The members of `--peer`, `--servers` and the peers file; none if nothing is sent to peers.
pub(crate) fn members(config: &ServeConfig) -> Claims {
    if !config.serves_peers() {
        return Claims { read: true, ..Claims::default() };
    }
    let written = config.peers.file.iter().flat_map(|file| &file.peers);
    let claim = |peer: &Peer| Claim {
        id: Some(peer.id.as_str().into()),
        address: Some(peer.url.authority().into()),
        kind: peer.kind,
        heard: None,
        announced: false,
        since: Timestamp::default(),
        seniority: Arc::default(),
    };
    // `--servers` has no IDs: whichever server answers there is the member.
    let before = config.peers.servers.iter().map(|url| Claim {
        id: None,
        address: Some(url.authority().into()),
        kind: MemberKind::Bare,
        heard: None,
        announced: false,
        since: Timestamp::default(),
        seniority: Arc::default(),
    });
    let claims = config.peers.named.iter().chain(written).map(claim).chain(before).collect();
    Claims { claims, read: true, ..Claims::default() }
}
