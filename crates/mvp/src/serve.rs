//! `mvp serve`: from a checked configuration to a running gateway.
//!
//! One thread runs the control loop and the admin endpoint. Each worker is a thread with a runtime,
//! a listener and connections of its own: nothing is shared on the request path but the snapshot.

mod control;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use mvp_core::member::{Member, MemberKind};
use mvp_net::{ConnectionLimit, Limits, ReloadableTls, bind, bind_workers};
use mvp_proxy::LocalSlot;
use mvp_proxy::control::{
    Clock, ControlSettings, LocalState, SnapshotReader, SnapshotWriter, channel, first_snapshot,
};
use mvp_proxy::data::{Forwarder, Target, Upstream, server_name};
use mvp_proxy::identity::{AuthenticateLayer, RemoteHeaders};
use mvp_proxy::layer::{MixedVersion, MixedVersionLayer};
use mvp_proxy::metrics::Metrics;
use mvp_proxy::peers::{AnyMember, Health, Instance, Peers};
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tower_layer::Layer;

use crate::config::{ClientLimits, ServeConfig};
use crate::connections::ConnectionMetrics;
use crate::descriptors;
use crate::health::{HealthLayer, Probes};
use crate::inside;
use crate::logging::LogQueue;
use crate::members::Standing;
use crate::reload::{self, InForce, ReloadMetrics, Reloader};
use crate::shutdown::Shutdown;
use crate::signals::Signals;
use crate::supervise::Supervisor;
use crate::tls;

/// How long clients may wait for a process that takes over from another.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);
/// How often connections are let go that nobody needs.
const LET_GO_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until told to stop.
pub(crate) fn run(config: ServeConfig, log: &LogQueue) -> anyhow::Result<()> {
    let descriptors = descriptors::raise_limit();
    let asked = config.client_limits.connections;
    let max_connections = descriptors::max_client_connections(descriptors, asked)?;
    let gateway = Arc::new(Gateway::new(&config, max_connections, log)?);
    // Before anybody can know that we are there: a signal that is not heard ends the process.
    let runtime = runtime()?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new()?
    };
    let listeners =
        bind_workers(config.listen, config.workers, config.share_port).map_err(|error| {
            cannot_listen(config.listen, "--bind-address and --secure-port", &error)
        })?;
    let admin_listener = bind(config.admin, config.share_port)
        .map_err(|error| cannot_listen(config.admin, "--admin-bind-address", &error))?;
    // With port 0 the system chose.
    let listen = listeners.first().map_or(Ok(config.listen), TcpListener::local_addr)?;
    let admin = admin_listener.local_addr()?;
    let standing = Standing::new(&config, listen, gateway.in_force.etcd.subscribe());

    let workers: Vec<JoinHandle<bool>> = listeners
        .into_iter()
        .enumerate()
        .map(|(index, listener)| gateway.spawn_worker(index, listener))
        .collect::<anyhow::Result<_>>()?;
    tracing::info!(
        listen = %listen,
        admin = %admin,
        local = config.local.as_ref().map(|local| local.url.to_string()),
        id = %gateway.settings.local.as_deref().unwrap_or_default(),
        advertise = standing.advertise().map(|address| address.to_string()),
        membership = standing.described(),
        seed = standing.seed().map(ToString::to_string),
        peers = gateway.in_force.members.borrow().claims.len(),
        workers = workers.len(),
        "serving"
    );
    let limits = &gateway.client_limits;
    tracing::info!(
        descriptors,
        max_client_connections = max_connections,
        max_client_connections_per_address = limits.connections_per_address,
        max_request_header_bytes = limits.request_header_bytes,
        goaway_chance = limits.goaway_chance,
        "limits"
    );
    let reload = gateway.spawn_reloader(config)?;
    runtime.block_on(gateway.control(standing, admin_listener, signals, reload, workers))
}

/// All that workers and the control loop are made of.
struct Gateway {
    in_force: InForce,
    client_limits: ClientLimits,
    /// Client connections of all workers together.
    connections: ConnectionLimit,
    headers: RemoteHeaders,
    local: Option<Target>,
    settings: ControlSettings,
    metrics: Arc<Metrics>,
    /// What the forwarders of all workers know together.
    upstream: Upstream,
    reload_metrics: ReloadMetrics,
    /// What this crate counts.
    registry: Arc<Registry>,
    /// How peers do, and the local server.
    health: Health,
    local_state: LocalState,
    reader: SnapshotReader,
    writer: std::sync::Mutex<Option<SnapshotWriter>>,
    shutdown: Shutdown,
    probes: Arc<Probes>,
    supervisor: Supervisor,
    share_port: bool,
}

