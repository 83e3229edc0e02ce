//! Whether the local server can be asked (row 9): a look at its `/readyz` every so often, and at once
//! when a request found it gone. Read on the request path without a lock. Entry items:
//! [`LocalState`] and [`watch_local`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};
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
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::publish::SnapshotReader;
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::peers::Health;
use crate::upstream::{Forwarder, Target};

/// How often a server that is ready is asked, and one that is not.
const INTERVAL: Duration = Duration::from_millis(500);
const IMPATIENT_INTERVAL: Duration = Duration::from_millis(250);
/// It is not asked more often than this, however many requests find it gone.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// A server that starts forbids us to ask before it knows better. One that forbids it for so long
/// does not mean to tell.
const FORBIDS: Duration = Duration::from_secs(15);
/// The same of one that has told nothing else since we look: mostly it means it.
const FORBIDS_AT_FIRST: Duration = Duration::from_secs(3);
/// A server that answers PINGs is there, however long it thinks about its readiness.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 64 << 10;
/// A peer that thinks for longer says nothing.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the local server can be asked. Clones are the same.
#[derive(Debug, Clone)]
pub struct LocalState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    health: AtomicU8,
    /// Why it is not ready, for people.
    trouble: Mutex<String>,
    /// When it last was not there.
    absent: Mutex<Instant>,
    doubted: Notify,
    metrics: Arc<Metrics>,
}

impl LocalState {
    /// Ready, until somebody finds out otherwise.
    pub fn new(metrics: Arc<Metrics>) -> LocalState {
        metrics.local_health(LocalHealth::Ready);
        let health = AtomicU8::new(encode(LocalHealth::Ready));
        let (trouble, absent) = (Mutex::default(), Mutex::new(Instant::now()));
        LocalState(Arc::new(Shared { health, trouble, absent, doubted: Notify::new(), metrics }))
    }

    /// Not ready, until somebody has looked.
    #[must_use]
    pub fn unseen(self) -> LocalState {
        self.0.metrics.local_health(LocalHealth::Unready);
        self.0.health.store(encode(LocalHealth::Unready), Ordering::Relaxed);
        self
    }

    /// Whether it came a moment ago and is not ready yet.
    pub(crate) fn is_starting(&self) -> bool {
        let absent = *self.0.absent.lock().unwrap_or_else(PoisonError::into_inner);
        self.get() != LocalHealth::Ready && absent.elapsed() < FORBIDS
    }

    /// Whether it can be asked.
    pub fn get(&self) -> LocalHealth {
        decode(self.0.health.load(Ordering::Relaxed))
    }

    /// What it said last of why it is not ready, or why it could not be asked.
    pub fn trouble(&self) -> String {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request got no answer. Without a way to it, it is gone; all else has to be looked at.
    pub(crate) fn failed(&self, stage: Stage) {
        if stage == Stage::Connect {
            self.set(LocalHealth::Unreachable);
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
            LocalHealth::Ready => tracing::info!("the local server is ready"),
            LocalHealth::Unready => tracing::warn!(
                "the local server answers, but is not ready: what peers serve too goes to them"
            ),
            LocalHealth::Unreachable => tracing::warn!(
                "the local server cannot be reached: what peers serve too goes to them"
            ),
        }
    }
}

/// Looks after the local server until it is told to stop.
pub async fn watch_local(
    forwarder: Arc<Forwarder>,
    target: Target,
    state: LocalState,
    stop: CancellationToken,
) {
    let mut told = Told::default();
    loop {
        if let Some(found) = look(&forwarder, &target).await {
            let (health, trouble) = told.judge(found);
            *state.0.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            state.set(health);
        }
        let ready = state.get() == LocalHealth::Ready;
        let wait = async {
            sleep(MIN_INTERVAL).await;
            let rest = if ready { INTERVAL } else { IMPATIENT_INTERVAL };
            // A wait that runs out is as good.
            let _ = timeout(rest, state.0.doubted.notified()).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = wait => {}
        }
    }
}

/// Looks after members that have no gateway to say that they are not ready: those come last.
pub async fn watch_members(
    forwarder: Arc<Forwarder>,
    reader: SnapshotReader,
    health: Health,
    stop: CancellationToken,
) {
    // One that thinks for long holds no other up: each is looked at by itself.
    let mut told: BTreeMap<Arc<str>, Told> = BTreeMap::new();
    let mut looked_at: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut looks = FuturesUnordered::new();
    let mut next = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some((id, found)) = looks.next() => {
                looked_at.remove(&id);
                let Some(found) = found else { continue };
                // Whether it can be reached, requests and the control loop find out.
                if told.entry(Arc::clone(&id)).or_default().judge(found).0 == LocalHealth::Unready {
                    health.unready(&id);
                }
            }
            _ = next.tick() => {
                let targets = bare(&reader.load());
                told.retain(|id, _| targets.iter().any(|target| target.id == *id));
                for target in targets {
                    if looked_at.insert(Arc::clone(&target.id)) {
                        let forwarder = &forwarder;
                        looks.push(async move {
                            let look = timeout(PEER_TIMEOUT, look(forwarder, &target)).await;
                            (target.id, look.ok().flatten())
                        });
                    }
                }
            }
        }
    }
}

