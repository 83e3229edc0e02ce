//! `mvp serve`: from a checked configuration to a running gateway.
//!
//! One thread runs the control loop and the admin endpoint. Each worker is a thread with a runtime,
//! a listener and connections of its own: nothing is shared on the request path but the snapshot.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use mvp_core::member::MemberKind;
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls, UnixTime, bind, bind_workers};
use mvp_proxy::control::{
    self, Clock, ControlSettings, LocalState, MemberRecord, SnapshotReader, StaticMembership,
    channel,
};
use mvp_proxy::data::{Forwarder, OutboundTls, Remote, Target, server_name};
use mvp_proxy::identity::{AuthenticateLayer, RemoteHeaders};
use mvp_proxy::metrics::Metrics;
use mvp_proxy::peers::{Health, Peers, Reachable};
use mvp_proxy::{LocalSlot, MixedVersionLayer};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use crate::admin::{self, Admin};
use crate::config::{KeyPair, ServeConfig};
use crate::inside;
use crate::mistake::Mistake;

/// How long watches may go on once we were told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until told to stop.
pub(crate) fn run(config: ServeConfig) -> anyhow::Result<()> {
    // Each client is a connection; the usual soft limit is for programs that use `select`.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let listeners = bind_workers(config.listen, config.workers).map_err(|error| {
        cannot_listen(config.listen, "--bind-address and --secure-port", &error)
    })?;
    let admin_listener = bind(config.admin, false)
        .map_err(|error| cannot_listen(config.admin, "--admin-bind-address", &error))?;
    // With port 0 the system chose.
    let listen = listeners.first().map_or(Ok(config.listen), TcpListener::local_addr)?;
    let admin = admin_listener.local_addr()?;
    let gateway = Arc::new(Gateway::new(&config)?);
    let stop = CancellationToken::new();

    let workers: Vec<JoinHandle<bool>> = listeners
        .into_iter()
        .enumerate()
        .map(|(index, listener)| gateway.spawn_worker(index, listener, &stop))
        .collect::<anyhow::Result<_>>()?;
    tracing::info!(
        listen = %listen,
        admin = %admin,
        local = %config.local.url,
        id = %gateway.settings.local.as_deref().unwrap_or_default(),
        advertise = config.advertise.map(|address| address.to_string()),
        membership = format!("{:?}", config.peers.membership).to_lowercase(),
        peers = gateway.members.len(),
        workers = workers.len(),
        "serving"
    );
    runtime()?.block_on(async {
        gateway.control(admin_listener, stop).await?;
        // Here, so that a second signal is heard meanwhile.
        let join = move || workers.into_iter().all(|worker| worker.join().unwrap_or(false));
        let joined = tokio::task::spawn_blocking(join).await?;
        anyhow::ensure!(joined, "a worker ended by itself; the log has the reason");
        Ok(())
    })
}

/// All that workers and the control loop are made of.
struct Gateway {
    tls: ReloadableTls,
    outbound_local: OutboundTls,
    /// Nothing without a CA for peers, or with the gate off: then only the local server is asked.
    outbound_peers: Option<OutboundTls>,
    headers: RemoteHeaders,
    local: Target,
    members: Vec<MemberRecord>,
    settings: ControlSettings,
    metrics: Arc<Metrics>,
    /// How peers do, and the local server.
    health: Health,
    local_state: LocalState,
    reader: SnapshotReader,
    writer: std::sync::Mutex<Option<control::SnapshotWriter>>,
}

