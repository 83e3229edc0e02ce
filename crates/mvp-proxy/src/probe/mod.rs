//! Health probes: whether the local server is ready (row 9), and whether peers without a gateway are.
//! `/readyz` is fetched at an interval, and at once when a request failed. The request path reads
//! the result without a lock. Entry items: [`LocalState`] and [`watch_local`].

mod own_requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::USER_AGENT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::Snapshot;
use mvp_core::decide::LocalHealth;
use mvp_core::member::{Member, MemberKind, Presence};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::body::Body;
use crate::control::SnapshotReader;
use crate::error::{SendError, Stage};
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::peers::Health;
use crate::upstream::{Forwarder, Target};
pub use own_requests::OwnRequests;

/// The interval of probes of a ready server, and of one that is not ready.
const INTERVAL: Duration = Duration::from_millis(500);
const UNREADY_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest interval, however many requests fail.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// A server that starts forbids `/readyz` until it has read its rules. One that forbids it for this
/// long means it: it counts as ready.
const FORBIDS: Duration = Duration::from_secs(15);
/// The same for a server that has responded with nothing else since we probe it.
const FORBIDS_AT_FIRST: Duration = Duration::from_secs(3);
/// The time limit of a probe. A server that answers PINGs is alive, however slow its `/readyz` is.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 64 << 10;
/// The time limit of a probe of a peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The health of the local server. Clones share it.
#[derive(Debug, Clone)]
pub struct LocalState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    health: AtomicU8,
    /// Why the server is not ready, for people.
    trouble: Mutex<String>,
    /// Whether it rejects our own credentials.
    rejects_us: AtomicBool,
    /// When it was last unreachable.
    absent: Mutex<Instant>,
    /// Wakes the probe after a failed request.
    doubted: Notify,
    /// Whether it shuts down or is gone.
    leaving: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

impl LocalState {
    /// The health of a server that counts as ready until a probe says otherwise.
    pub(crate) fn new(metrics: Arc<Metrics>) -> LocalState {
        metrics.local_health(LocalHealth::Ready);
        let health = AtomicU8::new(encode(LocalHealth::Ready));
        let (trouble, absent) = (Mutex::default(), Mutex::new(Instant::now()));
        let (doubted, leaving) = (Notify::new(), watch::Sender::new(false));
        let rejects_us = AtomicBool::new(false);
        LocalState(Arc::new(Shared {
            health,
            trouble,
            rejects_us,
            absent,
            doubted,
            leaving,
            metrics,
        }))
    }

    /// The same, but not ready until the first probe.
    #[must_use]
    pub(crate) fn unseen(self) -> LocalState {
        self.0.metrics.local_health(LocalHealth::Unready);
        self.0.health.store(encode(LocalHealth::Unready), Ordering::Relaxed);
        self
    }

    /// Whether the server started a moment ago and is not ready yet.
    pub(crate) fn is_starting(&self) -> bool {
        let absent = *self.0.absent.lock().unwrap_or_else(PoisonError::into_inner);
        self.get() != LocalHealth::Ready && absent.elapsed() < FORBIDS
    }

    /// The health as the last probe or request found it.
    pub fn get(&self) -> LocalHealth {
        decode(self.0.health.load(Ordering::Relaxed))
    }

    /// Why the server is not ready or not reachable; empty if it is ready.
    pub fn trouble(&self) -> String {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the server rejected our proxy client certificate in the last probe (401). Users whom we
    /// name cannot use it through us.
    pub fn rejects_us(&self) -> bool {
        self.0.rejects_us.load(Ordering::Relaxed)
    }

    /// Whether the server shuts down, or cannot be reached.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.0.leaving.borrow()
    }

