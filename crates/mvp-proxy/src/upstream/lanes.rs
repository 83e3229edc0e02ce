//! Which upstream connection a request travels on. Entry item: [`Lanes::pool`].
//!
//! Callers share connections, because that is what makes a gateway cheap. What travels on a shared
//! connection is harmless to others; what is not harmless has a lane of its own:
//!
//! | lane | connections | for |
//! | --- | --- | --- |
//! | short | HTTP/2, shared | requests that end soon |
//! | watch | HTTP/2, shared, few streams each | streams that last: their load must not stall others |
//! | anonymous | HTTP/1.1, a small number; others for requests with a body | callers without credentials: kube-apiserver ends an HTTP/2 connection after each |
//! | exclusive | those of one client connection | tokens that no server has accepted yet; streams whose bytes a backend writes; reads with a body; large heads |
//! | upgrade | HTTP/1.1, one request each | WebSocket and SPDY |
//!
//! A peer's or front proxy's connection carries many users; what would be exclusive there has an
//! HTTP/1.1 connection for each request.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use http::Extensions;
use mvp_core::member::MemberKind;
use mvp_net::ConnectionInfo;

use super::client::Client;
use super::connect::Endpoint;
use super::pool::{Http1Pool, Http2Pool, MAX_STREAMS, Pool};
use super::pulse::Pulses;
use super::target::{OutboundTls, ReloadableOutbound, Target};
use super::tokens::TokenHash;
use super::tunnel::SingleUse;
use crate::door::LargeHead;
use crate::error::{SendError, Stage};
use crate::identity::Identity;
use crate::metrics::Isolation;

/// Watches on one connection. kube-apiserver writes all streams of a connection in turn, and ends
/// watches that cannot keep up (docs/decisions/0011).
const WATCHES: usize = 16;
/// Connections of a worker for callers without credentials, and for those of them who send a body: a
/// body can take any time, and must not keep the others from health checks.
const ANONYMOUS: usize = 32;
const ANONYMOUS_UPLOADS: usize = 8;
/// HTTP/1.1 connections that serve one client connection alone: for large heads of callers who are
/// known, and for all else.
const LARGE_HEADS: usize = 8;
const EXCLUSIVE: usize = 1;
/// The same for users behind the connections of peers and front proxies: so many for each of
/// [`BUCKETS`] shares, so that one user cannot take them all.
const EXCLUSIVE_OF_PEERS: usize = 250;
const BUCKETS: u64 = 16;

/// Left in the extensions of a request by the data path, where it is not a short one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// A watch.
    Watch,
    /// A backend or an extension server writes the response, and can write anything.
    Relayed,
}

/// On what kind of connection a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Credential {
    /// With the proxy client certificate.
    Vouched,
    /// With none: the request carries a token.
    Token,
    /// With none: the request carries nothing either.
    Anonymous,
}

impl Credential {
    /// Requests between two gateways use the certificate, so that a peer is recognised whoever
    /// its client is. A bare server must see no certificate beside a token, or it would doubt it.
    pub(super) fn of(identity: &Identity, kind: MemberKind) -> Credential {
        match identity {
            _ if kind == MemberKind::Mvp || identity.needs_certificate() => Credential::Vouched,
            Identity::Token => Credential::Token,
            _ => Credential::Anonymous,
        }
    }
}

/// The share of the connections of peers that a user belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Bucket(u64);

impl Bucket {
    pub(super) fn of(identity: &Identity, token: Option<TokenHash>) -> Bucket {
        let hash = match (identity, token) {
            (_, Some(token)) => token.bits(),
            (Identity::User(user), None) => {
                let mut hasher = DefaultHasher::new();
                user.name.hash(&mut hasher);
                hasher.finish()
            }
            _ => 0,
        };
        Bucket(hash % BUCKETS)
    }
}

/// What decides about the lane of a request, beside its extensions.
pub(super) struct Traffic<'a> {
    pub(super) credential: Credential,
    /// Whether its token, if it has one, was accepted before.
    pub(super) accepted: bool,
    pub(super) has_body: bool,
    pub(super) identity: &'a Identity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Short,
    Watch,
    Anonymous,
    AnonymousUpload,
    Upgrade,
    Large,
    Exclusive(Protocol),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Lane {
    /// The lane of a request with these extensions.
    pub(super) fn of(extensions: &Extensions, traffic: &Traffic<'_>) -> Lane {
        let lasting = extensions.get::<Lasting>();
        // kube-apiserver also ends the connections of users that a front proxy calls anonymous.
        if traffic.credential == Credential::Anonymous || traffic.identity.is_unauthenticated() {
            return if traffic.has_body { Lane::AnonymousUpload } else { Lane::Anonymous };
        }
        let large = extensions.get::<LargeHead>().is_some();
        match (traffic.credential, lasting) {
            (Credential::Token, _) if !traffic.accepted && large => {
                Lane::Exclusive(Protocol::Http1)
            }
            (Credential::Token, _) if !traffic.accepted => Lane::exclusive(extensions),
            _ if large => Lane::Large,
            (_, Some(Lasting::Relayed)) => Lane::exclusive(extensions),
            (_, Some(Lasting::Watch)) => Lane::Watch,
            (_, None) => Lane::Short,
        }
    }

    /// Over HTTP/1.1 one connection carries one request; so it does towards the server.
    fn exclusive(extensions: &Extensions) -> Lane {
        let http2 = owner(extensions).is_some_and(ConnectionInfo::http2);
        Lane::Exclusive(if http2 { Protocol::Http2 } else { Protocol::Http1 })
    }
}

