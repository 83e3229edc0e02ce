//! Forwarding: sends a request to a server under the caller's identity. Entry item:
//! [`Forwarder::send`].

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as _;
use mvp_net::ConnectionLimit;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::client::{Blame, Client};
use super::connect_error::ConnectError;
use super::egress::Egress;
use super::head::{Told, prepare};
use super::inspect::inspect_unavailable;
use super::lanes::{
    Bucket, Credential, Lane, Lanes, Traffic, is_health_check, owner, release_tokens,
};
use super::network::Network;
use super::pool::PoolError;
use super::pulse::Pulses;
use super::target::{ReloadableOutbound, Target};
use super::tokens::{AcceptedTokens, TokenHash};
use super::tunnel::{Tunnels, Upgrade};
use crate::body::Body;
use crate::envelope::{Aborted, Envelope, Lasting};
use crate::error::{SendError, Stage};
use crate::headers;
use crate::identity::{Identity, Screen, bearer};
use crate::metrics::Metrics;

/// How long a request with an unknown token waits for a permit.
const UNKNOWN_TOKEN_WAIT: Duration = Duration::from_secs(1);

/// What the forwarders of a process learn about servers and tokens. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upstream {
    pulses: Pulses,
    tokens: AcceptedTokens,
    clients: ConnectionLimit,
    egress: Egress,
    network: Network,
}

impl Upstream {
    /// Notes with the client connections what these forwarders are short of.
    pub(crate) fn beside(clients: ConnectionLimit) -> Upstream {
        Upstream { clients, ..Upstream::default() }
    }

    /// The same, with proxies on the way to peers.
    pub(crate) fn through(self, egress: Egress) -> Upstream {
        Upstream { egress, ..self }
    }

    /// The same, over this network.
    pub(crate) fn over(self, network: Network) -> Upstream {
        Upstream { network, ..self }
    }
}

/// Sends requests to servers. It owns its connections; each worker has one forwarder.
#[derive(Debug)]
pub struct Forwarder {
    local: ReloadableOutbound,
    peers: ReloadableOutbound,
    /// The headers that name users; a caller must not send them.
    screen: Screen,
    lanes: Lanes,
    tokens: AcceptedTokens,
    tunnels: Tunnels,
    clients: ConnectionLimit,
}

impl Forwarder {
    /// A forwarder that connects to the local server and to peers with this TLS configuration.
    pub(crate) fn new(
        local: impl Into<ReloadableOutbound>,
        peers: impl Into<ReloadableOutbound>,
    ) -> Forwarder {
        Forwarder {
            local: local.into(),
            peers: peers.into(),
            screen: Screen::default(),
            lanes: Lanes::default(),
            tokens: AcceptedTokens::default(),
            tunnels: Tunnels::default(),
            clients: ConnectionLimit::default(),
        }
    }

    /// Shares what it learns about servers and tokens with other forwarders of the process.
    #[must_use]
    pub(crate) fn sharing(self, upstream: &Upstream) -> Forwarder {
        let Upstream { pulses, tokens, clients, egress, network } = upstream.clone();
        Forwarder { lanes: self.lanes.with(pulses, egress, network), tokens, clients, ..self }
    }

    /// Counts its tunnels, and the measures that keep callers apart.
    #[must_use]
    pub(crate) fn with_metrics(self, metrics: &Metrics) -> Forwarder {
        let lanes = self.lanes.counted_by(metrics.isolation());
        Forwarder { tunnels: Tunnels::counted_by(metrics.tunnels()), lanes, ..self }
    }

    /// Names users in the headers of this screen, and removes those of callers. Servers must be
    /// configured to read them.
    #[must_use]
    pub(crate) fn with_screen(self, screen: Screen) -> Forwarder {
        Forwarder { screen, ..self }
    }

    /// Sends a request to a server and returns its response.
    ///
    /// The request must have the extension [`Identity`]. The extensions `Origin` and
    /// [`ConnectionInfo`](mvp_net::ConnectionInfo) are used if present. With hyper's `OnUpgrade`,
    /// the client's connection becomes a tunnel if the server agrees to an upgrade. Headers that
    /// only a proxy may send are removed.
    ///
    /// # Errors
    /// If the server sends no response. [`SendError::stage`] tells how far the request came.
    pub async fn send(
        &self,
        target: &Target,
        request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        self.forward(target, request.into()).await
    }

