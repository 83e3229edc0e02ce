//! The membership sources of the configuration, started and combined. Entry item: [`start`].

mod cache;
mod counted;
mod witness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use mvp_membership::etcd::{self, Etcd, Tls, Trouble};
use mvp_membership::leases::{self, Announcement, Board, OwnLease};
use mvp_membership::{Claims, Combined, Handle, Own, Source, endpoints};
use mvp_proxy::control::SnapshotReader;
use mvp_proxy::unique;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admin::Check;
use crate::config::balance::is_own_address;
use crate::config::{MembershipSource, ServeConfig, ServerUrl};
use crate::supervise::Supervisor;

pub(crate) use cache::{CachePath, MembersCache};
pub(crate) use counted::CountedReads;
pub(crate) use witness::{Seed, Witness};

/// The time limit for withdrawing each announcement at shutdown.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(3);

/// This gateway as a member, and the sources in use.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// The ID of the local server. `None` for a load balancer.
    id: Option<Arc<str>>,
    /// The address to announce, if any.
    advertise: Option<SocketAddr>,
    own: Own,
    sources: Vec<MembershipSource>,
    etcd: Option<Etcd>,
    /// The address of a first server, to find the others.
    seed: Option<Arc<str>>,
    /// How EndpointSlices are read.
    endpoints: endpoints::Options,
    /// Where their members are kept.
    cache: Option<MembersCache>,
}

impl Standing {
    /// `listen` is the address of the listener, with its actual port.
    pub(crate) fn new(config: &ServeConfig, listen: SocketAddr, etcd: Tls) -> Standing {
        let id: Option<Arc<str>> = config.local.as_ref().map(|local| local.id.as_str().into());
        let advertise = config.advertise.map(|mut address| {
            if address.port() == 0 {
                address.set_port(listen.port());
            }
            address
        });
        let mut addresses = vec![listen.to_string().into()];
        addresses.extend(config.local.iter().map(|local| local.url.authority().into()));
        addresses.extend(advertise.map(|address| address.to_string().into()));
        let own = Own { id: id.clone(), addresses, interval: config.refresh_interval };
        let etcd = config.peers.etcd.as_ref().map(|config| config.etcd(etcd));
        let seed = config.peers.seed.as_ref().map(|seed| seed.authority().into());
        let sources = config.peers.membership.clone();
        let uses_endpoints = sources.contains(&MembershipSource::Endpoints);
        let cache = uses_endpoints.then(|| MembersCache::open(&config.peers.cache)).flatten();
        let endpoints = endpoints_options(config, listen, cache.as_ref());
        Standing { id, advertise, own, sources, etcd, seed, endpoints, cache }
    }

    /// The members that are known from disk, for operators.
    pub(crate) fn last_known(&self) -> Option<String> {
        self.cache.as_ref().map(|_| self.endpoints.last_known.join(","))
    }

    /// The address of a first server, if no server is configured.
    pub(crate) fn seed(&self) -> Option<&Arc<str>> {
        self.seed.as_ref()
    }

    /// The address to announce.
    pub(crate) fn advertise(&self) -> Option<SocketAddr> {
        self.advertise
    }

    /// The names of the sources, for operators.
    pub(crate) fn described(&self) -> String {
        let names: Vec<&str> = self.sources.iter().map(|source| source.as_str()).collect();
        names.join(",")
    }

    fn uses(&self, source: MembershipSource) -> bool {
        self.sources.contains(&source)
    }

    /// The announcement for a source, if that source is in use.
    fn announcement(&self, source: MembershipSource) -> Option<Announcement> {
        let address = self.advertise.filter(|_| self.uses(source))?;
        Some(Announcement { id: self.id.as_ref()?.to_string(), address, instance: unique() })
    }
}

/// How EndpointSlices are read. Loopback addresses count if all servers are on this host.
fn endpoints_options(
    config: &ServeConfig,
    listen: SocketAddr,
    cache: Option<&MembersCache>,
) -> endpoints::Options {
    let is_here = |url: &ServerUrl| url.ip().is_some_and(|ip| ip.is_loopback());
    let servers = &config.peers.servers;
    let own = |address| is_own_address(address, listen);
    endpoints::Options {
        last_known: cache.map(|cache| cache.read(&own)).unwrap_or_default(),
        optional: config.peers.endpoints_optional,
        one_host: !servers.is_empty() && servers.iter().all(is_here),
    }
}

