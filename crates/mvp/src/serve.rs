//! `mvp serve`: from a validated configuration to a running gateway. Entry: [`run`].
//!
//! One thread runs the control loop and the admin endpoint. Each worker is a thread with its own
//! runtime, listener and connections. On the request path, workers share the snapshot, the TLS in
//! use, the health of servers, accepted tokens, metrics and the limit of client connections.

mod control;
mod traces;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use futures_util::future::join_all;
use mvp_net::{Limits, Listener, PassThrough, bind, bind_workers};
use mvp_proxy::{Member, Worker};
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;

use crate::admin::host::AllowedHosts;
use crate::admin::socket::{self, AdminSocket};
use crate::callers::DeprecatedCallers;
use crate::cli::Flags;
use crate::config::{AdminSocketPath, Around, ClientLimits, ServeConfig};
use crate::connections::ConnectionMetrics;
use crate::dashboard::secure::Secure;
use crate::descriptors;
use crate::follow::Follower;
use crate::health::{HealthLayer, Probes};
use crate::inside;
use crate::logging::LogQueue;
use crate::members::Standing;
use crate::process_metrics;
use crate::readiness_metrics::ReadinessMetrics;
use crate::reload::{InForce, ReloadMetrics, Reloader};
use crate::report::pages::{Pages, PagesLayer};
use crate::shutdown::Shutdown;
use crate::signals::Signals;
use crate::steering::{Prepared, Steered, SteeringMetrics, fault};
use crate::supervise::Supervisor;
use crate::tls;
use traces::Traces;

/// The longest time that clients wait for a process that takes over from another.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);

/// Serves until a signal ends it.
pub(crate) fn run(
    config: ServeConfig,
    flags: Flags,
    steering: Option<Prepared>,
    log: &LogQueue,
) -> anyhow::Result<()> {
    let descriptors = descriptors::raise_limit();
    let asked = config.client_limits.connections;
    let max_connections = descriptors::max_client_connections(descriptors, asked)?;
    let steered = steering.as_ref().map(|prepared| prepared.steered.clone());
    let gateway = Arc::new(Gateway::new(&config, flags, max_connections, steered, log)?);
    // Before the listeners: a signal without a handler ends the process.
    let runtime = runtime()?;
    let signals = {
        let _entered = runtime.enter();
        Signals::new()?
    };
    let (listeners, listen) = listeners(&config, steering)?;
    let admin_listener = bind(config.admin, config.share_port)
        .map_err(|error| cannot_listen(config.admin, "--admin-bind-address", &error))?;
    let admin = admin_listener.local_addr()?;
    let admin_socket = admin_socket(&config)?;
    let secure = Secure::listen(&config)?;
    let standing = Standing::new(&config, listen, gateway.in_force.etcd.subscribe());

    let workers: Vec<JoinHandle<bool>> = listeners
        .into_iter()
        .enumerate()
        .map(|(index, listeners)| gateway.spawn_worker(index, listeners))
        .collect::<anyhow::Result<_>>()?;
    tracing::info!(
        listen = %listen,
        admin = %admin,
        admin_socket = admin_socket.as_ref().map(AdminSocket::name),
        dashboard = Secure::url(secure.as_ref(), admin),
        local = config.local.as_ref().map(|local| local.url.to_string()),
        id = %gateway.member.id().map_or("", |id| id),
        advertise = standing.advertise().map(|address| address.to_string()),
        membership = standing.described(),
        seed = standing.seed().map(ToString::to_string),
        last_known = standing.last_known(),
        peers = gateway.in_force.members.borrow().claims.len(),
        workers = workers.len(),
        steer = gateway.steered.is_some(),
        "serving"
    );
    if let Some(steered) = &gateway.steered {
        steered.report();
    }
    gateway.client_limits.report(descriptors, max_connections);
    let hosts = AllowedHosts::new(&config.admin_hosts);
    let admin = AdminEndpoint { listener: admin_listener, socket: admin_socket, hosts, secure };
    let reload = gateway.spawn_reloader(config)?;
    runtime.block_on(gateway.control(standing, admin, signals, reload, workers))
}

/// The listening sockets of each worker, and the address that clients use.
fn listeners(
    config: &ServeConfig,
    steering: Option<Prepared>,
) -> anyhow::Result<(Vec<Vec<TcpListener>>, SocketAddr)> {
    if let Some(prepared) = steering {
        return Ok((prepared.listeners, config.listen));
    }
    let listeners =
        bind_workers(config.listen, config.workers, config.share_port).map_err(|error| {
            cannot_listen(config.listen, "--bind-address and --secure-port", &error)
        })?;
    // With port 0, the system chose the port.
    let listen = listeners.first().map_or(Ok(config.listen), TcpListener::local_addr)?;
    Ok((listeners.into_iter().map(|listener| vec![listener]).collect(), listen))
}

/// Where the admin endpoint listens, and the host names under which it can be reached.
struct AdminEndpoint {
    listener: TcpListener,
    socket: Option<AdminSocket>,
    hosts: AllowedHosts,
    /// The dashboard for other hosts.
    secure: Option<Secure>,
}

