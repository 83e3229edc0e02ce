//! The one assembly of a member: its shared state, its workers, its control loop. `mvp serve`,
//! authors of API servers, tests and the example all use it. Entry item: [`Member::builder`].

mod builder;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use crate::control::{
    self, AnyMember, ControlSettings, Membership, Reachable, SnapshotReader, SnapshotWriter,
};
use crate::identity::{AuthenticateLayer, HeadersState, Screen};
use crate::layer::{MixedVersion, MixedVersionLayer};
use crate::local::LocalSlot;
use crate::metrics::Metrics;
use crate::peers::{Health, Peers};
use crate::probe::{self, LocalState, OwnRequests};
use crate::trace::Tracer;
use crate::upstream::{Forwarder, ReloadableOutbound, Target, Upstream};
pub use builder::MemberBuilder;

/// How often unneeded connections are closed.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

/// A member of a cluster of mixed versions: one for each process. Clones share everything.
///
/// A member does nothing until it is [started](Self::start), or until workers run its parts one by
/// one, as `mvp serve` does to restart them after a panic.
#[derive(Clone)]
pub struct Member(Arc<Shared>);

/// Where the API server of a member is.
#[derive(Debug)]
enum Server {
    /// In this process: the layer is put in front of it.
    InProcess,
    /// Behind a connection, with its health.
    Behind { target: Arc<Target>, state: LocalState },
    /// There is none.
    Nowhere,
}

struct Shared {
    server: Server,
    settings: ControlSettings,
    local_tls: ReloadableOutbound,
    peer_tls: Option<ReloadableOutbound>,
    screen: Screen,
    /// Whether the health of servers is probed.
    probed: bool,
    /// What the forwarders of all workers know together.
    upstream: Upstream,
    health: Health,
    metrics: Arc<Metrics>,
    tracer: Option<Tracer>,
    reader: SnapshotReader,
    /// Taken by the control loop.
    writer: Mutex<Option<SnapshotWriter>>,
}

impl Member {
    /// Builds a member for the API server of this ID. `tls` is used towards the server and towards
    /// peers; keep a clone of a [`ReloadableOutbound`] to replace it later.
    ///
    /// The server is in this process, unless [`server_at`](MemberBuilder::server_at) or
    /// [`without_server`](MemberBuilder::without_server) says otherwise.
    pub fn builder(id: &str, tls: impl Into<ReloadableOutbound>) -> MemberBuilder {
        MemberBuilder::new(id, tls.into())
    }

    /// Starts everything on the current runtime, until `stop`: the control loop, the health probes
    /// and the upkeep of connections. Returns the worker to serve with: put [`Worker::layer`] in
    /// front of an API server in this process, or serve [`Worker::gateway`].
    pub fn start(&self, membership: impl Membership, stop: CancellationToken) -> Worker {
        let worker = self.worker();
        let tasks = {
            let (pruned, local, members) = (worker.clone(), worker.clone(), worker.clone());
            let headers = worker.clone();
            async {
                tokio::join!(
                    pruned.prune(),
                    local.watch_local(),
                    members.watch_members(),
                    headers.watch_request_headers()
                )
            }
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(tasks));
        tokio::spawn(worker.clone().run_control_loop(membership, stop));
        worker
    }

    /// A new worker with connections of its own. Use one for each runtime.
    pub fn worker(&self) -> Worker {
        let Shared { local_tls, peer_tls, upstream, screen, metrics, .. } = &*self.0;
        let peer_tls = peer_tls.as_ref().unwrap_or(local_tls);
        let forwarder = Forwarder::new(local_tls.clone(), peer_tls.clone())
            .sharing(upstream)
            .with_screen(screen.clone())
            .with_metrics(metrics);
        let (forwarder, slot) = (Arc::new(forwarder), LocalSlot::default());
        Worker { member: self.clone(), forwarder, slot }
    }

    /// The published snapshots.
    pub fn reader(&self) -> &SnapshotReader {
        &self.0.reader
    }

    /// The metrics of all workers.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// The health of a server behind a connection; `None` for one in this process.
    pub fn local_state(&self) -> Option<&LocalState> {
        match &self.0.server {
            Server::Behind { state, .. } => Some(state),
            Server::InProcess | Server::Nowhere => None,
        }
    }

    /// The layer that identifies callers, to put in front of the member. It removes all headers in
    /// which servers of the cluster read users.
    pub fn authenticate(&self) -> AuthenticateLayer {
        let Shared { screen, tracer, .. } = &*self.0;
        AuthenticateLayer::with_screen(screen.clone()).traced_by(tracer.clone())
    }

    /// What is known of the headers in which the cluster's servers read users.
    pub fn request_headers(&self) -> HeadersState {
        self.0.screen.state()
    }

    /// The ID of the API server; `None` without one.
    pub fn id(&self) -> Option<&Arc<str>> {
        self.0.settings.local.as_ref()
    }

    /// The publisher of snapshots, once: for those who make snapshots by themselves instead of
    /// running the control loop.
    pub fn take_writer(&self) -> Option<SnapshotWriter> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// A worker of a member: connections of its own, and the layer that uses them. Clones share them.
#[derive(Debug, Clone)]
pub struct Worker {
    member: Member,
    forwarder: Arc<Forwarder>,
    slot: LocalSlot,
}

impl Worker {
    /// The same as [`Member::authenticate`].
    pub fn authenticate(&self) -> AuthenticateLayer {
        self.member.authenticate()
    }