/// Starts the sources. `written` has the members of flags and the peers file, `local` is the local
/// server, and `witness` serves EndpointSlices.
pub(crate) fn start(
    standing: &Standing,
    written: watch::Receiver<Claims>,
    local: CountedReads,
    witness: Witness,
    reader: &SnapshotReader,
    leaving: &CancellationToken,
    supervisor: &Supervisor,
) -> (Combined, Members) {
    let mut starting = Starting {
        sources: vec![Source { name: "--peer or --peers-file", claims: written }],
        bare: Vec::new(),
        announced: Vec::new(),
        troubles: Vec::new(),
        keepers: Vec::new(),
        reader,
        leaving,
        supervisor,
    };
    let by_etcd = standing.announcement(MembershipSource::Etcd);
    if let (Some(announcement), Some(etcd)) = (by_etcd, standing.etcd.clone()) {
        starting.etcd(etcd, announcement);
    }
    if let Some(announcement) = standing.announcement(MembershipSource::Leases) {
        starting.leases(local, announcement);
    }
    if standing.uses(MembershipSource::Endpoints) {
        starting.endpoints(witness, standing);
    }
    let Starting { mut sources, mut bare, announced, troubles, keepers, .. } = starting;
    sources.append(&mut bare);
    let combined = Combined::new(standing.own.clone(), reader.clock(), sources);
    let checks = Checks { handle: combined.handle(), announced, troubles };
    (combined, Members { checks, keepers })
}

/// Sources that are being started. A task that panics is restarted.
struct Starting<'a> {
    sources: Vec<Source>,
    /// Sources of servers. Sources of gateways take precedence, because a gateway stands for its
    /// server.
    bare: Vec<Source>,
    announced: Vec<watch::Receiver<Option<String>>>,
    troubles: Vec<watch::Receiver<Trouble>>,
    keepers: Vec<JoinHandle<()>>,
    reader: &'a SnapshotReader,
    leaving: &'a CancellationToken,
    supervisor: &'a Supervisor,
}

impl Starting<'_> {
    fn spawn<F, T>(&self, task: &'static str, start: F) -> JoinHandle<()>
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.supervisor.clone().run(task, start))
    }

    fn etcd(&mut self, etcd: Etcd, announcement: Announcement) {
        let ((gateways, source), (servers, server)) = (Source::new("etcd"), Source::new("etcd"));
        self.sources.push(source);
        self.bare.push(server);
        let (clock, one_host) =
            (self.reader.clock(), announcement.address.ip().to_canonical().is_loopback());
        let (reading, read) = watch::channel(Trouble::default());
        let asked = etcd.clone();
        self.spawn("etcd-members", move || {
            let (gateways, servers) = (gateways.clone(), servers.clone());
            etcd::read(asked.clone(), clock, one_host, gateways, servers, reading.clone())
        });
        let (keeping, kept) = watch::channel(Trouble::default());
        self.troubles.extend([read, kept]);
        let (reader, leaving) = (self.reader.clone(), self.leaving.clone());
        self.keepers.push(self.spawn("etcd-announcement", move || {
            let (reader, leaving) = (reader.clone(), leaving.clone());
            let (etcd, announcement) = (etcd.clone(), announcement.clone());
            let keeping = keeping.clone();
            async move {
                if is_served(&reader, &leaving).await {
                    etcd::announce(etcd, announcement, keeping, leaving).await;
                }
            }
        }));
    }

    fn leases(&mut self, local: CountedReads, announcement: Announcement) {
        let (clock, one_host) =
            (self.reader.clock(), announcement.address.ip().to_canonical().is_loopback());
        let (own, board) = (Arc::new(OwnLease::new(announcement)), Board::default());
        let ((claims, source), (identities, identity)) =
            (Source::new("leases"), Source::new("identity leases"));
        self.sources.push(source);
        self.bare.push(identity);
        let (asked, known, seen) = (local.clone(), Arc::clone(&own), board.clone());
        self.spawn("lease-members", move || {
            let (own, board) = (Arc::clone(&known), seen.clone());
            leases::read(asked.clone(), clock, own, board, claims.clone())
        });
        let asked = local.clone();
        self.spawn("identity-leases", move || {
            leases::read_identities(asked.clone(), clock, one_host, identities.clone())
        });
        let (problems, problem) = watch::channel(None);
        self.announced.push(problem);
        let (reader, leaving) = (self.reader.clone(), self.leaving.clone());
        self.keepers.push(self.spawn("own-lease", move || {
            let (local, reader, leaving) = (local.clone(), reader.clone(), leaving.clone());
            let (own, board, problems) = (Arc::clone(&own), board.clone(), problems.clone());
            async move {
                if is_served(&reader, &leaving).await {
                    let version = move || Some(reader.load().local()?.view.release?.to_string());
                    leases::keep(local, clock, own, board, version, problems, leaving).await;
                }
            }
        }));
    }

    fn endpoints(&mut self, witness: Witness, standing: &Standing) {
        let (claims, source) = Source::new("endpoints");
        if let Some(cache) = standing.cache.clone() {
            let (found, known) = (source.claims.clone(), standing.endpoints.last_known.clone());
            self.spawn("members-cache", move || cache.clone().follow(found.clone(), known.clone()));
        }
        self.bare.push(source);
        if let Witness::Members(_, Some(seed)) = &witness {
            self.troubles.push(seed.trouble());
        }
        let clock = self.reader.clock();
        let options = standing.endpoints.clone();
        self.spawn("endpoints", move || {
            endpoints::read(witness.clone(), clock, options.clone(), claims.clone())
        });
    }
}