/// Members with nothing before them that answered before: the others are the control loop's to find.
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

/// What a look at the local server has shown.
#[derive(Debug)]
enum Found {
    Ready,
    /// With the checks that fail.
    Unready(String),
    /// It does not tell us.
    Forbidden,
    Unreachable(String),
}

/// What the local server told before.
#[derive(Debug, Default)]
struct Told {
    /// It told whether it is ready, or was not there, once.
    ever: bool,
    forbidden_since: Option<Instant>,
}

impl Told {
    /// Whether it can be asked, and why not. One that told before and now forbids it has just
    /// started, and would forbid users what they may do, too; and so may one that was never seen,
    /// as when a whole node has restarted.
    fn judge(&mut self, found: Found) -> (LocalHealth, String) {
        if !matches!(found, Found::Forbidden) {
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
            Found::Forbidden => {
                let since = *self.forbidden_since.get_or_insert_with(Instant::now);
                let enough = if self.ever { FORBIDS } else { FORBIDS_AT_FIRST };
                if since.elapsed() >= enough {
                    (LocalHealth::Ready, String::new())
                } else {
                    (LocalHealth::Unready, "it forbids us to ask for /readyz".to_owned())
                }
            }
        }
    }
}

/// What it says, or nothing where it takes its time.
async fn look(forwarder: &Forwarder, target: &Target) -> Option<Found> {
    let asked = timeout(TIMEOUT, async {
        match ask(forwarder, target).await {
            // A connection ended, which servers may do at any time: only a new one tells.
            Err(error) if error.stage != Stage::Connect => ask(forwarder, target).await,
            outcome => outcome,
        }
    });
    match asked.await.ok()? {
        Ok((status, said)) if status.is_server_error() => Some(Found::Unready(failing(&said))),
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => Some(Found::Forbidden),
        // It answers; where it knows no such path, that has to do.
        Ok(_) => Some(Found::Ready),
        Err(error) if !error.stage.is_of_server() => None,
        Err(error) => Some(Found::Unreachable(error.cause)),
    }
}

/// The checks that fail, of all that it says.
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
    // Read, so that the connection can be used again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_forbids_to_ask_is_ready_only_if_it_never_told() {
        let ready = LocalHealth::Ready;
        let mut never = Told::default();
        assert_eq!(
            never.judge(Found::Forbidden).0,
            LocalHealth::Unready,
            "it may have just started"
        );
        tokio::time::advance(FORBIDS_AT_FIRST).await;
        assert_eq!(never.judge(Found::Forbidden).0, ready);

        // It is restarted: at first it has no rules.
        let mut told = Told::default();
        assert_eq!(told.judge(Found::Ready).0, ready);
        let gone = told.judge(Found::Unreachable("refused".to_owned())).0;
        assert_eq!(gone, LocalHealth::Unreachable);
        assert_eq!(told.judge(Found::Forbidden).0, LocalHealth::Unready);
        assert_eq!(told.judge(Found::Ready).0, ready);

        // A gateway that was there before its server does not know yet.
        let mut first = Told::default();
        first.judge(Found::Unreachable("refused".to_owned()));
        assert_eq!(first.judge(Found::Forbidden).0, LocalHealth::Unready);
        tokio::time::advance(FORBIDS).await;
        assert_eq!(first.judge(Found::Forbidden).0, ready, "it does not mean to tell");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_starting_for_a_while_after_it_was_not_there() {
        let state = LocalState::new(Arc::new(Metrics::new(false))).unseen();
        assert!(state.is_starting(), "nobody has looked yet");
        state.set(LocalHealth::Ready);
        assert!(!state.is_starting());
        tokio::time::advance(FORBIDS).await;
        state.set(LocalHealth::Unready);
        assert!(!state.is_starting(), "it was there all the time");
        state.set(LocalHealth::Unreachable);
        state.set(LocalHealth::Unready);
        assert!(state.is_starting());
        tokio::time::advance(FORBIDS).await;
        assert!(!state.is_starting(), "what it says so long is its own word");
    }

    #[test]
    fn the_checks_that_fail_are_named() {
        let said = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
        assert_eq!(failing(said), "[-]etcd failed: reason withheld");
        assert_eq!(failing("starting\n"), "starting");
    }
}
