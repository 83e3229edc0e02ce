//! The admin endpoint: health, metrics and debugging, over plain HTTP, on loopback by default. What
//! changes state or names users needs the Unix socket ([`socket`]), which only the owner of the process
//! can open.
//!
//! [`serve`] runs a router that keeps no state: it calls the functions of [`Admin`] for each
//! request. Health responses have the format of kube-apiserver's.

pub(crate) mod apart;
mod exposition;
pub(crate) mod host;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use mvp_proxy::CallersReport;
use tokio::net::TcpListener;

use self::apart::Apart;
use self::host::AllowedHosts;
use self::socket::AdminSocket;
use crate::cli::Flags;
use crate::dashboard;
use crate::dashboard::board::{Audience, Board};
use crate::descriptors::AdminListener;
use crate::mistake::Problem;
use crate::report::Gateways;

/// Serves on both listeners until `shutdown` resolves, then finishes requests in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    socket: Option<AdminSocket>,
    hosts: AllowedHosts,
    admin: Admin,
    shutdown: impl Future<Output = ()> + Clone + Send + 'static,
) -> std::io::Result<()> {
    let hosts = Arc::new(hosts);
    let private = listener.local_addr()?.ip().is_loopback();
    let name = socket.as_ref().map(AdminSocket::name);
    let over_tcp = over_tcp(admin.clone(), Arc::clone(&hosts), name, private);
    let served = axum::serve(AdminListener::new(listener), over_tcp);
    let served = served.with_graceful_shutdown(shutdown.clone());
    let Some(socket) = socket else { return served.await };
    // Until the end of this function: it removes the file of the socket.
    let (listener, _file) = socket.into_parts()?;
    let owned = axum::serve(listener, over_socket(admin, hosts)).with_graceful_shutdown(shutdown);
    let (served, owned) = tokio::join!(served.into_future(), owned.into_future());
    served.and(owned)
}

/// The routes over TCP. `socket` is the path of the Unix socket, if there is one. `private` is whether only
/// this host can connect.
fn over_tcp(
    admin: Admin,
    hosts: Arc<AllowedHosts>,
    socket: Option<String>,
    private: bool,
) -> Router {
    let page = match private {
        true => dashboard::routes(Arc::clone(&admin.board), Audience::Anybody),
        false => dashboard::refused(),
    };
    let forbid = |command: &str| {
        let hint = match &socket {
            Some(path) => format!("forbidden: run {command} --admin-socket={path} on this host\n"),
            None => format!(
                "forbidden: start mvp serve with --admin-socket=PATH, then run {command} \
                 --admin-socket=PATH on this host\n"
            ),
        };
        move || async move { text(StatusCode::FORBIDDEN, hint) }
    };
    routes(post(forbid("mvp forget ID")), get(forbid("mvp callers")))
        .layer(from_fn_with_state(Arc::clone(&hosts), host::check))
        .layer(from_fn(uncached))
        .with_state(admin)
        .merge(dashboard::protected(page, hosts))
}

/// The routes over the Unix socket.
///
/// No web page can open a Unix socket, but somebody may forward a port to it (`ssh -L`). So `Host` is
/// checked here, too.
fn over_socket(admin: Admin, hosts: Arc<AllowedHosts>) -> Router {
    let page = dashboard::routes(Arc::clone(&admin.board), Audience::Trusted);
    routes(post(forget), get(callers))
        .route("/debug/flags", get(flags))
        .layer(from_fn_with_state(Arc::clone(&hosts), host::check))
        .layer(from_fn(uncached))
        .with_state(admin)
        .merge(dashboard::protected(page, hosts))
}

/// The routes. Only `forget` changes something, and only `callers` names users.
fn routes(forget: MethodRouter<Admin>, callers: MethodRouter<Admin>) -> Router<Admin> {
    Router::new()
        .route("/", get(index))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/snapshot", get(snapshot))
        .route("/debug/callers", callers)
        .route("/debug/status", get(status))
        .route("/debug/apis", get(apis))
        .route("/forget", forget)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// The functions behind the routes. Each is called once per request.
#[derive(Clone)]
pub(crate) struct Admin {
    /// The checks of readiness; ready if none has a problem.
    pub readiness: Arc<dyn Fn() -> Vec<Check> + Send + Sync>,
    /// The checks of liveness; alive if none has a problem.
    pub liveness: Arc<dyn Fn() -> Vec<Check> + Send + Sync>,
    /// Writes the metrics as OpenMetrics text.
    pub metrics: Arc<dyn Fn(&mut String) + Send + Sync>,
    /// The current snapshot as JSON.
    pub snapshot: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// The callers of the last hour, with client addresses if asked for; `None` if they are not
    /// recorded.
    pub callers: Arc<dyn Fn(bool) -> Option<CallersReport> + Send + Sync>,
    /// Where long answers are written.
    pub apart: Apart,
    /// The state of this gateway or, if true, of all members.
    pub status: Arc<Report>,
    /// What each member serves as JSON.
    pub apis: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Forgets a member that left.
    pub forget: Arc<Forget>,
    /// The flags in force.
    pub flags: Arc<Flags>,
    /// What the dashboard shows.
    pub board: Arc<Board>,
}

/// Forgets the member with that ID, or returns why that is refused.
pub(crate) type Forget = dyn Fn(&str) -> Result<(), Problem> + Send + Sync;

/// Returns the state of gateways; none if that failed.
pub(crate) type Report =
    dyn Fn(bool) -> Pin<Box<dyn Future<Output = Option<Gateways>> + Send>> + Send + Sync;

/// One check of readiness or liveness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its name, as in `[+]name ok`.
    pub name: String,
    /// Why it fails; none if it passes.
    pub problem: Option<String>,
    /// A remark on a check that passes.
    pub remark: Option<String>,
}