    /// The layer to put in front of an API server in this process.
    pub fn layer(&self) -> MixedVersionLayer {
        let Shared { reader, metrics, peer_tls, settings, tracer, .. } = &*self.member.0;
        let peers = peer_tls.as_ref().map(|_| self.peers());
        let (slot, metrics) = (self.slot.clone(), Arc::clone(metrics));
        let state = self.member.local_state().cloned();
        let instance = settings.instance.as_ref();
        let layer = MixedVersionLayer::new(reader.clone(), peers, slot, metrics, state, instance);
        layer.traced(tracer.is_some())
    }

    /// The service in front of the server at [`MemberBuilder::server_at`] or, for a member
    /// [without a server](MemberBuilder::without_server), in front of all members. An API server in
    /// this process needs [`layer`](Self::layer) instead.
    pub fn gateway(&self) -> MixedVersion {
        match &self.member.0.server {
            Server::Behind { target, .. } => {
                self.layer().in_front_of(Arc::clone(&self.forwarder), Arc::clone(target))
            }
            Server::InProcess | Server::Nowhere => self.layer().layer(self.any_member()),
        }
    }

    /// The local server for requests of our own, such as watches. They fail until the layer is in
    /// front of it.
    pub fn own_requests(&self) -> OwnRequests {
        OwnRequests::new(self.slot.clone(), self.member.local_state().cloned())
    }

    /// A service that asks any healthy member.
    pub fn any_member(&self) -> AnyMember {
        AnyMember::new(self.peers(), self.member.0.reader.clone())
    }

    /// The connections of this worker.
    pub fn forwarder(&self) -> &Arc<Forwarder> {
        &self.forwarder
    }

    fn peers(&self) -> Peers {
        let Shared { health, metrics, .. } = &*self.member.0;
        Peers::new(Arc::clone(&self.forwarder), health.clone(), Arc::clone(metrics))
    }

    /// Closes connections to addresses that no member has any more, and those from before a
    /// reload of TLS; forgets callers of more than an hour ago. Never returns. Every worker needs it.
    pub async fn prune(self) {
        loop {
            tokio::time::sleep(PRUNE_INTERVAL).await;
            let Shared { reader, metrics, .. } = &*self.member.0;
            if let Some(callers) = metrics.callers() {
                callers.sweep(reader.now());
            }
            let snapshot = reader.load();
            let is_used = |address: &str| {
                snapshot.members().any(|member| member.address.as_deref() == Some(address))
            };
            self.forwarder.prune(is_used);
        }
    }

    /// Watches the health of a server behind a connection. Returns at once if there is none to
    /// watch. One worker of a member needs it.
    pub async fn watch_local(self) {
        let Shared { server, .. } = &*self.member.0;
        if let Server::Behind { target, state } = server
            && self.can_probe()
        {
            probe::watch_local(&self.forwarder, target, state).await;
        }
    }

    /// Watches the health of peers that have no gateway. Returns at once if there are no peers. One
    /// worker of a member needs it.
    pub async fn watch_members(self) {
        let Shared { reader, health, .. } = &*self.member.0;
        if self.can_probe() {
            probe::watch_members(&self.forwarder, reader, health).await;
        }
    }

    /// Watches which headers the cluster's servers read users from, to remove them from requests.
    /// Returns at once without a proxy certificate: then no server believes any. One worker of a
    /// member needs it.
    pub async fn watch_request_headers(self) {
        let Shared { screen, reader, settings, .. } = &*self.member.0;
        if self.is_vouched_for() {
            control::watch_request_headers(screen, reader, &self.reach(), settings.interval).await;
        }
    }

    /// Whether servers let us ask in our own name, and there is a reason to.
    fn can_probe(&self) -> bool {
        let Shared { peer_tls, probed, .. } = &*self.member.0;
        *probed && self.is_vouched_for() && peer_tls.is_some()
    }

    /// Whether there is a proxy certificate.
    fn is_vouched_for(&self) -> bool {
        self.member.0.local_tls.current().vouched.is_some()
    }

    /// The ways to all members.
    fn reach(&self) -> Reachable {
        let Shared { settings, server, health, .. } = &*self.member.0;
        // Without a certificate of its own a gateway cannot ask its server, and need not.
        let can_ask = matches!(server, Server::InProcess) || self.is_vouched_for();
        let local = settings.local.clone().filter(|_| can_ask).map(|id| (id, self.slot.clone()));
        Reachable { local, peers: Some((Arc::clone(&self.forwarder), health.clone())) }
    }

    /// Runs the control loop until `stop`. Only the first call for a member does.
    pub async fn run_control_loop(self, membership: impl Membership, stop: CancellationToken) {
        let Some(writer) = self.member.take_writer() else { return };
        let Shared { settings, metrics, .. } = &*self.member.0;
        let (settings, metrics) = (settings.clone(), Arc::clone(metrics));
        control::run(membership, self.reach(), settings, writer, metrics, stop).await;
    }
}
