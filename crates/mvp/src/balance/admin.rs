//! The admin endpoint of a balancer: health, metrics and members. Entry: [`serve`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::members::{Member, Members};
use super::order::Health;
use crate::admin::host::{self, AllowedHosts};
use crate::admin::{Check, exposed, health, text, uncached};
use crate::descriptors::AdminListener;
use crate::heartbeat::Heartbeats;
use crate::inside;

const INDEX: &str = "mvp serve --pass-through, a load balancer of TCP connections

/livez             ok while every thread makes progress; ?verbose lists every check
/readyz            ok while a member is healthy; ?verbose lists every check
/metrics           for Prometheus, as OpenMetrics if that is accepted
/debug/members     members in the order in which a new connection tries them, as JSON
";

/// What the pages show.
#[derive(Clone)]
pub(super) struct AdminPages {
    pub(super) members: Arc<Members>,
    pub(super) heartbeats: Heartbeats,
    pub(super) leaving: CancellationToken,
    pub(super) registry: Arc<Registry>,
}

/// Serves until `shutdown` resolves.
pub(super) async fn serve(
    listener: TcpListener,
    hosts: AllowedHosts,
    pages: AdminPages,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/", get(async || text(StatusCode::OK, INDEX)))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/members", get(members))
        .fallback(async || text(StatusCode::NOT_FOUND, "not found; see / for all paths\n"))
        .layer(from_fn_with_state(Arc::new(hosts), host::check))
        .layer(from_fn(uncached))
        .with_state(pages);
    axum::serve(AdminListener::new(listener), routes).with_graceful_shutdown(shutdown).await
}

async fn livez(State(pages): State<AdminPages>, RawQuery(query): RawQuery) -> Response {
    health("livez", &pages.heartbeats.checks(), query.as_deref())
}

async fn readyz(State(pages): State<AdminPages>, RawQuery(query): RawQuery) -> Response {
    let checks = [inside::shutdown(pages.leaving.is_cancelled()), reachable(&pages.members.all())];
    health("readyz", &checks, query.as_deref())
}

/// Whether any member is healthy. Members that are not are a remark.
fn reachable(members: &[Arc<Member>]) -> Check {
    let described = |member: &Arc<Member>| {
        let state = member.state();
        let problem = state.problem.as_deref().unwrap_or("not probed yet");
        (state.health != Health::Healthy).then(|| format!("{}: {problem}", member.address))
    };
    let failing: Vec<String> = members.iter().filter_map(described).collect();
    let why = (!failing.is_empty()).then(|| failing.join("; "));
    let (problem, remark) = match failing.len() < members.len() {
        true => (None, why.map(|why| format!("some are not healthy: {why}"))),
        false => (Some(format!("no member is healthy: {}", why.unwrap_or_default())), None),
    };
    Check { name: "members".to_owned(), problem, remark }
}

async fn metrics(State(pages): State<AdminPages>, headers: HeaderMap) -> Response {
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut body, &pages.registry);
    exposed(body, &headers)
}

async fn members(State(pages): State<AdminPages>) -> Response {
    let members: Vec<Value> = pages.members.in_order().iter().map(|one| described(one)).collect();
    axum::Json(json!({ "members": members })).into_response()
}

fn described(member: &Member) -> Value {
    let state = member.state();
    json!({
        "address": &*member.address,
        "health": match state.health {
            Health::Healthy => "healthy",
            Health::Unknown => "unknown",
            Health::Unhealthy => "unhealthy",
        },
        "problem": state.problem,
        "configured": member.seed,
        "found": state.found,
        "onThisHost": state.on_this_host,
        "connectSeconds": state.distance.least().map(|least| least.as_secs_f64()),
        "openConnections": member.open(),
    })
}