/// The client connection that can have upstream connections of its own.
pub(super) fn owner(extensions: &Extensions) -> Option<&ConnectionInfo> {
    extensions.get::<ConnectionInfo>().filter(|connection| !connection.judgement().front_proxy)
}

/// Connections to servers, by lane.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    shared: Mutex<HashMap<PoolKey, Kept>>,
    pulses: Pulses,
    counts: Isolation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    address: Arc<str>,
    local: bool,
    credential: Credential,
    lane: Lane,
    bucket: Bucket,
}

/// A pool, and what its connections are made with.
#[derive(Debug)]
struct Kept {
    pool: Arc<Pool>,
    tls: Arc<OutboundTls>,
}

/// A pool that serves one client connection alone.
#[derive(Debug)]
pub(crate) struct Exclusive(PoolKey, Kept);

/// A token was accepted: its next request shares a connection, and the one that it had alone ends
/// with the requests that are on it.
pub(super) fn release_tokens(client: &Client) {
    let mut own = client.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
    own.retain(|Exclusive(key, _)| key.credential != Credential::Token);
}

impl Lanes {
    pub(super) fn with_pulses(self, pulses: Pulses) -> Lanes {
        Lanes { pulses, ..self }
    }

    pub(super) fn counted_by(self, counts: Isolation) -> Lanes {
        Lanes { counts, ..self }
    }

    /// A request found no connection.
    pub(super) fn overloaded(&self) {
        self.counts.overloaded.inc();
    }

    /// The connections for a request with these extensions.
    pub(super) fn pool(
        &self,
        target: &Target,
        credential: Credential,
        lane: Lane,
        outbound: &ReloadableOutbound,
        extensions: &Extensions,
        bucket: impl FnOnce() -> Bucket,
    ) -> Result<Arc<Pool>, SendError> {
        let address = Arc::clone(&target.address);
        let mut key =
            PoolKey { address, local: target.local, credential, lane, bucket: Bucket::default() };
        let current = outbound.load();
        let client = match lane {
            Lane::Exclusive(_) | Lane::Large => owner(extensions).and_then(Client::of),
            _ => None,
        };
        if let Some(client) = client {
            let mut own = client.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
            let known = own.iter().find(|Exclusive(known, _)| *known == key);
            if let Some(Exclusive(_, kept)) = known
                && Arc::ptr_eq(&kept.tls, &current)
            {
                return Ok(Arc::clone(&kept.pool));
            }
            let max = if lane == Lane::Large { LARGE_HEADS } else { EXCLUSIVE };
            let pool = Arc::new(self.open(target, &key, &current, max)?);
            let kept = Kept { pool: Arc::clone(&pool), tls: Arc::clone(&current) };
            own.retain(|Exclusive(other, _)| *other != key);
            own.push(Exclusive(key, kept));
            return Ok(pool);
        }
        if matches!(lane, Lane::Exclusive(_) | Lane::Large) {
            key.bucket = bucket();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = shared.get(&key)
            && Arc::ptr_eq(&kept.tls, &current)
        {
            return Ok(Arc::clone(&kept.pool));
        }
        let pool = Arc::new(self.open(target, &key, &current, EXCLUSIVE_OF_PEERS)?);
        shared.insert(key, Kept { pool: Arc::clone(&pool), tls: Arc::clone(&current) });
        Ok(pool)
    }

    fn open(
        &self,
        target: &Target,
        key: &PoolKey,
        current: &OutboundTls,
        exclusive: usize,
    ) -> Result<Pool, SendError> {
        let tls = match key.credential {
            Credential::Vouched => current.vouched.as_ref().ok_or_else(|| {
                SendError::new(&target.id, Stage::Identity, "there is no proxy client certificate")
            })?,
            Credential::Token | Credential::Anonymous => &current.plain,
        };
        let endpoint = |protocol: &[u8]| Endpoint {
            address: Arc::clone(&target.address),
            server_name: target.server_name.clone(),
            tls: tls.config(&[protocol]),
            beat: self.pulses.beat(&target.address),
        };
        let http1 = |max| Http1Pool::new(endpoint(b"http/1.1"), max);
        let http2 =
            |spread| Pool::Http2(Http2Pool::new(endpoint(b"h2"), spread, self.counts.clone()));
        Ok(match key.lane {
            Lane::Short | Lane::Exclusive(Protocol::Http2) => http2(MAX_STREAMS),
            Lane::Watch => http2(WATCHES),
            Lane::Anonymous => Pool::Http1(http1(ANONYMOUS).reading_ahead()),
            Lane::AnonymousUpload => Pool::Http1(http1(ANONYMOUS_UPLOADS).reading_ahead()),
            Lane::Exclusive(Protocol::Http1) | Lane::Large => Pool::Http1(http1(exclusive)),
            Lane::Upgrade => Pool::SingleUse(SingleUse(endpoint(b"http/1.1"))),
        })
    }

    /// Closes what is not wanted any more, and connections that rest for long.
    pub(super) fn prune(
        &self,
        local: &Arc<OutboundTls>,
        peers: &Arc<OutboundTls>,
        wanted: impl Fn(&str) -> bool,
    ) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|key, kept| {
            let current = if key.local { local } else { peers };
            Arc::ptr_eq(&kept.tls, current) && (key.local || wanted(&key.address))
        });
        for kept in shared.values() {
            kept.pool.prune();
        }
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<(String, bool)> {
        let shared = self.shared.lock().unwrap();
        let mut kept: Vec<(String, bool)> =
            shared.keys().map(|key| (key.address.to_string(), key.local)).collect();
        kept.sort();
        kept.dedup();
        kept
    }
}