impl Gateway {
    fn new(
        config: &ServeConfig,
        max_connections: usize,
        log: &LogQueue,
    ) -> anyhow::Result<Gateway> {
        let local = config.local.as_ref().map(|local| Target {
            id: local.id.as_str().into(),
            address: local.url.authority().into(),
            server_name: server_name(),
            kind: MemberKind::Bare,
            local: true,
        });
        let settings = ControlSettings {
            local: local.as_ref().map(|local| Arc::clone(&local.id)),
            interval: config.refresh_interval,
            forget_after: config.peers.forget_after,
            instance: Some(Instance::new(local.as_ref().map_or("", |local| &local.id))?),
            ..ControlSettings::default()
        };
        let clock = Clock::start();
        let (writer, reader) = channel(clock, first_snapshot(&settings, clock));
        let server = tls::server(config)?;
        tls::check_proxy_identity(config)?;
        let peers_ca = config.peers.ca.as_ref().filter(|_| config.serves_peers());
        let outbound_peers = peers_ca.map(|ca| tls::outbound(config, ca)).transpose()?;
        let metrics = Arc::new(Metrics::new(config.log_local_requests));
        let (mut registry, reload_metrics) = (Registry::default(), ReloadMetrics::default());
        reload_metrics.register(&mut registry);
        log.register(&mut registry);
        let supervisor = Supervisor::default();
        supervisor.register(&mut registry);
        let per_address = config.client_limits.connections_per_address;
        let connections = ConnectionLimit::new(max_connections, per_address);
        registry.register_collector(Box::new(ConnectionMetrics(connections.clone())));
        let shutdown = Shutdown::new(config, log);
        let published = reader.clone();
        let published = move || published.now().since(published.load().built());
        let probes = Probes::new(shutdown.leaving.clone(), published, config.refresh_interval);
        Ok(Gateway {
            in_force: InForce {
                tls: ReloadableTls::new(server),
                outbound_local: tls::outbound_local(config)?.into(),
                outbound_peers: outbound_peers.map(Into::into),
                members: watch::Sender::new(reload::members(config)),
                etcd: watch::Sender::new(tls::etcd(config)?),
            },
            client_limits: config.client_limits,
            connections,
            headers: RemoteHeaders {
                username: config.request_header.username.clone(),
                group: config.request_header.group.clone(),
                uid: config.request_header.uid.clone(),
                extra_prefix: config
                    .request_header
                    .extra_prefix
                    .iter()
                    .map(|prefix| prefix.as_str().to_owned())
                    .collect(),
            },
            local,
            settings,
            upstream: Upstream::default(),
            reload_metrics,
            registry: Arc::new(registry),
            health: Health::new(clock, Arc::clone(&metrics)),
            local_state: LocalState::new(Arc::clone(&metrics)).unseen(),
            metrics,
            reader,
            writer: std::sync::Mutex::new(Some(writer)),
            shutdown,
            probes: Arc::new(probes),
            supervisor,
            share_port: config.share_port,
        })
    }

