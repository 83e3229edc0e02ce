//! Forwarding: a request goes to a server under the caller's identity, and its response comes back.
//! Entry item: [`Forwarder::send`].

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::client::{Blame, Client};
use super::connect_error::ConnectError;
use super::head::prepare;
use super::inspect::{Inspected, inspect_unavailable};
use super::lanes::{Bucket, Credential, Lane, Lanes, Lasting, Traffic, owner, release_tokens};
use super::pool::PoolError;
use super::pulse::Pulses;
use super::replay::Sender;
use super::target::{ReloadableOutbound, Target};
use super::tokens::AcceptedTokens;
use super::tunnel::{Tunnels, Upgrade};
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::headers;
use crate::identity::{Identity, RemoteHeaders, bearer};
use crate::metrics::Metrics;

/// How long a request with an unknown token waits for its turn.
const UNKNOWN_TOKEN_WAIT: Duration = Duration::from_secs(1);

/// What all forwarders of a process know together. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    pulses: Pulses,
    tokens: AcceptedTokens,
}

/// Sends requests to servers. Owns its connections: one for each worker.
#[derive(Debug)]
pub struct Forwarder {
    local: ReloadableOutbound,
    peers: ReloadableOutbound,
    headers: RemoteHeaders,
    lanes: Lanes,
    tokens: AcceptedTokens,
    tunnels: Tunnels,
}

impl Forwarder {
    /// Trusts servers so, the local one and peers.
    pub fn new(
        local: impl Into<ReloadableOutbound>,
        peers: impl Into<ReloadableOutbound>,
    ) -> Forwarder {
        Forwarder {
            local: local.into(),
            peers: peers.into(),
            headers: RemoteHeaders::default(),
            lanes: Lanes::default(),
            tokens: AcceptedTokens::default(),
            tunnels: Tunnels::default(),
        }
    }

    /// Shares what it learns about servers and tokens with the other forwarders of the process.
    #[must_use]
    pub fn sharing(self, upstream: &Upstream) -> Forwarder {
        let Upstream { pulses, tokens } = upstream.clone();
        Forwarder { lanes: self.lanes.with_pulses(pulses), tokens, ..self }
    }

    /// Counts its tunnels there, and what it does to keep callers apart.
    #[must_use]
    pub fn with_metrics(self, metrics: &Metrics) -> Forwarder {
        let lanes = self.lanes.counted_by(metrics.isolation());
        Forwarder { tunnels: Tunnels::counted_by(metrics.tunnels()), lanes, ..self }
    }

    /// Says who users are in these headers; servers must be set up to hear them.
    #[must_use]
    pub fn with_remote_headers(self, headers: RemoteHeaders) -> Forwarder {
        Forwarder { headers, ..self }
    }

    /// Sends a request. Identity, origin and connection are read from its extensions; so is the way
    /// to take the connection over, which is used if the server agrees to an upgrade.
    pub async fn send(
        &self,
        target: &Target,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let Some(identity) = request.extensions().get::<Identity>().cloned() else {
            return Err(SendError::new(&target.id, Stage::Identity, "the request has no identity"));
        };
        let credential = Credential::of(&identity, target.kind);
        let token = match identity {
            Identity::Token => request.headers().get(AUTHORIZATION).and_then(bearer),
            _ => None,
        };
        let token = token.map(|token| self.tokens.hash(token));
        let accepted = token.is_some_and(|token| self.tokens.contains(token));
        // Preflight requests (CORS) are answered before anybody looks at the token.
        let preflight = request.method() == http::Method::OPTIONS;
        let sender = request.extensions_mut().remove::<Sender>();
        let upgrade = Upgrade::take(&mut request);
        let has_body = !request.body().is_end_stream();
        let extensions = request.extensions();
        let lane = match &upgrade {
            Some(_) => Lane::Upgrade,
            None => {
                let traffic = Traffic { credential, accepted, has_body, identity: &identity };
                Lane::of(extensions, &traffic)
            }
        };
        let relayed = extensions.get::<Lasting>() == Some(&Lasting::Relayed);
        let blame = Blame::of(extensions);
        // Behind a peer, unknown tokens of many callers meet: each caller has a share of its own.
        let _share = match (token, credential) {
            (Some(_), Credential::Vouched) if !accepted => {
                let share = Box::pin(unknown_token(target, extensions)).await;
                share.inspect_err(|_| self.lanes.overloaded())?
            }
            _ => None,
        };
        let owner =
            matches!(lane, Lane::Exclusive(_)).then(|| owner(extensions).cloned()).flatten();
        let outbound = if target.local { &self.local } else { &self.peers };
        let bucket = || Bucket::of(&identity, token);
        let pool = self.lanes.pool(target, credential, lane, outbound, extensions, bucket)?;
        prepare(&mut request, target, &identity, &self.headers, pool.is_http2());
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
                let opened = upgrade.and_then(|upgrade| self.tunnels.open(upgrade, response));
                opened.ok_or_else(|| {
                    let cause = "it switched to a protocol that nobody asked for";
                    SendError::new(&target.id, Stage::Exchange, cause)
                })
            }
            Ok(mut response) => {
                headers::remove_hop_by_hop(response.headers_mut());
                // A backend can write the words of a server that is leaving.
                if response.status() != StatusCode::SERVICE_UNAVAILABLE || relayed {
                    return Ok(response);
                }
                // In a box: it is rare, and would make every exchange larger.
                let Inspected { response, is_it: leaving } =
                    Box::pin(inspect_unavailable(response)).await;
                if leaving {
                    return Err(SendError::new(&target.id, Stage::NotSent, "it is shutting down"));
                }
                Ok(response)
            }
            Err(_) if sender.is_some_and(|sender| sender.broke_off()) => {
                Err(SendError::new(&target.id, Stage::Client, "the client broke its request off"))
            }
            Err(error) => {
                let stage = stage(&error);
                if stage == Stage::Overloaded {
                    self.lanes.overloaded();
                }
                Err(SendError::new(&target.id, stage, error.to_string()))
            }
        }
    }

    /// Lets go of the connections to peers at addresses that are not wanted any more, and of all that
    /// were made with a TLS that is no longer in force: it may be out of force because somebody must
    /// not be trusted any more. Requests that are under way go on. Connections that serve one client
    /// connection alone end with it, and get no new request after a change of TLS.
    pub fn let_go(&self, wanted: impl Fn(&str) -> bool) {
        self.lanes.prune(&self.local.current(), &self.peers.current(), wanted);
    }
}