    /// Sends a request to a server and returns its response.
    pub(crate) async fn forward(
        &self,
        target: &Target,
        envelope: Envelope<'_>,
    ) -> Result<Response<Body>, SendError> {
        let Envelope { mut request, extensions, lasting, insists, aborted, trace } = envelope;
        let extensions = &*extensions;
        let Some(identity) = extensions.get::<Identity>().cloned() else {
            return Err(SendError::new(&target.id, Stage::Identity, "the request has no identity"));
        };
        let credential = Credential::of(&identity, target.kind);
        let token = self.token(&identity, &request);
        let accepted = token.is_some_and(|token| self.tokens.contains(token));
        // Servers answer preflight requests (CORS) without looking at the token.
        let preflight = request.method() == http::Method::OPTIONS;
        let upgrade = Upgrade::of(request.headers(), extensions);
        let has_body = !request.body().is_end_stream();
        let lane = match &upgrade {
            Some(_) => Lane::Upgrade,
            None => {
                let is_health_check = is_health_check(request.method(), request.uri().path());
                let identity = &identity;
                let traffic =
                    Traffic { credential, accepted, has_body, is_health_check, identity, lasting };
                Lane::of(extensions, &traffic)
            }
        };
        let relayed = lasting == Some(Lasting::Relayed);
        let blame = Blame::of(extensions);
        // Unknown tokens of many callers share the connections to a peer, so each caller has a
        // limit.
        let _permit = match (token, credential) {
            (Some(_), Credential::Vouched) if !accepted => {
                let permit = Box::pin(unknown_token_permit(target, extensions)).await;
                permit.inspect_err(|_| self.lanes.overloaded())?
            }
            _ => None,
        };
        let owner =
            matches!(lane, Lane::Exclusive(_)).then(|| owner(extensions).cloned()).flatten();
        let outbound = if target.local { &self.local } else { &self.peers };
        let bucket = || Bucket::of(&identity, token);
        let pool = self.lanes.pool(target, credential, lane, outbound, extensions, bucket)?;
        let told = Told { extensions, insists, traced: trace.is_some() };
        prepare(&mut request, &told, target, &identity, &self.screen, pool.is_http2());
        if let Some(upgrade) = &upgrade {
            upgrade.write(request.headers_mut());
        }

        let sent = pool.send(request, blame).await;
        if let (Some(token), Ok(response), false) = (token, &sent, preflight)
            && self.tokens.note(token, response.status())
            && let Some(client) = owner.as_ref().and_then(Client::of)
        {
            release_tokens(client);
        }
        match sent {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.open_tunnel(target, upgrade, response)
            }
            Ok(mut response) => {
                headers::remove_hop_by_hop(response.headers_mut());
                // A backend can forge the response of a server that is shutting down.
                if response.status() != StatusCode::SERVICE_UNAVAILABLE || relayed {
                    return Ok(response);
                }
                // Boxed: it is rare, and would make the future of every request larger.
                let (response, shutting_down) = Box::pin(inspect_unavailable(response)).await;
                if shutting_down {
                    let cause = "the server is shutting down";
                    return Err(SendError::new(&target.id, Stage::NotSent, cause));
                }
                Ok(response)
            }
            Err(error) => Err(self.send_error(target, &error, aborted.as_ref())),
        }
    }

    /// The hash of the bearer token, for a caller whom only the token identifies.
    fn token(&self, identity: &Identity, request: &Request<Body>) -> Option<TokenHash> {
        let Identity::Token = identity else { return None };
        let token = request.headers().get(AUTHORIZATION).and_then(bearer)?;
        Some(self.tokens.hash(token))
    }

    /// The hash of the bearer token in these headers, if a server has accepted it.
    pub(crate) fn accepted_token(&self, headers: &HeaderMap) -> Option<u64> {
        let token = self.tokens.hash(headers.get(AUTHORIZATION).and_then(bearer)?);
        self.tokens.contains(token).then(|| token.bits())
    }

    /// Joins the client's connection to the server's after a 101.
    fn open_tunnel(
        &self,
        target: &Target,
        upgrade: Option<Upgrade>,
        response: Response<Body>,
    ) -> Result<Response<Body>, SendError> {
        let opened = upgrade.and_then(|upgrade| self.tunnels.open(upgrade, response));
        opened.ok_or_else(|| {
            let cause = "the server switched to a protocol that was not requested";
            SendError::new(&target.id, Stage::Exchange, cause)
        })
    }

    /// Why a request got no response: the client may be at fault, or this process.
    fn send_error(
        &self,
        target: &Target,
        error: &PoolError,
        aborted: Option<&Aborted>,
    ) -> SendError {
        if aborted.is_some_and(Aborted::get) {
            return SendError::new(&target.id, Stage::Client, "the client aborted its request");
        }
        // Without a way to its server, a gateway cannot serve new clients either.
        if target.local && matches!(error, PoolError::Connect(ConnectError::Ours(_))) {
            self.clients.note_shortage();
        }
        let stage = stage(error);
        if stage == Stage::Overloaded {
            self.lanes.overloaded();
        }
        SendError::new(&target.id, stage, error.to_string())
    }

    /// Closes idle connections, connections to peers at addresses that are not `wanted`, and all
    /// connections that use a replaced TLS configuration: it may trust a CA that is now distrusted.
    /// Requests in flight complete. Connections that serve one client connection alone close with
    /// it, and get no new request after TLS was replaced.
    pub fn prune(&self, wanted: impl Fn(&str) -> bool) {
        self.lanes.prune(&self.local.current(), &self.peers.current(), wanted);
    }
}