    /// Completes when the server shuts down, or cannot be reached.
    pub(crate) async fn leaves(&self) {
        // The sender lives as long as this.
        let _ = self.0.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    fn set_leaving(&self, leaving: bool) {
        self.0.leaving.send_if_modified(|before| std::mem::replace(before, leaving) != leaving);
    }

    /// Notes a failed request. Without a connection the server is unreachable; after any other
    /// failure it is probed at once.
    pub(crate) fn failed(&self, stage: Stage) {
        if stage == Stage::Connect {
            self.set(LocalHealth::Unreachable);
            self.set_leaving(true);
        }
        self.0.doubted.notify_one();
    }

    fn set(&self, health: LocalHealth) {
        if health == LocalHealth::Unreachable {
            *self.0.absent.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        let before = decode(self.0.health.swap(encode(health), Ordering::Relaxed));
        if before == health {
            return;
        }
        self.0.metrics.local_health(health);
        match health {
            LocalHealth::Ready => tracing::info!("local server ready"),
            LocalHealth::Unready => {
                tracing::warn!("local server not ready: requests go to peers that serve them");
            }
            LocalHealth::Unreachable => {
                tracing::warn!("local server unreachable: requests go to peers that serve them");
            }
        }
    }
}

/// Watches the health of the local server. Never returns.
pub(crate) async fn watch_local(forwarder: &Forwarder, target: &Target, state: &LocalState) {
    let mut history = History::default();
    loop {
        if let Some(found) = probe(forwarder, target).await {
            state.set_leaving(found.is_leaving());
            state.0.rejects_us.store(matches!(found, Found::Rejected), Ordering::Relaxed);
            let (health, trouble) = history.judge(found);
            *state.0.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            state.set(health);
        }
        let ready = state.get() == LocalHealth::Ready;
        sleep(MIN_INTERVAL).await;
        let rest = if ready { INTERVAL } else { UNREADY_INTERVAL };
        // Whether a failed request or the interval ends the wait makes no difference.
        let _ = timeout(rest, state.0.doubted.notified()).await;
    }
}

/// Watches the readiness of members that have no gateway to report it; unready ones are asked last.
/// Never returns.
pub(crate) async fn watch_members(forwarder: &Forwarder, reader: &SnapshotReader, health: &Health) {
    // Each member is probed by itself, so that a slow one delays no other.
    let mut histories: BTreeMap<Arc<str>, History> = BTreeMap::new();
    let mut probing: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut probes = FuturesUnordered::new();
    let mut next = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            // In this order, so that a simulation can be replayed.
            biased;
            Some((id, found)) = probes.next() => {
                probing.remove(&id);
                let Some(found) = found else { continue };
                // Requests and the control loop find out whether it is reachable.
                if histories.entry(Arc::clone(&id)).or_default().judge(found).0 == LocalHealth::Unready {
                    health.unready(&id);
                }
            }
            _ = next.tick() => {
                let targets = bare(&reader.load());
                histories.retain(|id, _| targets.iter().any(|target| target.id == *id));
                for target in targets {
                    if probing.insert(Arc::clone(&target.id)) {
                        probes.push(async move {
                            let found = timeout(PEER_TIMEOUT, probe(forwarder, &target)).await;
                            (target.id, found.ok().flatten())
                        });
                    }
                }
            }
        }
    }
}

/// Peers without a gateway that have been seen.
fn bare(snapshot: &Snapshot) -> Vec<Target> {
    let local = snapshot.local().map(|local| &local.id);
    let is_bare = |member: &&Member| {
        member.kind == MemberKind::Bare
            && member.presence == Presence::Present
            && member.view.apis.is_some()
            && local != Some(&member.id)
    };
    snapshot.members().filter(is_bare).filter_map(Target::peer).collect()
}

/// The result of a probe.
#[derive(Debug)]
enum Found {
    Ready,
    /// Not ready, with the checks that fail.
    Unready(String),
    /// We may not ask.
    Forbidden,
    /// It does not accept our credentials.
    Rejected,
    Unreachable(String),
}