/// A share of the requests with unknown tokens that one client connection may have on their way to
/// peers, until their responses begin.
async fn unknown_token(
    target: &Target,
    extensions: &http::Extensions,
) -> Result<Option<OwnedSemaphorePermit>, SendError> {
    let Some(client) = owner(extensions).and_then(Client::of) else { return Ok(None) };
    match timeout(UNKNOWN_TOKEN_WAIT, Arc::clone(&client.unknown_tokens).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(Some(permit)),
        Ok(Err(_)) | Err(_) => {
            let cause = "too many requests with tokens that no server has accepted yet";
            Err(SendError::new(&target.id, Stage::Overloaded, cause))
        }
    }
}

/// How far a request came that got no response.
fn stage(error: &PoolError) -> Stage {
    match error {
        PoolError::Connect(ConnectError::Server(_)) => Stage::Connect,
        PoolError::Connect(ConnectError::Busy) => Stage::Busy,
        PoolError::Connect(ConnectError::Ours(_)) | PoolError::Full(_) => Stage::Overloaded,
        PoolError::Exchange(_, Some(_)) => Stage::NotSent,
        PoolError::Exchange(error, None) => match reset(error) {
            Some(Reset::Unprocessed) => Stage::NotSent,
            Some(Reset::Stream) => Stage::Reset,
            None => Stage::Exchange,
        },
        PoolError::Hang(_) => Stage::Exchange,
    }
}

/// How a stream ended before its response began.
enum Reset {
    /// The server promised that it did not look at the request: it refused the stream, or went away
    /// and named an earlier stream as the last that it looked at (h2 fails only later ones so).
    Unprocessed,
    /// This stream alone was reset, for whatever is in its request or response.
    Stream,
}

/// Nothing where the whole connection failed.
fn reset(error: &hyper::Error) -> Option<Reset> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return match (error.is_remote(), error.is_go_away(), error.is_reset()) {
                (true, true, _) => Some(Reset::Unprocessed),
                (true, _, true) if refused => Some(Reset::Unprocessed),
                (_, _, true) => Some(Reset::Stream),
                _ => None,
            };
        }
        source = error.source();
    }
    None
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

    #[test]
    fn connections_are_let_go_with_their_address_or_their_tls() {
        let local = ReloadableOutbound::from(outbound());
        let forwarder = Forwarder::new(local.clone(), outbound());
        let target = |address: &str, local| Target {
            id: "a".into(),
            address: address.into(),
            server_name: server_name(),
            kind: MemberKind::Bare,
            local,
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
        let kept = || forwarder.lanes.addresses();
        let (one, local_one) = (("one:1".to_owned(), false), ("one:1".to_owned(), true));
        forwarder.let_go(|_| true);
        assert_eq!(kept().len(), 3);
        forwarder.let_go(|address| address == "one:1");
        assert_eq!(kept(), [one.clone(), local_one]);
        local.replace(outbound());
        forwarder.let_go(|_| true);
        assert_eq!(kept(), [one]);
        forwarder.peers.replace(outbound());
        forwarder.let_go(|_| true);
        assert_eq!(kept(), []);
    }
}
