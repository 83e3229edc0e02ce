//! Lanes: which upstream connection a request uses. Entry item: [`Lanes::pool`].
//!
//! Callers share connections, which makes a gateway cheap. Requests that could harm others on a
//! shared connection have lanes of their own:
//!
//! | lane | connections | for |
//! | --- | --- | --- |
//! | short | HTTP/2, shared | requests that end soon |
//! | watch | HTTP/2, shared, few streams each | watches: their load must not stall other requests |
//! | anonymous | HTTP/1.1, a small number; others for requests with a body | callers without credentials: kube-apiserver closes an HTTP/2 connection after each |
//! | health check | HTTP/1.1, a few for clients on this host, and a few for all others | `/livez`, `/readyz` and `/healthz` without credentials: kubelet restarts a server whose checks fail |
//! | exclusive | those of one client connection | tokens that no server has accepted yet; responses that a backend writes; reads with a body; large heads |
//! | upgrade | HTTP/1.1, one request each | WebSocket and SPDY |
//!
//! Connections of peers and front proxies carry many users. Their exclusive requests each use an
//! HTTP/1.1 connection.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use http::{Extensions, Method};
use mvp_core::member::MemberKind;
use mvp_net::ConnectionInfo;

use super::client::Client;
use super::connect::Endpoint;
use super::egress::Egress;
use super::network::Network;
use super::pool::{BARE_FOR, BARE_WATCHES_FOR, Http1Pool, Http2Pool, MAX_STREAMS, Pool};
use super::pulse::Pulses;
use super::target::{OutboundTls, ReloadableOutbound, Target};
use super::tokens::TokenHash;
use super::tunnel::SingleUse;
use crate::door::LargeHead;
use crate::envelope::Lasting;
use crate::error::{SendError, Stage};
use crate::identity::Identity;
use crate::metrics::Isolation;

/// The number of watches on one connection. kube-apiserver writes the streams of a connection in
/// turn, and ends watches that are too slow (docs/decisions/0011).
const WATCHES: usize = 16;
/// The connections of a worker for callers without credentials. Those who send a body have their
/// own: a slow body must not block health checks.
const ANONYMOUS: usize = 32;
const ANONYMOUS_UPLOADS: usize = 8;
/// The connections of a worker for health checks without credentials, for clients on this host and
/// again for all others.
const HEALTH_CHECKS: usize = 16;
/// HTTP/1.1 connections that serve one client connection alone: for large heads of known callers,
/// and for all other requests.
const LARGE_HEADS: usize = 8;
const EXCLUSIVE: usize = 1;
/// The same for users behind peers and front proxies. Each of [`BUCKETS`] groups of users has this
/// many, so that one user cannot take them all.
const EXCLUSIVE_OF_PEERS: usize = 250;
const BUCKETS: u64 = 16;

/// The credentials of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Credential {
    /// The proxy client certificate.
    Vouched,
    /// None. The request carries a token.
    Token,
    /// None. The request carries no token either.
    Anonymous,
}

impl Credential {
    /// The credentials for a request of this caller. Requests between two gateways always use the
    /// certificate, by which a gateway recognises a peer. A bare server must see no certificate
    /// beside a token: it could authenticate the certificate instead.
    pub(super) fn of(identity: &Identity, kind: MemberKind) -> Credential {
        match identity {
            _ if kind == MemberKind::Mvp || identity.needs_certificate() => Credential::Vouched,
            Identity::Token => Credential::Token,
            _ => Credential::Anonymous,
        }
    }
}

/// A group of users that share exclusive connections behind peers and front proxies.
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

/// The properties of a request that choose its lane, beside its extensions.
pub(super) struct Traffic<'a> {
    pub(super) credential: Credential,
    /// Whether a server has accepted its token before.
    pub(super) accepted: bool,
    pub(super) has_body: bool,
    pub(super) is_health_check: bool,
    pub(super) identity: &'a Identity,
    pub(super) lasting: Option<Lasting>,
}

