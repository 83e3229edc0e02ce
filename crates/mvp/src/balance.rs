//! `mvp serve --pass-through`: a load balancer of TCP connections for every node, without keys. Entry:
//! [`run`].
//!
//! ```text
//!  --servers, cache, EndpointSlices ──▶ discover ──▶ Members ◀── probe
//!                                                       │ order
//!  client ──▶ accept ──▶ limit ──▶ forward ─────────────┴──▶ member, bytes untouched
//! ```
//!
//! One thread finds and probes members and serves the admin endpoint. Each worker is a thread with its
//! own runtime and listener.

mod account;
mod admin;
mod discover;
mod forward;
mod limit;
mod members;
mod metrics;
mod order;
mod probe;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use mvp_net::{bind, bind_workers, serve_tcp};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub(crate) use account::DEFAULT as SERVICE_ACCOUNT;

use self::account::ServiceAccount;
use self::admin::AdminPages;
use self::discover::Search;
use self::limit::Limit;
use self::members::Members;
use self::metrics::BalanceMetrics;
use crate::admin::host::AllowedHosts;
use crate::config::balance::{BalanceConfig, is_own_address};
use crate::descriptors;
use crate::heartbeat::Heartbeats;
use crate::logging::LogQueue;
use crate::members::MembersCache;
use crate::process_metrics;
use crate::serve::{cannot_listen, runtime};
use crate::shutdown::Shutdown;
use crate::signals::Signals;
use crate::supervise::Supervisor;

/// Forwards connections until a signal ends it.
pub(crate) fn run(config: &BalanceConfig, log: &LogQueue) -> anyhow::Result<()> {
    let descriptors = descriptors::raise_limit();
    let max_connections = descriptors::max_client_connections(descriptors, config.connections)?;
    // Before the listeners: a signal without a handler ends the process.
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
    let listen = listeners.first().map_or(Ok(config.listen), TcpListener::local_addr)?;
    let cache = MembersCache::open(&config.cache);
    let last_known = cache.as_ref().map(|cache| cache.read(&|one| is_own_address(one, listen)));
    let last_known = last_known.unwrap_or_default();
    tracing::info!(
        listen = %listen,
        admin = %admin_listener.local_addr()?,
        servers = config.seeds.join(","),
        last_known = last_known.join(","),
        members_cache = cache.as_ref().map(MembersCache::name),
        workers = listeners.len(),
        descriptors,
        max_client_connections = max_connections,
        "forwarding connections"
    );
    let balancer = Balancer {
        members: Arc::new(Members::new(listen, &config.seeds, &last_known)),
        limit: Arc::new(Limit::new(max_connections)),
        shutdown: Arc::new(Shutdown::new(config.shutdown_delay, config.shutdown_grace, log)),
        heartbeats: Heartbeats::default(),
        supervisor: Supervisor::default(),
        share_port: config.share_port,
    };
    let search = Search {
        members: Arc::clone(&balancer.members),
        account: Arc::new(ServiceAccount::new(&config.service_account)),
        cache,
        last_known,
        one_host: config.one_host,
        is_own: Box::new(move |address| is_own(address, listen)),
    };
    let workers = listeners.into_iter().enumerate();
    let workers = workers.map(|(index, listener)| balancer.spawn_worker(index, listener));
    let workers = workers.collect::<anyhow::Result<Vec<_>>>()?;
    let pages = balancer.pages(log);
    let hosts = AllowedHosts::new(&config.admin_hosts);
    runtime.block_on(balancer.control(search, (admin_listener, hosts, pages), signals, workers))
}

fn is_own(address: &str, listen: SocketAddr) -> bool {
    address.parse().is_ok_and(|address| is_own_address(address, listen))
}

/// What workers and the control thread share.
#[derive(Clone)]
struct Balancer {
    members: Arc<Members>,
    limit: Arc<Limit>,
    shutdown: Arc<Shutdown>,
    heartbeats: Heartbeats,
    supervisor: Supervisor,
    share_port: bool,
}

impl Balancer {
    /// Starts a thread that accepts and forwards connections.
    fn spawn_worker(
        &self,
        index: usize,
        listener: TcpListener,
    ) -> anyhow::Result<JoinHandle<bool>> {
        let Balancer { members, limit, shutdown, heartbeats, .. } = self.clone();
        let name = format!("worker-{index}");
        let heartbeat = heartbeats.add(name.clone());
        let worker = move || {
            // However this worker ends, the others end, too.
            let stop = shutdown.stop.clone();
            let _stop = stop.clone().drop_guard();
            let outcome = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    tokio::spawn(heartbeat.run());
                    let begin = |client, _| {
                        let (permit, members) = (limit.admit()?, Arc::clone(&members));
                        Some(async move {
                            forward::forward(client, members).await;
                            drop(permit);
                        })
                    };
                    serve_tcp(listener, shutdown.grace, stop.clone(), begin).await;
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

    /// What the admin endpoint shows.
    fn pages(&self, log: &LogQueue) -> AdminPages {
        let mut registry = Registry::default();
        process_metrics::register(&mut registry);
        log.register(&mut registry);
        self.supervisor.register(&mut registry);
        let (members, limit) = (Arc::clone(&self.members), Arc::clone(&self.limit));
        registry.register_collector(Box::new(BalanceMetrics { members, limit }));
        AdminPages {
            members: Arc::clone(&self.members),
            heartbeats: self.heartbeats.clone(),
            leaving: self.shutdown.leaving.clone(),
            registry: Arc::new(registry),
        }
    }

    /// Finds and probes members and serves the admin endpoint, until a signal arrives and all workers
    /// have ended.
    async fn control(
        self,
        search: Search,
        (listener, hosts, pages): (TcpListener, AllowedHosts, AdminPages),
        signals: Signals,
        workers: Vec<JoinHandle<bool>>,
    ) -> anyhow::Result<()> {
        tokio::spawn(self.heartbeats.add("control").run());
        let (members, account) = (Arc::clone(&self.members), Arc::clone(&search.account));
        let probes = move || probe::run(Arc::clone(&members), Arc::clone(&account));
        tokio::spawn(self.supervisor.clone().run("member-health", probes));
        if search.account.exists() {
            let search = Arc::new(search);
            let finding = move || discover::run(Arc::clone(&search));
            tokio::spawn(self.supervisor.clone().run("members", finding));
        } else {
            let folder = search.account.name();
            tracing::info!(
                folder,
                "no service account; members are those of --servers and of the cache only"
            );
        }
        let handed_over = CancellationToken::new();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let admin = admin::serve(listener, hosts, pages, handed_over.clone().cancelled_owned());
        // No file is reloaded at SIGHUP: the token and the CA are read whenever they are needed.
        let (reload, _ignored) = mpsc::channel();
        tokio::select! {
            ended = tokio::spawn(admin) => ended?.context("the admin endpoint ended")?,
            () = self.shutdown.run(signals, &reload, std::future::pending(), || {}) => {}
        }
        self.shutdown.leaving.cancel();
        self.shutdown.stop.cancel();
        if self.share_port {
            handed_over.cancel();
        }
        // On another thread, so that this one handles a second signal meanwhile.
        let join = move || workers.into_iter().all(|worker| worker.join().unwrap_or(false));
        let joined = tokio::task::spawn_blocking(join).await?;
        anyhow::ensure!(joined, "a worker failed; see the log for the reason");
        Ok(())
    }
}