impl Found {
    /// Whether the server shuts down, or is gone. kube-apiserver fails this check from SIGTERM on,
    /// and may close its listener at once.
    fn is_leaving(&self) -> bool {
        match self {
            Found::Unready(checks) => checks.contains("[-]shutdown "),
            Found::Unreachable(_) => true,
            Found::Ready | Found::Forbidden | Found::Rejected => false,
        }
    }
}

/// The earlier results of probes of one server.
#[derive(Debug, Default)]
struct History {
    /// Whether there was any other result than [`Found::Forbidden`].
    ever: bool,
    forbidden_since: Option<Instant>,
}

impl History {
    /// The health, and why it is not ready. A server that responded before and now forbids the
    /// probe has just started, and would forbid users what they may do. So may one that was never
    /// seen, as after the restart of a whole node.
    fn judge(&mut self, found: Found) -> (LocalHealth, String) {
        if !matches!(found, Found::Forbidden | Found::Rejected) {
            self.forbidden_since = None;
        }
        match found {
            Found::Ready => {
                self.ever = true;
                (LocalHealth::Ready, String::new())
            }
            Found::Unready(trouble) => {
                self.ever = true;
                (LocalHealth::Unready, trouble)
            }
            Found::Unreachable(trouble) => {
                self.ever = true;
                (LocalHealth::Unreachable, trouble)
            }
            Found::Forbidden | Found::Rejected => {
                let since = *self.forbidden_since.get_or_insert_with(Instant::now);
                let enough = if self.ever { FORBIDS } else { FORBIDS_AT_FIRST };
                if since.elapsed() >= enough {
                    (LocalHealth::Ready, String::new())
                } else {
                    (LocalHealth::Unready, "the server forbids /readyz".to_owned())
                }
            }
        }
    }
}

/// Probes a server; `None` if that says nothing about it.
async fn probe(forwarder: &Forwarder, target: &Target) -> Option<Found> {
    let asked = timeout(TIMEOUT, async {
        match ask(forwarder, target).await {
            // Servers may close a connection at any time: only a new one tells.
            Err(error) if error.stage != Stage::Connect => ask(forwarder, target).await,
            outcome => outcome,
        }
    });
    match asked.await.ok()? {
        Ok((status, said)) if status.is_server_error() => Some(Found::Unready(failing(&said))),
        Ok((StatusCode::UNAUTHORIZED, _)) => Some(Found::Rejected),
        Ok((StatusCode::FORBIDDEN, _)) => Some(Found::Forbidden),
        // Any response will do where there is no such path.
        Ok(_) => Some(Found::Ready),
        Err(error) if !error.stage.is_of_server() => None,
        Err(error) => Some(Found::Unreachable(error.cause)),
    }
}

/// The failing checks in the body of `/readyz`.
fn failing(said: &str) -> String {
    let checks: Vec<&str> = said.lines().filter(|line| line.starts_with("[-]")).collect();
    if checks.is_empty() {
        return said.lines().next().unwrap_or_default().chars().take(200).collect();
    }
    checks.join(", ")
}

async fn ask(forwarder: &Forwarder, target: &Target) -> Result<(StatusCode, String), SendError> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/readyz");
    let agent = http::HeaderValue::from_static(concat!("mvp/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(USER_AGENT, agent);
    request.extensions_mut().insert(Identity::System);
    let response = forwarder.send(target, request).await?;
    let status = response.status();
    // Read to the end, so that the connection can be reused.
    let said = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let said = said.map(|body| body.to_bytes()).unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&said).into_owned()))
}

fn encode(health: LocalHealth) -> u8 {
    match health {
        LocalHealth::Ready => 0,
        LocalHealth::Unready => 1,
        LocalHealth::Unreachable => 2,
    }
}

fn decode(health: u8) -> LocalHealth {
    match health {
        0 => LocalHealth::Ready,
        1 => LocalHealth::Unready,
        _ => LocalHealth::Unreachable,
    }
}
