//! A gateway, assembled as `mvp serve` does. Entry item: [`Gateway`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use mvp_core::decide::LocalHealth;
use mvp_core::discovery::Part;
use mvp_core::member::MemberKind;
use mvp_net::Limits;
use mvp_proxy::control::{MemberRecord, SnapshotReader, StaticMembership};
use mvp_proxy::trace::Tracer;
use mvp_proxy::{LocalState, Member, Metrics, PeerLimits, RemoteHeaders};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

use crate::client::TestBody;
use crate::double::Double;
use crate::pki::pki;
use crate::record::Requests;
use crate::{soon, until};

pub struct Gateway {
    pub address: SocketAddr,
    /// The requests, recorded before the gateway handles them.
    pub requests: Requests,
    pub member: Member,
    pub reader: SnapshotReader,
    pub state: LocalState,
    pub metrics: Arc<Metrics>,
    stop: CancellationToken,
    _stop: DropGuard,
}

/// The configuration of a gateway. Members are fetched once, and then on demand.
pub struct Plan {
    listener: TcpListener,
    local: (Arc<str>, SocketAddr),
    members: Vec<MemberRecord>,
    headers: RemoteHeaders,
    limits: Limits,
    peer_limits: PeerLimits,
    watches: bool,
    alone: bool,
    callers: bool,
    tracer: Option<Tracer>,
}

impl Gateway {
    /// Beside this server.
    pub async fn beside(id: &str, local: &Double) -> Plan {
        Gateway::beside_address(id, local.address).await
    }

    /// Beside the server at this address.
    pub async fn beside_address(id: &str, local: SocketAddr) -> Plan {
        Plan {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            local: (id.into(), local),
            members: Vec::new(),
            headers: RemoteHeaders::default(),
            limits: Limits::default(),
            peer_limits: PeerLimits::default(),
            watches: true,
            alone: false,
            callers: true,
            tracer: None,
        }
    }

    /// Stops it after its open requests.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the local server has this health.
    pub async fn takes_local_for(&self, health: LocalHealth) {
        until(|| self.state.get() == health).await;
    }

    /// The value of a metric, by its name and labels.
    pub fn metric(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        self.metrics.encode(&mut text);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned)
    }

    /// Waits until it has the views of these members.
    pub async fn has_seen(&self, members: &[&str]) {
        let seen = |snapshot: &mvp_core::Snapshot| {
            members.iter().all(|id| {
                let member = snapshot.member_by_id(id);
                let has = |part| member.is_some_and(|member| member.view.part(part).is_some());
                Part::ALL.into_iter().all(has)
            })
        };
        soon(self.reader.wait_for(seen)).await;
    }
}

impl Plan {
    /// The address on which it will listen.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Adds a bare peer.
    pub fn bare(self, id: &str, address: SocketAddr) -> Plan {
        self.peer(id, address, MemberKind::Bare)
    }

    /// Adds a peer with a gateway.
    pub fn mvp(self, id: &str, address: SocketAddr) -> Plan {
        self.peer(id, address, MemberKind::Mvp)
    }

    pub fn peer(mut self, id: &str, address: SocketAddr, kind: MemberKind) -> Plan {
        let address = Some(address.to_string().into());
        self.members.push(MemberRecord { name: id.into(), address, kind, heard: None });
        self
    }

    /// Adds a peer without an address.
    pub fn nowhere(mut self, id: &str) -> Plan {
        let kind = MemberKind::Mvp;
        self.members.push(MemberRecord { name: id.into(), address: None, kind, heard: None });
        self
    }

    /// Sets the front proxy headers.
    pub fn headers(mut self, headers: RemoteHeaders) -> Plan {
        self.headers = headers;
        self
    }

    /// Sets the limits for clients.
    pub fn limits(mut self, limits: Limits) -> Plan {
        self.limits = limits;
        self
    }

    /// Sets the limits of requests in flight to one peer.
    pub fn peer_limits(mut self, limits: PeerLimits) -> Plan {
        self.peer_limits = limits;
        self
    }

    /// Turns off the health probe of the local server: only requests notice that it is down.
    pub fn unwatched(mut self) -> Plan {
        self.watches = false;
        self
    }

    /// Without peers: a plain reverse proxy.
    pub fn alone(mut self) -> Plan {
        self.alone = true;
        self
    }

    /// Traces requests.
    pub fn traced_by(mut self, tracer: Tracer) -> Plan {
        self.tracer = Some(tracer);
        self
    }

    /// Does not record callers.
    pub fn without_callers(mut self) -> Plan {
        self.callers = false;
        self
    }

    /// Starts it and waits for the views of all members.
    pub async fn start(self) -> Gateway {
        let ids: Vec<Arc<str>> = self.members.iter().map(|member| member.name.label()).collect();
        let local = Arc::clone(&self.local.0);
        let gateway = self.start_blind();
        let ids: Vec<&str> = ids.iter().map(|id| &**id).chain([&*local]).collect();
        gateway.has_seen(&ids).await;
        gateway.takes_local_for(LocalHealth::Ready).await;
        gateway
    }

    /// Starts it.
    pub fn start_blind(self) -> Gateway {
        let address = self.address();
        let (id, local) = self.local;
        let member = Member::builder(&id, pki().outbound())
            .server_at(&local.to_string())
            .remote_headers(self.headers)
            .record_callers(self.callers)
            .traced_by(self.tracer)
            .peer_limits(self.peer_limits)
            .refresh_interval(Duration::from_secs(3600));
        let member = if self.watches { member } else { member.without_probes() };
        let member = if self.alone { member.peer_tls(None) } else { member };
        let member = member.build();
        let stop = CancellationToken::new();
        let worker = member.start(StaticMembership::new(self.members), stop.clone());
        let service = member.authenticate().layer(worker.gateway());
        let requests = Requests::default();
        let service = requests.record(boxed(service));
        let tls = pki().server_tls();
        tokio::spawn(mvp_net::serve(self.listener, tls, self.limits, service, stop.clone()));
        let state = member.local_state().unwrap().clone();
        let (reader, metrics) = (member.reader().clone(), Arc::clone(member.metrics()));
        let _stop = stop.clone().drop_guard();
        Gateway { address, requests, member, reader, state, metrics, stop, _stop }
    }
}

/// The same service, with the body type of tests.
pub fn boxed<S, B>(
    service: S,
) -> impl Service<Request<B>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    S: Service<Request<B>, Response = Response<mvp_proxy::Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    service.map_response(|response: Response<mvp_proxy::Body>| response.map(BodyExt::boxed_unsync))
}
