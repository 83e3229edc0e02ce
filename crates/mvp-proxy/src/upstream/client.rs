//! The state of one client connection: the peers that served it, the upstream connections that
//! serve it alone, and the requests that it reset. Entry item: [`Client::of`].

mod sticky;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::{Extensions, HeaderValue};
use mvp_net::ConnectionInfo;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) use sticky::{Resource, Sticky};

use super::lanes::Exclusive;

/// The limit of requests in flight to peers with tokens that no server has accepted yet.
const UNKNOWN_TOKENS: usize = 16;

/// A client connection may reset this many requests before their responses begin, and then one in
/// each [`RESET_INTERVAL`].
const MAX_RESETS: u32 = 200;
const RESET_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a client connection, kept as its [note](ConnectionInfo::note).
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) sticky: Sticky,
    /// Permits for requests to peers with unknown tokens.
    pub(crate) unknown_tokens: Arc<Semaphore>,
    /// Upstream connections that serve this client connection alone.
    pub(crate) exclusive: Mutex<Vec<Exclusive>>,
    resets: Resets,
    /// Its address, for `X-Forwarded-For`.
    address: OnceLock<Option<HeaderValue>>,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            sticky: Sticky::default(),
            unknown_tokens: Arc::new(Semaphore::new(UNKNOWN_TOKENS)),
            exclusive: Mutex::default(),
            resets: Resets::default(),
            address: OnceLock::new(),
        }
    }
}

impl Client {
    /// The state of this connection, if its listener keeps notes.
    pub(crate) fn of(connection: &ConnectionInfo) -> Option<&Client> {
        connection.note()
    }
}

/// The address of a client as a header value, made once for its connection.
pub(super) fn address(connection: &ConnectionInfo) -> Option<HeaderValue> {
    let make = || HeaderValue::try_from(connection.remote().ip().to_string()).ok();
    match Client::of(connection) {
        Some(client) => client.address.get_or_init(make).clone(),
        None => make(),
    }
}

/// The client connection that is responsible for a request on a shared upstream connection. There
/// is none for our own requests, and for those of peers and front proxies, whose connections carry
/// many users.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blame(Option<ConnectionInfo>);

impl Blame {
    pub(crate) fn of(extensions: &Extensions) -> Blame {
        let connection = extensions.get::<ConnectionInfo>();
        Blame(connection.filter(|connection| !connection.judgement().front_proxy).cloned())
    }

    /// Notes that the client reset a request before its response began. Returns whether that was
    /// one too many, and the client's connection is ended.
    pub(crate) fn reset(&self) -> bool {
        let Some(connection) = &self.0 else { return false };
        let Some(client) = Client::of(connection) else { return false };
        let ends = client.resets.add() && !connection.is_ending();
        if ends {
            let client = connection.remote();
            tracing::warn!(%client, reason = "too-many-resets", "client connection ended");
            connection.end();
        }
        ends
    }
}

/// The rate at which a connection resets requests: a leaky bucket in one number.
#[derive(Debug)]
struct Resets {
    /// When the bucket is empty again, in milliseconds since `start`.
    empty_at: AtomicU64,
    start: Instant,
}

impl Default for Resets {
    fn default() -> Resets {
        Resets { empty_at: AtomicU64::new(0), start: Instant::now() }
    }
}

impl Resets {
    /// Adds a reset. Returns whether that is too many.
    fn add(&self) -> bool {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.start.elapsed());
        let next = |empty_at: u64| empty_at.max(now).saturating_add(millis(RESET_INTERVAL));
        let update =
            self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(next(at)));
        let level = next(update.unwrap_or_else(|at| at)).saturating_sub(now);
        level > millis(RESET_INTERVAL * MAX_RESETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_resets_is_allowed_and_a_flood_is_not() {
        let resets = Resets::default();
        let burst = (0..MAX_RESETS).filter(|_| resets.add()).count();
        assert_eq!(burst, 0);
        assert!(resets.add(), "one more at the same time is too many");

        // An old connection is allowed no larger burst.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..MAX_RESETS).filter(|_| resets.add()).count(), 0);
        assert!(resets.add());

        // Slow resets are never too many.
        tokio::time::advance(Duration::from_secs(3600)).await;
        for _ in 0..10_000 {
            tokio::time::advance(RESET_INTERVAL).await;
            assert!(!resets.add());
        }
    }
}