/// The Unix socket of the admin endpoint. Without a flag it is not worth failing over.
fn admin_socket(config: &ServeConfig) -> anyhow::Result<Option<AdminSocket>> {
    let path = match &config.admin_socket {
        AdminSocketPath::Off => return Ok(None),
        AdminSocketPath::Default => Path::new(socket::DEFAULT),
        AdminSocketPath::At(path) => path,
    };
    let error = match AdminSocket::bind(path, config.share_port) {
        Ok(socket) => return Ok(Some(socket)),
        Err(error) => error,
    };
    let path = path.display();
    let error = match error.kind() {
        io::ErrorKind::AddrInUse => format!("another process listens on {path}"),
        _ => format!("cannot listen on {path}: {error}"),
    };
    if config.admin_socket == AdminSocketPath::Default {
        tracing::info!(error, "no admin socket; for mvp forget, give another --admin-socket");
        return Ok(None);
    }
    anyhow::bail!("--admin-socket: {error}; choose another path")
}

/// The shared parts of workers and the control loop.
struct Gateway {
    in_force: InForce,
    client_limits: ClientLimits,
    /// The limits of the listeners of all workers together.
    limits: Limits,
    max_connections: usize,
    member: Member,
    reload_metrics: ReloadMetrics,
    /// The metrics of this crate.
    registry: Arc<Registry>,
    shutdown: Shutdown,
    probes: Arc<Probes>,
    /// What peers can ask for.
    pages: Arc<Pages>,
    supervisor: Supervisor,
    share_port: bool,
    /// With `--steer`.
    steered: Option<Steered>,
    /// The connections of the local server to itself, which are steered, too.
    pass_through: Option<PassThrough>,
    /// The way to the local server around the steering.
    way: Option<fault::Way>,
    flags: Arc<Flags>,
    /// With `--tracing-endpoint`.
    traces: Option<Traces>,
}

impl Gateway {
    fn new(
        config: &ServeConfig,
        flags: Flags,
        max_connections: usize,
        steered: Option<Steered>,
        log: &LogQueue,
    ) -> anyhow::Result<Gateway> {
        let in_force = InForce::new(config)?;
        tls::check_proxy_identity(config)?;
        let id = config.local.as_ref().map_or("", |local| local.id.as_str());
        let limits = config.client_limits.of_listeners(max_connections, config.shutdown_grace);
        let mut registry = Registry::default();
        let traces = Traces::new(config, &mut registry);
        let member = Member::builder(id, in_force.outbound_local.clone())
            .peer_tls(in_force.outbound_peers.clone())
            .egress(in_force.egress.clone())
            .remote_headers(config.request_header.remote_headers())
            .refresh_interval(config.refresh_interval)
            .forget_after(config.peers.forget_after)
            .client_connections(limits.connections.clone())
            .peer_limits(config.client_limits.peers)
            .document_limits(config.client_limits.documents)
            .refreshes_per_second(config.client_limits.refreshes_per_second)
            .log_local_requests(config.log_local_requests)
            .record_callers(config.record_callers && config.serves_peers())
            .traced_by(traces.as_ref().map(|traces| traces.tracer.clone()))
            .record_flow(config.dashboard_flow && config.serves_peers());
        let member = match &config.local {
            Some(local) => {
                let source = config.around().map(|around| around.source);
                member.server_at(&local.url.authority()).connecting_from(source)
            }
            None => member.without_server(),
        };
        let member = member.build();
        let reload_metrics = ReloadMetrics::default();
        reload_metrics.register(&mut registry);
        process_metrics::register(&mut registry);
        log.register(&mut registry);
        let supervisor = Supervisor::default();
        supervisor.register(&mut registry);
        registry.register_collector(Box::new(ConnectionMetrics(limits.clone())));
        let (metrics, reader) = (Arc::clone(member.metrics()), member.reader().clone());
        registry.register_collector(Box::new(DeprecatedCallers { metrics, reader }));
        let shutdown = Shutdown::new(config.shutdown_delay, config.shutdown_grace, log);
        let reader = member.reader().clone();
        let published = move || reader.now().since(reader.load().built());
        let probes = Probes::new(shutdown.leaving.clone(), published, config.refresh_interval);
        let probes = Arc::new(probes.steered(steered.is_some()));
        registry.register_collector(Box::new(ReadinessMetrics(Arc::clone(&probes))));
        if let Some(steered) = steered.clone() {
            registry.register_collector(Box::new(steered.unsteered()));
            registry.register_collector(Box::new(steered.lapses()));
            registry.register_collector(Box::new(SteeringMetrics(steered)));
        }
        Ok(Gateway {
            in_force,
            client_limits: config.client_limits,
            limits,
            max_connections,
            member,
            reload_metrics,
            registry: Arc::new(registry),
            shutdown,
            probes,
            pages: Arc::default(),
            supervisor,
            share_port: config.share_port,
            steered,
            // A server on all addresses uses loopback, but it may come back with one address.
            pass_through: config.around().or_else(|| config.advertised()).map(pass_through),
            way: fault::Way::new(config),
            flags: Arc::new(match &config.local {
                Some(local) => flags.with("server-id", local.id.clone()),
                None => flags,
            }),
            traces,
        })
    }