/// The lane of a request. The module documentation describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Short,
    Watch,
    Anonymous,
    AnonymousUpload,
    /// A health check without credentials. kubelet's come from this host, where nobody else's
    /// flood can fill the lane.
    HealthCheck {
        from_this_host: bool,
    },
    Upgrade,
    /// Exclusive, for large heads of known callers.
    Large,
    Exclusive(Protocol),
}

/// The protocol of an exclusive connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Lane {
    /// The lane of a request with these extensions.
    pub(super) fn of(extensions: &Extensions, traffic: &Traffic<'_>) -> Lane {
        // kube-apiserver also closes connections after users that a front proxy calls anonymous.
        if traffic.credential == Credential::Anonymous || traffic.identity.is_unauthenticated() {
            return match (traffic.has_body, traffic.is_health_check) {
                (true, _) => Lane::AnonymousUpload,
                (false, true) => Lane::health_check(extensions),
                (false, false) => Lane::Anonymous,
            };
        }
        let large = extensions.get::<LargeHead>().is_some();
        match (traffic.credential, traffic.lasting) {
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

    fn health_check(extensions: &Extensions) -> Lane {
        let connection = extensions.get::<ConnectionInfo>();
        let from_this_host = connection.is_some_and(ConnectionInfo::is_from_this_host);
        Lane::HealthCheck { from_this_host }
    }

    /// The exclusive lane with the protocol of the client connection.
    fn exclusive(extensions: &Extensions) -> Lane {
        let http2 = owner(extensions).is_some_and(ConnectionInfo::http2);
        Lane::Exclusive(if http2 { Protocol::Http2 } else { Protocol::Http1 })
    }
}

/// Whether this is a health check of the server, by kubelet or a load balancer.
pub(super) fn is_health_check(method: &Method, path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or_default();
    let check = path.split_once('/').map_or(path, |(check, _)| check);
    matches!(*method, Method::GET | Method::HEAD) && matches!(check, "livez" | "readyz" | "healthz")
}

/// The client connection of a request, unless it carries many users.
pub(super) fn owner(extensions: &Extensions) -> Option<&ConnectionInfo> {
    extensions.get::<ConnectionInfo>().filter(|connection| !connection.judgement().front_proxy)
}

/// The connections to servers, by lane.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    shared: Mutex<HashMap<PoolKey, PoolEntry>>,
    pulses: Pulses,
    egress: Egress,
    network: Network,
    counts: Isolation,
}

/// What the requests of a pool have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    address: Arc<str>,
    local: bool,
    credential: Credential,
    lane: Lane,
    bucket: Bucket,
}

/// A pool, and the TLS configuration of its connections.
#[derive(Debug)]
struct PoolEntry {
    pool: Arc<Pool>,
    tls: Arc<OutboundTls>,
}

/// A pool that serves one client connection alone.
#[derive(Debug)]
pub(crate) struct Exclusive(PoolKey, PoolEntry);

/// Releases the exclusive connections of a client whose token was accepted. They close after their
/// last request, and later requests use shared connections.
pub(super) fn release_tokens(client: &Client) {
    let mut own = client.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
    own.retain(|Exclusive(key, _)| key.credential != Credential::Token);
}

impl Lanes {
    pub(super) fn with(self, pulses: Pulses, egress: Egress, network: Network) -> Lanes {
        Lanes { pulses, egress, network, ..self }
    }

    pub(super) fn counted_by(self, counts: Isolation) -> Lanes {
        Lanes { counts, ..self }
    }

    /// Counts a request for which no connection was free.
    pub(super) fn overloaded(&self) {
        self.counts.overloaded.inc();
    }

