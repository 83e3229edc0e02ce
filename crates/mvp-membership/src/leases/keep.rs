//! Keeping our own Lease: made, renewed, mended when somebody changes it, and taken back when we
//! leave. Entry item: [`keep`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use mvp_proxy::control::{Ask, Clock};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Board, Lease, OBJECTS, OwnLease, PATH};
use crate::heartbeat::HEARTBEAT;
use crate::kube::{ApiError, Metadata, Trouble, call};

/// Whoever changes it again and again is not answered more often than this.
const MEND_INTERVAL: Duration = Duration::from_millis(500);
/// Leaving must not hold up the end.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);
/// Leases of members that nobody renewed for so long are removed, by whoever comes to it first.
const COLLECT_AFTER: Duration = Duration::from_secs(3600);
const COLLECT_INTERVAL: Duration = Duration::from_secs(600);

/// Keeps our Lease until we leave, and takes it back then. What an operator has to mend goes to
/// `problem`.
pub async fn keep(
    ask: impl Ask,
    clock: Clock,
    own: Arc<OwnLease>,
    board: Board,
    server_version: impl Fn() -> Option<String>,
    problem: watch::Sender<Option<String>>,
    leaving: CancellationToken,
) {
    let path = format!("{PATH}/{}", own.name);
    let mut last: Option<Metadata> = None;
    let mut collected = Instant::now();
    let mut trouble = Trouble::default();
    while !leaving.is_cancelled() {
        match apply(&ask, &path, own.renewed(server_version())).await {
            Ok(lease) => {
                if last.is_none() {
                    tracing::info!(lease = own.name, "announced to the other members");
                }
                last = Some(lease.metadata);
                trouble.hears("our Lease");
                problem.send_replace(None);
            }
            Err(error) => {
                // What passes by itself leaves what does not.
                if let Some(new) = trouble.cannot("keep", OBJECTS, &error) {
                    problem.send_replace(Some(new));
                }
            }
        }
        if collected.elapsed() >= COLLECT_INTERVAL {
            collected = Instant::now();
            collect(&ask, &board, clock).await;
        }
        let again = async {
            sleep(MEND_INTERVAL).await;
            // A wait that runs out is as good.
            let _ = timeout(HEARTBEAT - MEND_INTERVAL, own.touched.notified()).await;
        };
        tokio::select! {
            () = leaving.cancelled() => {}
            () = again => {}
        }
    }
    if let Some(last) = last {
        let _ = timeout(LEAVES_WITHIN, leave(&ask, &path, &own, last)).await;
    }
}

/// Makes or renews the Lease, whatever there is now.
async fn apply(ask: &impl Ask, path: &str, lease: Value) -> Result<Lease, ApiError> {
    let path = format!("{path}?fieldManager=mvp&force=true");
    let body = ("application/apply-patch+yaml", Bytes::from(lease.to_string()));
    call(ask, Method::PATCH, &path, Some(body)).await
}

/// Takes the Lease back, unless another process goes on with it.
async fn leave(ask: &impl Ask, path: &str, own: &OwnLease, last: Metadata) {
    if own.is_shared() {
        tracing::info!(lease = own.name, "another process goes on in our place");
        return;
    }
    match delete(ask, path, &last.uid, &last.resource_version).await {
        Ok(_) => tracing::info!(lease = own.name, "the other members know that we leave"),
        Err(error) if error.is(StatusCode::CONFLICT) => {
            tracing::info!(lease = own.name, "another process goes on in our place");
        }
        Err(error) => tracing::warn!(lease = own.name, "our Lease is left behind: {error}"),
    }
}

async fn collect(ask: &impl Ask, board: &Board, clock: Clock) {
    for (name, uid, version) in board.lapsed(clock.now(), COLLECT_AFTER) {
        match delete(ask, &format!("{PATH}/{name}"), &uid, &version).await {
            Ok(_) => tracing::info!(lease = name, "a Lease that nobody renews is removed"),
            Err(error) => tracing::debug!(lease = name, "a Lease is not removed: {error}"),
        }
    }
}

/// Deletes a Lease, if it is still as it was seen.
async fn delete(
    ask: &impl Ask,
    path: &str,
    uid: &str,
    version: &str,
) -> Result<serde::de::IgnoredAny, ApiError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": { "uid": uid, "resourceVersion": version },
    });
    let body = ("application/json", Bytes::from(options.to_string()));
    call(ask, Method::DELETE, path, Some(body)).await
}
