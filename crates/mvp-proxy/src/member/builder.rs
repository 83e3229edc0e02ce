//! The settings of a member. Entry item: [`MemberBuilder`].

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mvp_core::discovery::Limits;
use mvp_core::member::MemberKind;
use mvp_net::ConnectionLimit;

use super::{Member, Server, Shared};
use crate::control::{self, Clock, ControlSettings, channel};
use crate::gateway::Instance;
use crate::identity::RemoteHeaders;
use crate::metrics::Metrics;
use crate::peers::{Health, PeerLimits};
use crate::probe::LocalState;
use crate::trace::Tracer;
use crate::upstream::{Egress, Network, ReloadableOutbound, Target, Upstream, server_name};

/// Builds a [`Member`].
#[derive(Debug)]
#[must_use]
pub struct MemberBuilder {
    address: Address,
    source: Option<IpAddr>,
    settings: ControlSettings,
    local_tls: ReloadableOutbound,
    peer_tls: Option<ReloadableOutbound>,
    headers: RemoteHeaders,
    log_local: bool,
    record_callers: bool,
    record_flow: bool,
    probed: bool,
    clients: ConnectionLimit,
    tracer: Option<Tracer>,
    egress: Egress,
    network: Network,
    peer_limits: Option<PeerLimits>,
}

#[derive(Debug)]
enum Address {
    InProcess,
    At(Arc<str>),
    Nowhere,
}

impl MemberBuilder {
    pub(super) fn new(id: &str, tls: ReloadableOutbound) -> MemberBuilder {
        MemberBuilder {
            address: Address::InProcess,
            source: None,
            settings: ControlSettings { local: Some(id.into()), ..ControlSettings::default() },
            peer_tls: Some(tls.clone()),
            local_tls: tls,
            headers: RemoteHeaders::default(),
            log_local: false,
            record_callers: false,
            record_flow: false,
            probed: true,
            clients: ConnectionLimit::default(),
            tracer: None,
            egress: Egress::default(),
            network: Network::default(),
            peer_limits: None,
        }
    }

    /// The API server listens at this address (`HOST:PORT`), as that of a gateway does.
    pub fn server_at(self, address: &str) -> MemberBuilder {
        MemberBuilder { address: Address::At(address.into()), ..self }
    }

    /// Connects to the server at [`server_at`](Self::server_at) from this address of the host.
    pub fn connecting_from(self, source: Option<IpAddr>) -> MemberBuilder {
        MemberBuilder { source, ..self }
    }

    /// There is no API server: the member balances the load of all others.
    pub fn without_server(mut self) -> MemberBuilder {
        self.settings.local = None;
        MemberBuilder { address: Address::Nowhere, ..self }
    }

    /// TLS towards peers, if it is not that towards the server. With `None` there are no peers, and
    /// every request goes to the server.
    pub fn peer_tls(self, tls: Option<ReloadableOutbound>) -> MemberBuilder {
        MemberBuilder { peer_tls: tls, ..self }
    }

    /// The headers that tell servers who the user is. The default is Kubernetes' own.
    pub fn remote_headers(self, headers: RemoteHeaders) -> MemberBuilder {
        MemberBuilder { headers, ..self }
    }

    /// How often each member is asked what it serves. The default is 1 s.
    pub fn refresh_interval(mut self, interval: Duration) -> MemberBuilder {
        self.settings.interval = interval;
        self
    }

    /// How often a second each member is asked at most because requests need it, besides
    /// [`refresh_interval`](Self::refresh_interval). The default is 20.
    pub fn refreshes_per_second(mut self, rate: u32) -> MemberBuilder {
        self.settings.wanted_interval = Duration::from_secs(1) / rate.max(1);
        self
    }

    /// The limits of the documents in which members say what they serve. A document over them is
    /// refused: the last known one stays in use.
    pub fn document_limits(mut self, limits: Limits) -> MemberBuilder {
        self.settings.documents = limits;
        self
    }

    /// How long a member that left is remembered. The default is 10 minutes.
    pub fn forget_after(mut self, time: Duration) -> MemberBuilder {
        self.settings.forget_after = time;
        self
    }