/// Waits until the view of the local server is known: peers that find us need it. False if the
/// process shuts down first.
async fn is_served(reader: &SnapshotReader, leaving: &CancellationToken) -> bool {
    let seen = |snapshot: &Snapshot| {
        let seen = |part| snapshot.local().is_some_and(|local| local.view.part(part).is_some());
        Part::ALL.into_iter().all(seen)
    };
    tokio::select! {
        _ = reader.wait_for(seen) => true,
        () = leaving.cancelled() => false,
    }
}

/// A handle on the running sources.
pub(crate) struct Members {
    checks: Checks,
    keepers: Vec<JoinHandle<()>>,
}

impl Members {
    /// The readiness checks of the sources.
    pub(crate) fn checks(&self) -> Checks {
        self.checks.clone()
    }

    /// The handle for forgetting members.
    pub(crate) fn handle(&self) -> Handle {
        self.checks.handle.clone()
    }

    /// Waits until the announcements are withdrawn, up to a time limit.
    pub(crate) async fn withdrawn(self) {
        for keeper in self.keepers {
            // An announcement that is not withdrawn in time expires by itself.
            let _ = timeout(WITHDRAW_TIMEOUT, keeper).await;
        }
    }
}

/// The readiness checks of the sources.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    handle: Handle,
    /// The problem of our own Lease.
    announced: Vec<watch::Receiver<Option<String>>>,
    /// The failures of etcd and of the first server.
    troubles: Vec<watch::Receiver<Trouble>>,
}

impl Checks {
    /// One check for all sources except flags and the peers file, which cannot fail. A transient
    /// failure is a remark only: the known members stay, and otherwise all gateways would become
    /// unready at once.
    pub(crate) fn get(&self) -> Option<Check> {
        let read = self.handle.problems();
        if read.len() < 2 {
            return None;
        }
        let troubles: Vec<Trouble> = self.troubles.iter().map(|one| one.borrow().clone()).collect();
        let remark = troubles.iter().find_map(|trouble| trouble.lasting.clone());
        let unusable = troubles.into_iter().find_map(|trouble| trouble.problem);
        let unread = self.handle.unread().map(|name| {
            let why = remark.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            format!("source {name} was not read yet{why}")
        });
        let announced = self.announced.iter().find_map(|problem| problem.borrow().clone());
        let problem = read.into_iter().find_map(|(_, problem)| problem);
        let problem = problem.or(unusable).or(announced).or(unread);
        Some(Check { name: "membership".to_owned(), problem, remark })
    }
}
