//! Who called which resource through this gateway in the last hour. Entry item: [`Callers::record`].
//!
//! A request costs one hash and one lookup under a lock that only requests for the same
//! resources share. A name is derived for the first request of a key, and again after keys were
//! dropped: when callers expired, or when there were too many keys. Clients choose names, tokens and
//! user agents, so everything is bounded ([`table`]), and only resources that a member lists are
//! recorded.

mod report;
mod table;
mod window;

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::DefaultHashBuilder;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use mvp_core::decide::Origin;
use mvp_core::request::ResourceRequest;
use mvp_core::{RequestInfo, Timestamp};
use mvp_net::ConnectionInfo;

use super::caller::{self, Caller};
use super::requests::Record;
use crate::identity::{Identity, bearer, proves_token};
pub use report::{CallersReport, RecordedCaller, ResourceCallers};
use table::{Call, Described, Table};
pub(crate) use window::RECORDED_FOR;
use window::slot;

/// The number of locks. A resource always has the same one.
const SHARDS: usize = 16;
/// The longest user agent and the longest name that are kept, in bytes.
const MAX_TEXT: usize = 128;

/// The callers of the last hour.
#[derive(Debug)]
pub struct Callers {
    /// The key of the hashes of tokens.
    key: RandomState,
    /// Finds callers: faster, but not made for secrets.
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<Table>>,
    /// The slot of time in which expired callers were last dropped.
    swept: AtomicU64,
}

impl Default for Callers {
    fn default() -> Callers {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (key, hasher) = (RandomState::new(), DefaultHashBuilder::default());
        Callers { key, hasher, shards, swept: AtomicU64::new(0) }
    }
}

impl Callers {
    /// Records the caller of a request. Requests of peers are recorded where their client connected.
    /// A caller that was rejected (401, or an anonymous 403) called nothing. Servers may answer OPTIONS
    /// before they authenticate, so that it proves nothing about a caller.
    pub(super) fn record(&self, record: &Record<'_>, now: Timestamp) {
        let RequestInfo::Resource(request) = record.info else { return };
        let Record { parts, identity, status, .. } = record;
        if parts.extensions.get() == Some(&Origin::Peer)
            || matches!(identity, Identity::System)
            || *status == StatusCode::UNAUTHORIZED
            || (matches!(identity, Identity::Anonymous) && *status == StatusCode::FORBIDDEN)
            || parts.method == Method::OPTIONS
        {
            return;
        }
        let agent = agent(&parts.headers);
        let (shard, key) = self.hashes(request, identity, &parts.headers, agent);
        let proves = matches!(identity, Identity::Token) && proves_token(*status);
        let call = Call { at: now, address: address(record), proves };
        let Some(shard) = self.shards.get(shard) else { return };
        if lock(shard).count_known(key, call) {
            return;
        }
        self.record_new(record, request, shard, (key, agent, call));
    }

    /// Records a caller whose key is not known.
    #[cold]
    #[inline(never)]
    fn record_new(
        &self,
        record: &Record<'_>,
        request: &ResourceRequest<'_>,
        shard: &Mutex<Table>,
        (key, agent, call): (u64, &[u8], Call),
    ) {
        let resource = (&*request.group, &*request.version, &*request.resource);
        let mut listing = record.snapshot.listing(resource.0, resource.1, resource.2);
        let is_listed = listing.next().is_some();
        if !is_listed && !lock(shard).has(resource) {
            return;
        }
        let Record { identity, status, .. } = record;
        let Caller { name, source } =
            caller::of(identity, &record.parts.headers, *status, &self.key);
        let described = Described {
            user: name.map(|name| truncated(&name).into()),
            source,
            agent: String::from_utf8_lossy(agent).into(),
            provisional: matches!(identity, Identity::Token) && !call.proves,
        };
        lock(shard).count_new(resource, is_listed, key, described, call);
    }

    /// The shard of a resource, and the key of one of its callers. Neither reveals what was hashed.
    fn hashes(
        &self,
        request: &ResourceRequest<'_>,
        identity: &Identity,
        headers: &HeaderMap,
        agent: &[u8],
    ) -> (usize, u64) {
        let mut hasher = self.hasher.build_hasher();
        (&*request.group, &*request.version, &*request.resource).hash(&mut hasher);
        let shard = hasher.finish() as usize % SHARDS;
        agent.hash(&mut hasher);
        match identity {
            Identity::User(user) => {
                (0_u8, user.name.as_ref().map(HeaderValue::as_bytes)).hash(&mut hasher);
            }
            Identity::Token => {
                let token = headers.get(AUTHORIZATION).and_then(bearer);
                (1_u8, self.key.hash_one(token)).hash(&mut hasher);
            }
            Identity::Anonymous | Identity::System => 2_u8.hash(&mut hasher),
        }
        (shard, hasher.finish())
    }

    /// Drops callers that were not seen for an hour. It does something every few minutes, however
    /// often it is called.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let slot = slot(now);
        if self.swept.swap(slot, Ordering::Relaxed) != slot {
            for shard in &self.shards {
                lock(shard).sweep(now);
            }
        }
    }

    /// The callers of the last hour, by resource. Client addresses are in it only if asked for.
    pub fn report(&self, now: Timestamp, addresses: bool) -> CallersReport {
        let mut report = CallersReport::empty(RECORDED_FOR);
        for shard in &self.shards {
            lock(shard).report(now, addresses, &mut report);
        }
        report.sort();
        report
    }

    /// Calls `see` with group, version, resource and the number of distinct callers in the last hour.
    pub fn count(&self, now: Timestamp, mut see: impl FnMut(&str, &str, &str, usize)) {
        for shard in &self.shards {
            lock(shard).count_callers(now, &mut see);
        }
    }
}

/// A panic under the lock cannot leave a table that is unsafe to use.
fn lock(shard: &Mutex<Table>) -> MutexGuard<'_, Table> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn agent(headers: &HeaderMap) -> &[u8] {
    let agent = headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    agent.get(..MAX_TEXT).unwrap_or(agent)
}

/// The beginning of a text, up to a whole character.
fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text)
}

fn address(record: &Record<'_>) -> Option<IpAddr> {
    let connection = record.parts.extensions.get::<ConnectionInfo>();
    connection.map(|connection| connection.remote().ip().to_canonical())
}

#[cfg(test)]
mod tests;
