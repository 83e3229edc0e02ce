//! Whether the local server can be asked (row 9): a look at its `/readyz` every so often, and at once
//! when a request found it gone. Read on the request path without a lock. Entry items:
//! [`LocalState`] and [`watch_local`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use mvp_core::decide::LocalHealth;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::data::{Forwarder, Target};
use crate::error::{SendError, Stage};
use crate::identity::Identity;
use crate::metrics::Metrics;

/// How often a server that is ready is asked, and one that is not.
const INTERVAL: Duration = Duration::from_millis(500);
const IMPATIENT_INTERVAL: Duration = Duration::from_millis(250);
/// It is not asked more often than this, however many requests find it gone.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// A server that answers PINGs is there, however long it thinks about its readiness.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 64 << 10;

/// Whether the local server can be asked. Clones are the same.
#[derive(Debug, Clone)]
pub struct LocalState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    health: AtomicU8,
    doubted: Notify,
    metrics: Arc<Metrics>,
}

impl LocalState {
    /// Ready, until somebody finds out otherwise.
    pub fn new(metrics: Arc<Metrics>) -> LocalState {
        metrics.local_health(LocalHealth::Ready);
        let health = AtomicU8::new(encode(LocalHealth::Ready));
        LocalState(Arc::new(Shared { health, doubted: Notify::new(), metrics }))
    }

    /// Whether it can be asked.
    pub fn get(&self) -> LocalHealth {
        decode(self.0.health.load(Ordering::Relaxed))
    }

    /// A request got no answer. Without a way to it, it is gone; all else has to be looked at.
    pub(crate) fn failed(&self, stage: Stage) {
        if stage == Stage::Connect {
            self.set(LocalHealth::Unreachable);
        }
        self.0.doubted.notify_one();
    }

    fn set(&self, health: LocalHealth) {
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
    loop {
        let found = look(&forwarder, &target).await;
        if let Some(health) = found {
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

/// What it says, or nothing where it takes its time.
async fn look(forwarder: &Forwarder, target: &Target) -> Option<LocalHealth> {
    let asked = timeout(TIMEOUT, async {
        match ask(forwarder, target).await {
            // A connection ended, which servers may do at any time: only a new one tells.
            Err(error) if error.stage != Stage::Connect => ask(forwarder, target).await,
            outcome => outcome,
        }
    });
    match asked.await.ok()? {
        Ok(status) if status.is_server_error() => Some(LocalHealth::Unready),
        // It answers; where it does not tell us, or knows no such path, that has to do.
        Ok(_) => Some(LocalHealth::Ready),
        Err(error) if error.stage == Stage::Identity => None,
        Err(_) => Some(LocalHealth::Unreachable),
    }
}

async fn ask(forwarder: &Forwarder, target: &Target) -> Result<StatusCode, SendError> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/readyz");
    let agent = http::HeaderValue::from_static(concat!("mvp/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(USER_AGENT, agent);
    request.extensions_mut().insert(Identity::System);
    let response = forwarder.send(target, request).await?;
    let status = response.status();
    // Read, so that the connection can be used again; what it says is in the status.
    let _ = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    Ok(status)
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