    /// Starts the reload thread. A message on the returned channel triggers a reload.
    fn spawn_reloader(&self, config: ServeConfig) -> anyhow::Result<mpsc::Sender<()>> {
        let (wake, woken) = mpsc::channel();
        let (in_force, metrics) = (self.in_force.clone(), self.reload_metrics.clone());
        let restarts = self.supervisor.watch("reload");
        let changed = self.shutdown.flags_changed.clone();
        let follower = Follower::new(&config, std::env::args_os().collect(), changed);
        let reloader = Reloader::new(config, in_force, metrics, SystemTime::now());
        let reloader = reloader.following(follower);
        thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || reloader.run(&woken, restarts))
            .context("cannot start a thread")?;
        Ok(wake)
    }

    /// Starts a worker with its own thread, runtime, listener and connections.
    fn spawn_worker(
        self: &Arc<Gateway>,
        index: usize,
        listeners: Vec<TcpListener>,
    ) -> anyhow::Result<JoinHandle<bool>> {
        let gateway = Arc::clone(self);
        let name = format!("worker-{index}");
        let heartbeat = self.probes.heartbeats().add(name.clone());
        let worker = move || {
            // However this worker ends, the others end, too.
            let stop = gateway.shutdown.stop.clone();
            let _stop = stop.clone().drop_guard();
            let outcome = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    let listeners: Vec<_> = listeners
                        .into_iter()
                        .map(tokio::net::TcpListener::from_std)
                        .collect::<io::Result<_>>()?;
                    let worker = gateway.member.worker();
                    tokio::spawn(heartbeat.run());
                    gateway.spawn_prune(&worker);
                    let bounds = &gateway.client_limits;
                    let service = PagesLayer(Arc::clone(&gateway.pages)).layer(worker.gateway());
                    let service = worker
                        .authenticate()
                        .with_goaway_chance(bounds.goaway_chance)
                        .with_max_head_bytes(bounds.request_header_bytes)
                        .counting(gateway.limits.errors.clone())
                        .layer(service);
                    let service = HealthLayer(Arc::clone(&gateway.probes)).layer(service);
                    match &gateway.steered {
                        // Until the control loop is ready, no connection comes.
                        Some(steered) => {
                            let connections = gateway.limits.connections.clone();
                            let local = gateway.member.local_state().cloned();
                            tokio::spawn(steered.clone().beat_worker(index, connections, local));
                        }
                        None if gateway.share_port => gateway.settles().await,
                        None => {}
                    }
                    let tls = gateway.in_force.tls.clone();
                    let limits = gateway.limits.clone();
                    let serving = listeners.into_iter().map(|socket| {
                        let pass_through = gateway.pass_through.clone();
                        let handed_over = gateway.steered.is_some();
                        let listener = Listener { socket, pass_through, handed_over };
                        let (tls, limits) = (tls.clone(), limits.clone());
                        mvp_net::serve(listener, tls, limits, service.clone(), stop.clone())
                    });
                    join_all(serving).await;
                    Ok(())
                })
            });
            if let Err(error) = &outcome {
                tracing::error!(worker = index, error = format!("{error:#}"), "worker failed");
            }
            outcome.is_ok()
        };
        thread::Builder::new().name(name).spawn(worker).context("cannot start a worker thread")
    }

    /// Waits until all members were seen, for a bounded time.
    ///
    /// A process that takes over from another has clients at once. They wait in the queue of the
    /// listener, instead of getting a 503 that the old process would not have given.
    async fn settles(&self) {
        if self.in_force.outbound_peers.is_none() {
            return;
        }
        tokio::select! {
            _ = self.member.reader().wait_for(inside::is_settled) => {}
            () = tokio::time::sleep(SETTLES_WITHIN) => {}
            () = self.shutdown.stop.cancelled() => {}
        }
    }

    /// Closes unused connections in the background.
    fn spawn_prune(&self, worker: &Worker) {
        let worker = worker.clone();
        tokio::spawn(self.supervisor.clone().run("idle-pools", move || worker.clone().prune()));
    }
}

/// A kube-apiserver that does not listen on loopback connects to itself at its address, with this TLS
/// server name and a certificate that only it has.
fn pass_through(around: Around) -> PassThrough {
    let server_name = "apiserver-loopback-client";
    PassThrough { server_name, server: around.server, source: around.source }
}

pub(crate) fn cannot_listen(address: SocketAddr, flags: &str, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another port",
        io::ErrorKind::AddrNotAvailable => "choose an address that this host has",
        io::ErrorKind::PermissionDenied => {
            "choose a port above 1023, or run with CAP_NET_BIND_SERVICE"
        }
        _ => "choose another address or port",
    };
    anyhow::anyhow!("cannot listen on {address} ({flags}): {error}; {hint}")
}

pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}