impl Gateway {
    fn new(config: &ServeConfig) -> anyhow::Result<Gateway> {
        let id: Arc<str> = config.local.id.as_str().into();
        let settings = ControlSettings {
            local: Some(Arc::clone(&id)),
            interval: config.refresh_interval,
            forget_after: config.peers.forget_after,
            ..ControlSettings::default()
        };
        let clock = Clock::start();
        let (writer, reader) = channel(clock, control::first_snapshot(&settings, clock));
        let proxies = config.peers.ca.as_ref().filter(|_| config.serves_peers());
        let members = config.peers.named.iter().map(|peer| MemberRecord {
            id: peer.id.as_str().into(),
            address: Some(peer.url.authority().into()),
            kind: peer.kind,
            heard: None,
        });
        let metrics = Arc::new(Metrics::new(config.log_local_requests));
        Ok(Gateway {
            tls: ReloadableTls::new(server_tls(config)?),
            outbound_local: outbound(&config.local.ca.pem, config.proxy_client.as_ref())
                .context("--local-ca-file and --proxy-client-cert-file")?,
            outbound_peers: proxies
                .map(|ca| outbound(&ca.pem, config.proxy_client.as_ref()))
                .transpose()
                .context("--peer-ca-file and --proxy-client-cert-file")?,
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
            local: Target {
                id,
                address: config.local.url.authority().into(),
                server_name: server_name(),
                kind: MemberKind::Bare,
                local: true,
            },
            members: if proxies.is_some() { members.collect() } else { Vec::new() },
            settings,
            health: Health::new(clock, Arc::clone(&metrics)),
            local_state: LocalState::new(Arc::clone(&metrics)),
            metrics,
            reader,
            writer: std::sync::Mutex::new(Some(writer)),
        })
    }

    /// A worker: its own thread, runtime, listener and connections.
    fn spawn_worker(
        self: &Arc<Gateway>,
        index: usize,
        listener: TcpListener,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinHandle<bool>> {
        let (gateway, stop) = (Arc::clone(self), stop.clone());
        let worker = move || {
            // However it ends, the others end too.
            let _stop = stop.clone().drop_guard();
            let outcome = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    let layer = gateway.layer(LocalSlot::default());
                    let service = AuthenticateLayer::new(gateway.headers.clone())
                        .layer(layer.1.layer(Remote::new(layer.0, gateway.local.clone())));
                    let tls = gateway.tls.clone();
                    let limits = Limits { grace: GRACE, ..Limits::default() };
                    mvp_net::serve(listener, tls, limits, service, stop.clone()).await;
                    Ok(())
                })
            });
            if let Err(error) = &outcome {
                tracing::error!(worker = index, "{error:#}");
            }
            outcome.is_ok()
        };
        let name = format!("worker-{index}");
        thread::Builder::new().name(name).spawn(worker).context("cannot start a worker thread")
    }

    /// Connections, and the layer that sends over them.
    fn layer(&self, slot: LocalSlot) -> (Arc<Forwarder>, MixedVersionLayer) {
        let peers = self.outbound_peers.clone().unwrap_or_else(|| self.outbound_local.clone());
        let forwarder = Forwarder::new(self.outbound_local.clone(), peers);
        let forwarder = Arc::new(forwarder.with_remote_headers(self.headers.clone()));
        let metrics = Arc::clone(&self.metrics);
        let peers = self
            .outbound_peers
            .as_ref()
            .map(|_| Peers::new(Arc::clone(&forwarder), self.health.clone(), Arc::clone(&metrics)));
        let layer = MixedVersionLayer::new(self.reader.clone(), peers, slot, metrics);
        (forwarder, layer.with_local_state(self.local_state.clone()))
    }

    /// The control loop and the admin endpoint, until a signal comes.
    async fn control(
        self: Arc<Gateway>,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let slot = LocalSlot::default();
        let (forwarder, layer) = self.layer(slot.clone());
        let _local = layer.layer(Remote::new(Arc::clone(&forwarder), self.local.clone()));
        // A plain way through without a certificate of its own cannot ask, and need not.
        let can_ask = self.outbound_local.vouched.is_some();
        let local = can_ask.then(|| (Arc::clone(&self.local.id), slot));
        if can_ask && self.outbound_peers.is_some() {
            let (forwarder, state) = (Arc::clone(&forwarder), self.local_state.clone());
            let local = self.local.clone();
            tokio::spawn(control::watch_local(forwarder, local, state, stop.clone()));
        }
        let reach = Reachable { local, peers: Some((forwarder, self.health.clone())) };
        let writer = self.writer.lock().ok().and_then(|mut writer| writer.take());
        let writer = writer.context("the control loop runs once")?;
        let control = tokio::spawn(control::run(
            StaticMembership::new(self.members.clone()),
            reach,
            self.settings.clone(),
            writer,
            Arc::clone(&self.metrics),
            stop.clone(),
        ));

        let listener = tokio::net::TcpListener::from_std(listener)?;
        let admin = admin::serve(listener, self.admin(), stop.clone().cancelled_owned());
        tokio::select! {
            outcome = admin => outcome.context("the admin endpoint ended")?,
            outcome = control => outcome.context("the control loop ended")?,
            signal = signals.next() => {
                tracing::info!("{signal} received, draining; a second one ends it at once");
                tokio::spawn(async move {
                    signals.next().await;
                    std::process::exit(1);
                });
            }
        }
        stop.cancel();
        Ok(())
    }

    fn admin(&self) -> Admin {
        let (readiness, snapshot) = (self.reader.clone(), self.reader.clone());
        let (metrics, local) = (Arc::clone(&self.metrics), self.local_state.clone());
        let merges = self.outbound_peers.is_some();
        Admin {
            readiness: Arc::new(move || match merges {
                true => inside::readiness(&readiness.load(), local.get()),
                // A plain way through depends on nobody's discovery.
                false => Vec::new(),
            }),
            metrics: Arc::new(move |text| metrics.encode(text)),
            snapshot: Arc::new(move || inside::described(&snapshot.load(), snapshot.now())),
        }
    }
}