/// A permit to send a request with an unknown token to a peer. Each client connection has a limited
/// number. The permit is returned when the response begins.
async fn unknown_token_permit(
    target: &Target,
    extensions: &http::Extensions,
) -> Result<Option<OwnedSemaphorePermit>, SendError> {
    let Some(client) = owner(extensions).and_then(Client::of) else { return Ok(None) };
    match timeout(UNKNOWN_TOKEN_WAIT, Arc::clone(&client.unknown_tokens).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(Some(permit)),
        Ok(Err(_)) | Err(_) => {
            let cause = "too many requests with tokens that no server has accepted yet; try again";
            Err(SendError::new(&target.id, Stage::Overloaded, cause))
        }
    }
}

/// How far a request without a response came.
fn stage(error: &PoolError) -> Stage {
    match error {
        PoolError::Connect(ConnectError::Server(_)) => Stage::Connect,
        PoolError::Connect(ConnectError::Busy) => Stage::Busy,
        PoolError::Connect(ConnectError::Ours(_)) | PoolError::Full(_) => Stage::Overloaded,
        // h2 refuses to send this head to anybody.
        PoolError::Unsent(Some(error)) if error.reason().is_none() && !error.is_io() => {
            Stage::Reset
        }
        PoolError::Exchange(_, Some(_)) | PoolError::Unsent(_) => Stage::NotSent,
        PoolError::Stream(error) => match reset(error) {
            Some(Reset::Unprocessed) => Stage::NotSent,
            Some(Reset::Stream) => Stage::Reset,
            None => Stage::Exchange,
        },
        PoolError::Exchange(_, None) | PoolError::Hang(_) => Stage::Exchange,
    }
}

/// How a stream ended before its response began.
enum Reset {
    /// The server guarantees that it processed nothing: it refused the stream, or sent a GOAWAY
    /// that names an earlier stream as the last one processed (h2 fails only later streams so).
    Unprocessed,
    /// This stream alone was reset, because of its own request or response.
    Stream,
}

/// How the stream was reset; `None` if the whole connection failed.
fn reset(error: &h2::Error) -> Option<Reset> {
    let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
    match (error.is_remote(), error.is_go_away(), error.is_reset()) {
        (true, true, _) => Some(Reset::Unprocessed),
        (true, _, true) if refused => Some(Reset::Unprocessed),
        (_, _, true) => Some(Reset::Stream),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mvp_core::member::MemberKind;
    use testkit::certificates::Ca;

    use super::*;
    use crate::upstream::{OutboundTls, server_name};

    fn outbound() -> OutboundTls {
        OutboundTls::new(Ca::new("servers").pem().as_bytes(), None).unwrap()
    }

    #[tokio::test]
    async fn without_descriptors_or_ports_for_the_local_server_there_is_no_room_for_clients() {
        for local in [false, true] {
            let clients = ConnectionLimit::default();
            let upstream = Upstream::beside(clients.clone());
            let forwarder = Forwarder::new(outbound(), outbound()).sharing(&upstream);
            let target = Target {
                id: "a".into(),
                address: "127.0.0.1:1".into(),
                server_name: server_name(),
                kind: MemberKind::Bare,
                local,
                // Not an address of this host: the system refuses before the server is asked.
                source: Some(std::net::IpAddr::from([192, 0, 2, 1])),
            };
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Identity::Token);
            let error = forwarder.send(&target, request).await.unwrap_err();
            assert_eq!(error.stage, Stage::Overloaded, "{error}");
            assert_eq!(clients.has_room(), !local);
        }
    }

    #[test]
    fn pruning_closes_unwanted_addresses_and_replaced_tls() {
        let local = ReloadableOutbound::from(outbound());
        let forwarder = Forwarder::new(local.clone(), outbound());
        let target = |address: &str, local| Target {
            id: "a".into(),
            address: address.into(),
            server_name: server_name(),
            kind: MemberKind::Bare,
            local,
            source: None,
        };
        for (address, local) in [("one:1", true), ("one:1", false), ("two:2", false)] {
            for lane in [Lane::Upgrade, Lane::Short] {
                let outbound = if local { &forwarder.local } else { &forwarder.peers };
                let extensions = http::Extensions::new();
                let target = target(address, local);
                let lanes = &forwarder.lanes;
                let bucket = Bucket::default;
                let credential = Credential::Token;
                lanes.pool(&target, credential, lane, outbound, &extensions, bucket).unwrap();
            }
        }
        let open = || forwarder.lanes.addresses();
        let (one, local_one) = (("one:1".to_owned(), false), ("one:1".to_owned(), true));
        forwarder.prune(|_| true);
        assert_eq!(open().len(), 3);
        forwarder.prune(|address| address == "one:1");
        assert_eq!(open(), [one.clone(), local_one]);
        local.replace(outbound());
        forwarder.prune(|_| true);
        assert_eq!(open(), [one]);
        forwarder.peers.replace(outbound());
        forwarder.prune(|_| true);
        assert_eq!(open(), []);
    }
}