    /// Looks at the files for as long as the process lives; sooner when it is woken.
    fn spawn_reloader(&self, config: ServeConfig) -> anyhow::Result<mpsc::Sender<()>> {
        let (wake, woken) = mpsc::channel();
        let (in_force, metrics) = (self.in_force.clone(), self.reload_metrics.clone());
        let restarts = self.supervisor.watch("reload");
        let reloader = Reloader::new(config, in_force, metrics, SystemTime::now());
        thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || reloader.run(&woken, restarts))
            .context("cannot start a thread")?;
        Ok(wake)
    }

    /// A worker: its own thread, runtime, listener and connections.
    fn spawn_worker(
        self: &Arc<Gateway>,
        index: usize,
        listener: TcpListener,
    ) -> anyhow::Result<JoinHandle<bool>> {
        let gateway = Arc::clone(self);
        let name = format!("worker-{index}");
        let heartbeat = self.probes.heartbeats().add(name.clone());
        let worker = move || {
            // However it ends, the others end too.
            let stop = gateway.shutdown.stop.clone();
            let _stop = stop.clone().drop_guard();
            let outcome = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    let (forwarder, layer) = gateway.layer(LocalSlot::default());
                    tokio::spawn(heartbeat.run());
                    gateway.spawn_let_go(&forwarder);
                    let bounds = &gateway.client_limits;
                    let service = AuthenticateLayer::new(gateway.headers.clone())
                        .with_goaway_chance(bounds.goaway_chance)
                        .with_max_head_bytes(bounds.request_header_bytes)
                        .layer(gateway.service(&forwarder, &layer));
                    let service = HealthLayer(Arc::clone(&gateway.probes)).layer(service);
                    if gateway.share_port {
                        gateway.settles().await;
                    }
                    let tls = gateway.in_force.tls.clone();
                    let (grace, connections) =
                        (gateway.shutdown.grace, gateway.connections.clone());
                    let limits = Limits { grace, connections, ..Limits::default() };
                    mvp_net::serve(listener, tls, limits, service, stop.clone()).await;
                    Ok(())
                })
            });
            if let Err(error) = &outcome {
                tracing::error!(worker = index, "{error:#}");
            }
            outcome.is_ok()
        };
        thread::Builder::new().name(name).spawn(worker).context("cannot start a worker thread")
    }

    /// Who takes over from another has clients from its first moment: they may wait for a little,
    /// in the queue of the listener, where the old one would have had an answer for them.
    async fn settles(&self) {
        if self.in_force.outbound_peers.is_none() {
            return;
        }
        tokio::select! {
            _ = self.reader.wait_for(inside::is_settled) => {}
            () = tokio::time::sleep(SETTLES_WITHIN) => {}
            () = self.shutdown.stop.cancelled() => {}
        }
    }

    /// Connections, and the layer that sends over them.
    fn layer(&self, slot: LocalSlot) -> (Arc<Forwarder>, MixedVersionLayer) {
        let InForce { outbound_local: local, outbound_peers: peers, .. } = &self.in_force;
        let forwarder = Forwarder::new(local.clone(), peers.as_ref().unwrap_or(local).clone());
        let forwarder = forwarder.sharing(&self.upstream);
        let metrics = Arc::clone(&self.metrics);
        let forwarder = forwarder.with_remote_headers(self.headers.clone()).with_metrics(&metrics);
        let forwarder = Arc::new(forwarder);
        let peers = peers.as_ref().map(|_| self.peers(&forwarder));
        let layer = MixedVersionLayer::new(self.reader.clone(), peers, slot, metrics);
        let layer = layer.with_local_state(self.local_state.clone());
        let layer = match &self.settings.instance {
            Some(instance) => layer.with_instance(instance),
            None => layer,
        };
        (forwarder, layer)
    }

    fn peers(&self, forwarder: &Arc<Forwarder>) -> Peers {
        Peers::new(Arc::clone(forwarder), self.health.clone(), Arc::clone(&self.metrics))
    }

    /// Lets go of connections that nobody needs, for as long as the runtime lives.
    fn spawn_let_go(&self, forwarder: &Arc<Forwarder>) {
        let (forwarder, reader) = (Arc::clone(forwarder), self.reader.clone());
        let start = move || let_go(Arc::clone(&forwarder), reader.clone());
        tokio::spawn(self.supervisor.clone().run("idle-pools", start));
    }

    /// The layer in front of the local server, or of any member where there is none.
    fn service(&self, forwarder: &Arc<Forwarder>, layer: &MixedVersionLayer) -> MixedVersion {
        match &self.local {
            Some(local) => layer.in_front_of(Arc::clone(forwarder), Arc::new(local.clone())),
            None => layer.layer(AnyMember::new(self.peers(forwarder), self.reader.clone())),
        }
    }
}

/// Lets go of connections to addresses that no member has any more, and of those from before a reload.
async fn let_go(forwarder: Arc<Forwarder>, reader: SnapshotReader) {
    loop {
        tokio::time::sleep(LET_GO_INTERVAL).await;
        let snapshot = reader.load();
        let has = |member: &Member, address: &str| member.address.as_deref() == Some(address);
        forwarder.prune(|address| snapshot.members().any(|member| has(member, address)));
    }
}

fn cannot_listen(address: SocketAddr, flags: &str, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another port",
        io::ErrorKind::AddrNotAvailable => "choose an address that this host has",
        io::ErrorKind::PermissionDenied => "choose a port from 1024 on, or run with the privilege",
        _ => "choose another address or port",
    };
    anyhow::anyhow!("cannot listen on {address} ({flags}): {error}; {hint}")
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}