    /// Logs requests that the local server answers, too.
    pub fn log_local_requests(self, log_local: bool) -> MemberBuilder {
        MemberBuilder { log_local, ..self }
    }

    /// Records who called which resource in the last hour ([`Metrics::callers`]).
    pub fn record_callers(self, record_callers: bool) -> MemberBuilder {
        MemberBuilder { record_callers, ..self }
    }

    /// Records which member answers requests for which API ([`Metrics::flow`]).
    pub fn record_flow(self, record_flow: bool) -> MemberBuilder {
        MemberBuilder { record_flow, ..self }
    }

    /// Does not probe the health of servers. The server at [`server_at`](Self::server_at) counts as
    /// ready until a request fails.
    pub fn without_probes(self) -> MemberBuilder {
        MemberBuilder { probed: false, ..self }
    }

    /// The client connections of this process. If no connection to the server can be opened for want of
    /// descriptors, memory or ports, there is no room for new clients either
    /// ([`ConnectionLimit::has_room`]).
    pub fn client_connections(self, clients: ConnectionLimit) -> MemberBuilder {
        MemberBuilder { clients, ..self }
    }

    /// Traces requests. The default is none, which costs a request nothing.
    pub fn traced_by(self, tracer: Option<Tracer>) -> MemberBuilder {
        MemberBuilder { tracer, ..self }
    }

    /// The proxies on the way to peers; keep a clone to replace them later. The default is none.
    pub fn egress(self, egress: Egress) -> MemberBuilder {
        MemberBuilder { egress, ..self }
    }

    /// A simulated network in place of TCP.
    #[cfg(test)]
    pub(crate) fn over(self, network: impl Into<Network>) -> MemberBuilder {
        MemberBuilder { network: network.into(), ..self }
    }

    /// The limits of requests in flight to one member. The default is that of [`PeerLimits`]; for a
    /// member [without a server](Self::without_server) it is none, because every request of its
    /// clients goes to members, which have queues of their own.
    pub fn peer_limits(self, limits: PeerLimits) -> MemberBuilder {
        MemberBuilder { peer_limits: Some(limits), ..self }
    }

    /// The member.
    pub fn build(self) -> Member {
        let MemberBuilder {
            address,
            source,
            mut settings,
            local_tls,
            peer_tls,
            headers,
            log_local,
            record_callers,
            record_flow,
            probed,
            clients,
            tracer,
            egress,
            network,
            peer_limits,
        } = self;
        let id = settings.local.clone();
        settings.instance = Some(Instance::new(id.as_deref().unwrap_or_default()));
        let clock = Clock::start();
        let first = control::first_snapshot(&settings, clock);
        let (writer, reader) = channel(clock, first, settings.documents);
        let metrics = Metrics::new(log_local);
        let metrics = if record_callers { metrics.with_callers() } else { metrics };
        let metrics = Arc::new(if record_flow { metrics.with_flow() } else { metrics });
        let has_server = settings.local.is_some();
        let usual = if has_server { PeerLimits::default() } else { PeerLimits::NONE };
        let peer_limits = peer_limits.unwrap_or(usual);
        let server = match (address, id) {
            (Address::At(address), Some(id)) => {
                let (kind, server_name) = (MemberKind::Bare, server_name());
                let target = Target { id, address, server_name, kind, local: true, source };
                let state = LocalState::new(Arc::clone(&metrics));
                let state = if probed { state.unseen() } else { state };
                Server::Behind { target: Arc::new(target), state }
            }
            (Address::InProcess, Some(_)) => Server::InProcess,
            _ => Server::Nowhere,
        };
        Member(Arc::new(Shared {
            server,
            settings,
            local_tls,
            peer_tls,
            screen: headers.into(),
            probed,
            upstream: Upstream::beside(clients).through(egress).over(network),
            health: Health::new(clock, Arc::clone(&metrics), peer_limits),
            metrics,
            tracer,
            reader,
            writer: Mutex::new(Some(writer)),
        }))
    }
}