    /// The pool for a request. `bucket` groups users who have no client connection of their own.
    pub(super) fn pool(
        &self,
        target: &Target,
        credential: Credential,
        lane: Lane,
        outbound: &ReloadableOutbound,
        extensions: &Extensions,
        bucket: impl FnOnce() -> Bucket,
    ) -> Result<Arc<Pool>, SendError> {
        let (address, local) = (Arc::clone(&target.address), target.local);
        let mut key = PoolKey { address, local, credential, lane, bucket: Bucket::default() };
        let current = outbound.load();
        let client = match lane {
            Lane::Exclusive(_) | Lane::Large => owner(extensions).and_then(Client::of),
            _ => None,
        };
        if let Some(client) = client {
            let mut own = client.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
            let known = own.iter().find(|Exclusive(known, _)| *known == key);
            if let Some(Exclusive(_, entry)) = known
                && Arc::ptr_eq(&entry.tls, &current)
            {
                return Ok(Arc::clone(&entry.pool));
            }
            let max = if lane == Lane::Large { LARGE_HEADS } else { EXCLUSIVE };
            let pool = Arc::new(self.open(target, &key, &current, max)?);
            let entry = PoolEntry { pool: Arc::clone(&pool), tls: Arc::clone(&current) };
            own.retain(|Exclusive(other, _)| *other != key);
            own.push(Exclusive(key, entry));
            return Ok(pool);
        }
        if matches!(lane, Lane::Exclusive(_) | Lane::Large) {
            key.bucket = bucket();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shared.get(&key)
            && Arc::ptr_eq(&entry.tls, &current)
        {
            return Ok(Arc::clone(&entry.pool));
        }
        let pool = Arc::new(self.open(target, &key, &current, EXCLUSIVE_OF_PEERS)?);
        shared.insert(key, PoolEntry { pool: Arc::clone(&pool), tls: Arc::clone(&current) });
        Ok(pool)
    }

    /// A new pool. `exclusive` is the number of its HTTP/1.1 connections in exclusive lanes.
    fn open(
        &self,
        target: &Target,
        key: &PoolKey,
        current: &OutboundTls,
        exclusive: usize,
    ) -> Result<Pool, SendError> {
        let tls = match key.credential {
            Credential::Vouched => current.vouched.as_ref().ok_or_else(|| {
                let cause = "no proxy client certificate is configured";
                SendError::new(&target.id, Stage::Identity, cause)
            })?,
            Credential::Token | Credential::Anonymous => &current.plain,
        };
        let endpoint = |protocol: &[u8]| Endpoint {
            address: Arc::clone(&target.address),
            source: target.source,
            egress: (!target.local).then(|| self.egress.clone()),
            network: self.network.clone(),
            server_name: target.server_name.clone(),
            tls: tls.config(&[protocol]),
            beat: self.pulses.beat(&target.address),
        };
        let unless_local = |bare_for| Some(bare_for).filter(|_| !target.local);
        let http1 = |max| {
            let pool = Http1Pool::new(endpoint(b"http/1.1"), max);
            pool.replacing_bare(unless_local(BARE_FOR))
        };
        let http2 = |spread, bare_for| {
            let pool = Http2Pool::new(endpoint(b"h2"), spread, self.counts.clone());
            Pool::Http2(pool.replacing_bare(unless_local(bare_for)))
        };
        Ok(match key.lane {
            Lane::Short | Lane::Exclusive(Protocol::Http2) => http2(MAX_STREAMS, BARE_FOR),
            Lane::Watch => http2(WATCHES, BARE_WATCHES_FOR),
            Lane::Anonymous => Pool::Http1(http1(ANONYMOUS).reading_ahead()),
            Lane::AnonymousUpload => Pool::Http1(http1(ANONYMOUS_UPLOADS).reading_ahead()),
            Lane::HealthCheck { .. } => Pool::Http1(http1(HEALTH_CHECKS).reading_ahead()),
            Lane::Exclusive(Protocol::Http1) | Lane::Large => Pool::Http1(http1(exclusive)),
            Lane::Upgrade => Pool::SingleUse(SingleUse(endpoint(b"http/1.1"))),
        })
    }

    /// Closes idle connections, and those with an unwanted address or a replaced TLS configuration.
    pub(super) fn prune(
        &self,
        local: &Arc<OutboundTls>,
        peers: &Arc<OutboundTls>,
        wanted: impl Fn(&str) -> bool,
    ) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|key, entry| {
            let current = if key.local { local } else { peers };
            Arc::ptr_eq(&entry.tls, current) && (key.local || wanted(&key.address))
        });
        for entry in shared.values() {
            entry.pool.prune();
        }
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<(String, bool)> {
        let shared = self.shared.lock().unwrap();
        let mut addresses: Vec<(String, bool)> =
            shared.keys().map(|key| (key.address.to_string(), key.local)).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}