/// The signals that ask us to stop, heard from now on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Signals> {
        let heard = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            terminate: heard(SignalKind::terminate())?,
            interrupt: heard(SignalKind::interrupt())?,
            hangup: heard(SignalKind::hangup())?,
        })
    }

    /// The name of the next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

fn server_tls(config: &ServeConfig) -> anyhow::Result<ServerTls> {
    let request_header = &config.request_header;
    let trust = ClientTrust::new(
        config.client_ca.as_ref().map(|ca| &*ca.pem),
        request_header.ca.as_ref().map(|ca| &*ca.pem),
        request_header.allowed_names.clone(),
    )
    .context("--client-ca-file and --requestheader-client-ca-file")?;
    check_proxy_identity(config, &trust)?;
    ServerTls::new(&config.serving.chain.pem, &config.serving.key.pem, trust)
        .context("--tls-cert-file and --tls-private-key-file")
}

/// A server that takes our certificate for a user's would take every request for that user's.
fn check_proxy_identity(config: &ServeConfig, trust: &ClientTrust) -> anyhow::Result<()> {
    let Some(proxy) = &config.proxy_client else { return Ok(()) };
    let proves = trust.judge(&proxy.chain.certificates, UnixTime::now());
    let shown = proxy.chain.path.display();
    let wrong = if proves.user.is_some() && !proves.front_proxy {
        format!("{shown} is a user's, of --client-ca-file: every request would be that user's")
    } else if config.request_header.ca.is_some() && !proves.front_proxy {
        format!(
            "{shown} is not of --requestheader-client-ca-file, its name is not among \
             --requestheader-allowed-names, or it is not valid now: nobody would believe it"
        )
    } else {
        return Ok(());
    };
    let fix = "give the one that the servers trust to speak for users, as kubeadm's \
               front-proxy-client.crt";
    Err(Mistake::trouble("--proxy-client-cert-file", format!("{wrong}; {fix}")).into())
}

fn outbound(roots: &[u8], proxy: Option<&KeyPair>) -> anyhow::Result<OutboundTls> {
    let proxy = proxy.map(|proxy| (&*proxy.chain.pem, &*proxy.key.pem));
    Ok(OutboundTls::new(roots, proxy)?)
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
