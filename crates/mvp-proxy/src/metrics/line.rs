//! The log line of a request. Entry item: [`RequestLog::write`].
//!
//! Nothing is computed for a request that is not logged. A line never has a token or a query: both
//! can carry secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use mvp_core::Timestamp;
use mvp_net::ConnectionInfo;
use tracing::Level;

use super::caller::{self, Caller};
use super::requests::{Record, ServedBy};
use crate::headers::AUDIT_ID;

/// The most lines of one event (an action with a reason) in a second. More are counted instead.
const MAX_LINES: u32 = 100;
/// The number of events that are told apart. Two that share a place share their limit.
const EVENTS: usize = 64;
/// The longest audit ID and the most members that a line shows.
const MAX_AUDIT_ID: usize = 64;
const MAX_MEMBERS: usize = 10;

/// Writes the log lines of requests.
#[derive(Debug)]
pub(super) struct RequestLog {
    /// Whether every request is logged, also the ordinary ones.
    all: bool,
    /// The key of the hashes of tokens.
    key: RandomState,
    events: Vec<Sampler>,
}

impl RequestLog {
    pub(super) fn new(all: bool) -> RequestLog {
        let events = (0..EVENTS).map(|_| Sampler::default()).collect();
        RequestLog { all, key: RandomState::new(), events }
    }

    /// Writes the line of a request, if it is to be logged.
    pub(super) fn write(&self, record: &Record<'_>, is_poll: bool, now: Timestamp) {
        if !(self.all || (is_notable(record) && !is_poll)) || !tracing::enabled!(Level::INFO) {
            return;
        }
        let (action, reason) = (record.by.as_str(), record.reason.as_str());
        let event = self.key.hash_one((action, reason)) as usize % EVENTS;
        let Some(suppressed) = self.events.get(event).and_then(|event| event.admit(now)) else {
            return;
        };
        let parts = record.parts;
        let client = parts.extensions.get::<ConnectionInfo>().map(|info| info.remote().to_string());
        let Caller { name: user, source: user_source } =
            caller::of(record.identity, &parts.headers, record.status, &self.key);
        // Clients choose these names: a line break in one must not begin a line of the log.
        let what = record.info.to_string();
        tracing::info!(
            method = %parts.method,
            path = parts.uri.path(),
            client,
            user,
            user_source,
            audit_id = audit_id(record),
            what = %what.escape_debug(),
            action,
            reason,
            member = members(record),
            code = record.status.as_u16(),
            milliseconds = u64::try_from(now.since(record.arrived).as_millis()).unwrap_or(u64::MAX),
            suppressed = (suppressed > 0).then_some(suppressed),
            "request"
        );
    }
}

/// Whether a request is logged by default: it was refused, or proxied to a peer. A load balancer
/// proxies every request, so there that is nothing special.
fn is_notable(record: &Record<'_>) -> bool {
    match record.by {
        ServedBy::Nobody => true,
        ServedBy::Peer | ServedBy::AnyMember => record.snapshot.local().is_some(),
        _ => false,
    }
}

/// The member that responded or, for a refusal, the members at fault.
fn members(record: &Record<'_>) -> String {
    match record.member {
        Some(member) => member.to_owned(),
        None => record.at_fault.get(..MAX_MEMBERS).unwrap_or(record.at_fault).join(","),
    }
}

/// The client's audit ID or, where it sent none, the one in the server's response.
fn audit_id(record: &Record<'_>) -> Option<String> {
    let sent = record.parts.headers.get(AUDIT_ID);
    let id = sent.or_else(|| record.response.get(AUDIT_ID)).map(HeaderValue::as_bytes)?;
    let id = id.get(..MAX_AUDIT_ID).unwrap_or(id);
    Some(String::from_utf8_lossy(id).into_owned())
}

/// Limits the lines of one event.
#[derive(Debug, Default)]
struct Sampler {
    /// The current second in the upper half, its lines in the lower half.
    window: AtomicU64,
    suppressed: AtomicU64,
}

impl Sampler {
    /// Whether a line may be written now: then with the number of lines that were suppressed since
    /// the last one.
    fn admit(&self, now: Timestamp) -> Option<u64> {
        let second = now.since(Timestamp::default()).as_secs() << 32;
        let counted = |window: u64| {
            let same = window & !u64::from(u32::MAX) == second;
            Some(if same { window.saturating_add(1) } else { second | 1 })
        };
        let before = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        let lines = before.ok().and_then(counted).unwrap_or_default() & u64::from(u32::MAX);
        if lines > u64::from(MAX_LINES) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_is_sampled_and_counted() {
        let sampler = Sampler::default();
        let at = |millis| Timestamp::after_start(Duration::from_millis(millis));
        let written = (0..1000).filter(|_| sampler.admit(at(7_500)).is_some()).count();
        assert_eq!(written, 100);
        assert_eq!(sampler.admit(at(8_000)), Some(900), "the next second reports the rest");
        assert_eq!(sampler.admit(at(8_001)), Some(0));
    }
}