const INDEX: &str = "mvp, the Mixed Version Proxy for Kubernetes

/dashboard         for people: members, what differs between them, refusals, callers
/livez             ok while every thread makes progress; ?verbose lists every check
/readyz            ok when mvp can receive traffic; ?verbose lists every check
/metrics           for Prometheus, as OpenMetrics if that is accepted
/debug/snapshot    members, what each serves, and conflicting IDs, as JSON
/debug/status      what mvp status shows, as JSON; ?all asks all members
/debug/apis        resources, verbs and subresources that each member serves, as JSON

mvp callers        shows who called which API, over the Unix socket of --admin-socket
mvp forget ID      forgets a member that left, over the Unix socket of --admin-socket
mvp doctor         checks this gateway and its cluster, with the flags that the same socket tells
";

async fn index() -> Response {
    text(StatusCode::OK, INDEX)
}

async fn livez(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    health("livez", &(admin.liveness)(), query.as_deref())
}

async fn readyz(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    health("readyz", &(admin.readiness)(), query.as_deref())
}

/// The result of checks. Lists all of them if one fails, even without `?verbose`, as kube-apiserver does.
pub(crate) fn health(name: &str, checks: &[Check], query: Option<&str>) -> Response {
    let ready = checks.iter().all(|check| check.problem.is_none());
    if ready && !has("verbose", query) {
        return text(StatusCode::OK, "ok");
    }
    let mut body = String::new();
    for Check { name, problem, remark } in checks {
        // Writing to a string does not fail.
        let _ = match (problem, remark) {
            (None, None) => writeln!(body, "[+]{name} ok"),
            (None, Some(remark)) => writeln!(body, "[+]{name} ok, but {remark}"),
            (Some(problem), _) => writeln!(body, "[-]{name} failed: {problem}"),
        };
    }
    let (status, verdict) = match ready {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    let _ = writeln!(body, "{name} check {verdict}");
    text(status, body)
}

/// Whether the query has this parameter.
fn has(parameter: &str, query: Option<&str>) -> bool {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.any(|pair| pair.split('=').next() == Some(parameter))
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let mut body = String::new();
    (admin.metrics)(&mut body);
    exposed(body, &headers)
}

/// Metrics, given as OpenMetrics text, in the form that the client accepts.
pub(crate) fn exposed(body: String, headers: &HeaderMap) -> Response {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    if accepted.into_iter().any(exposition::is_open_metrics) {
        return ([(CONTENT_TYPE, exposition::OPEN_METRICS)], body).into_response();
    }
    ([(CONTENT_TYPE, exposition::TEXT)], exposition::text(&body)).into_response()
}

async fn snapshot(State(admin): State<Admin>) -> Response {
    let body = format!("{:#}\n", (admin.snapshot)());
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn callers(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let Some(report) = (admin.callers)(has("addresses", query.as_deref())) else {
        let what = "this gateway does not record callers: it runs with --record-callers=false, or \
                    as a plain reverse proxy\n";
        return text(StatusCode::CONFLICT, what);
    };
    let body = format!("{:#}\n", serde_json::json!(report));
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn status(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    match (admin.status)(has("all", query.as_deref())).await {
        Some(gateways) => axum::Json(gateways).into_response(),
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be written; see the log\n"),
    }
}

async fn apis(State(admin): State<Admin>) -> Response {
    // It takes tens of milliseconds in a large cluster.
    let apis = admin.apis;
    match admin.apart.run(move || format!("{}\n", apis())).await {
        Some(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be written; see the log\n"),
    }
}

async fn flags(State(admin): State<Admin>) -> Response {
    axum::Json(&*admin.flags).into_response()
}

async fn forget(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    // A web page, through a port that somebody forwards to the socket.
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        return text(StatusCode::FORBIDDEN, "forbidden to browsers: run mvp forget ID\n");
    }
    let id = query.as_deref().and_then(|query| query.strip_prefix("id=")).unwrap_or_default();
    if id.is_empty() {
        return text(StatusCode::BAD_REQUEST, "use mvp forget ID\n");
    }
    match (admin.forget)(id) {
        Ok(()) => text(StatusCode::OK, format!("{id} is forgotten\n")),
        Err(problem) => text(StatusCode::CONFLICT, format!("{problem}\n")),
    }
}

async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "not found; see / for all paths\n")
}

async fn method_not_allowed() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; see / for all paths\n")
}

pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

pub(crate) async fn uncached(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
