//! Our own Lease: created, renewed, repaired when somebody changes it, and deleted at shutdown.
//! Entry item: [`keep`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use mvp_proxy::control::{Ask, Clock};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Board, Lease, OBJECTS, OwnLease, PATH};
use crate::kube::{ApiError, Metadata, Trouble, call};
use crate::limits::{HEARTBEAT, REPAIR_INTERVAL, WITHDRAW_TIMEOUT};

/// When a Lease that nobody renews is deleted, by whichever gateway comes first.
const COLLECT_AFTER: Duration = Duration::from_secs(3600);
const COLLECT_INTERVAL: Duration = Duration::from_secs(600);

/// Keeps our Lease until `leaving` is cancelled, and deletes it then. A problem that an operator
/// must solve goes to `problem`.
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
                    tracing::info!(lease = own.name, "announced");
                }
                last = Some(lease.metadata);
                trouble.recovered(OBJECTS);
                problem.send_replace(None);
            }
            Err(error) => {
                // A transient failure does not replace a problem.
                if let Some(new) = trouble.failed("write", OBJECTS, &error) {
                    problem.send_replace(Some(new));
                }
            }
        }
        if collected.elapsed() >= COLLECT_INTERVAL {
            collected = Instant::now();
            collect(&ask, &board, clock).await;
        }
        let again = async {
            sleep(REPAIR_INTERVAL).await;
            // Either way it is time for the next renewal.
            let _ = timeout(HEARTBEAT - REPAIR_INTERVAL, own.touched.notified()).await;
        };
        tokio::select! {
            () = leaving.cancelled() => {}
            () = again => {}
        }
    }
    if let Some(last) = last {
        let _ = timeout(WITHDRAW_TIMEOUT, withdraw(&ask, &path, &own, last)).await;
    }
}

/// Creates or renews the Lease, whatever it says now.
async fn apply(ask: &impl Ask, path: &str, lease: Value) -> Result<Lease, ApiError> {
    let path = format!("{path}?fieldManager=mvp&force=true");
    let body = ("application/apply-patch+yaml", Bytes::from(lease.to_string()));
    call(ask, Method::PATCH, &path, Some(body)).await
}

/// Deletes the Lease, unless another process has taken it over.
async fn withdraw(ask: &impl Ask, path: &str, own: &OwnLease, last: Metadata) {
    if own.is_shared() {
        tracing::info!(lease = own.name, "announcement handed over");
        return;
    }
    match delete(ask, path, &last.uid, &last.resource_version).await {
        Ok(_) => tracing::info!(lease = own.name, "announcement withdrawn"),
        Err(error) if error.is(StatusCode::CONFLICT) => {
            tracing::info!(lease = own.name, "announcement handed over");
        }
        Err(error) => tracing::warn!(lease = own.name, %error, "announcement not withdrawn"),
    }
}

async fn collect(ask: &impl Ask, board: &Board, clock: Clock) {
    for (name, uid, version) in board.expired(clock.now(), COLLECT_AFTER) {
        match delete(ask, &format!("{PATH}/{name}"), &uid, &version).await {
            Ok(_) => tracing::info!(lease = name, "expired Lease deleted"),
            Err(error) => tracing::debug!(lease = name, %error, "expired Lease not deleted"),
        }
    }
}

/// Deletes a Lease, if it has not changed since it was read.
async fn delete(
    ask: &impl Ask,
    path: &str,
    uid: &str,
    version: &str,
) -> Result<IgnoredAny, ApiError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": { "uid": uid, "resourceVersion": version },
    });
    let body = ("application/json", Bytes::from(options.to_string()));
    call(ask, Method::DELETE, path, Some(body)).await
}
