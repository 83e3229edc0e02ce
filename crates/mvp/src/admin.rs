//! The admin endpoint: health, metrics and debugging, over plain HTTP, on loopback by default.
//!
//! [`serve`] runs [`router`], which keeps no state: it calls the functions of [`Admin`] for each
//! request. Health responses have the format of kube-apiserver's.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use tokio::net::TcpListener;

use crate::descriptors::AdminListener;
use crate::mistake::Problem;

/// Serves until `shutdown` resolves, then finishes requests in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Admin,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let service = router(admin).into_make_service_with_connect_info::<Ends>();
    axum::serve(AdminListener::new(listener), service).with_graceful_shutdown(shutdown).await
}

/// The routes of the admin endpoint.
pub(crate) fn router(admin: Admin) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/snapshot", get(snapshot))
        .route("/forget", post(forget))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(uncached))
        .with_state(admin)
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
    /// Forgets a member that left.
    pub forget: Arc<Forget>,
}

/// The IP addresses of both ends of a connection.
#[derive(Debug, Clone, Copy)]
struct Ends {
    remote: IpAddr,
    own: Option<IpAddr>,
}

impl Connected<IncomingStream<'_, AdminListener>> for Ends {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Ends {
        let remote = stream.remote_addr().ip().to_canonical();
        let own = stream.io().local_addr().ok().map(|address| address.ip().to_canonical());
        Ends { remote, own }
    }
}

impl Ends {
    /// Whether both ends are this host.
    fn is_one_host(self) -> bool {
        self.remote.is_loopback() || self.own == Some(self.remote)
    }
}

/// Whether the `Host` header is an IP address or `localhost`.
///
/// This prevents DNS rebinding: a web page that resolves its own name to our address sends that name.
fn has_local_host_header(request: &Request) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(|host| {
        let is_ip = host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok();
        is_ip || host.split(':').next() == Some("localhost")
    })
}

/// Forgets the member with that ID, or returns why that is refused.
pub(crate) type Forget = dyn Fn(&str) -> Result<(), Problem> + Send + Sync;

/// A header that a web page cannot send to another host without its consent (CORS).
pub(crate) const ADMIN_HEADER: &str = "x-mvp-admin";

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

/livez             ok while every thread makes progress; ?verbose lists every check
/readyz            ok when mvp can receive traffic; ?verbose lists every check
/metrics           OpenMetrics
/debug/snapshot    members, what each serves, and conflicting IDs, as JSON

mvp forget ID      forgets a member that left
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

/// Lists all checks if one fails, even without `?verbose`, as kube-apiserver does.
fn health(name: &str, checks: &[Check], query: Option<&str>) -> Response {
    let ready = checks.iter().all(|check| check.problem.is_none());
    if ready && !asks_verbose(query) {
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

fn asks_verbose(query: Option<&str>) -> bool {
    query
        .is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")))
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let mut body = String::new();
    (admin.metrics)(&mut body);
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], body)
        .into_response()
}

async fn snapshot(State(admin): State<Admin>) -> Response {
    let body = format!("{:#}\n", (admin.snapshot)());
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn forget(
    State(admin): State<Admin>,
    ConnectInfo(ends): ConnectInfo<Ends>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    if !ends.is_one_host() || !has_local_host_header(&request) {
        let problem = "forbidden: run mvp forget ID on the host of this gateway\n";
        return text(StatusCode::FORBIDDEN, problem);
    }
    let id = query.as_deref().and_then(|query| query.strip_prefix("id=")).unwrap_or_default();
    if id.is_empty() || !request.headers().contains_key(ADMIN_HEADER) {
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

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

async fn uncached(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Method;
    use http_body_util::BodyExt;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    async fn ask(admin: Admin, method: Method, path: &str) -> (StatusCode, Response, String) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (parts, body) = router(admin).oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (parts.status, Response::from_parts(parts, Body::empty()), text)
    }

    fn admin(problem: Option<&'static str>) -> Admin {
        let check = |name: &str, problem: Option<&str>| Check {
            name: name.to_owned(),
            problem: problem.map(str::to_owned),
            remark: None,
        };
        Admin {
            readiness: Arc::new(move || vec![check("listener", None), check("local", problem)]),
            liveness: Arc::new(|| {
                vec![Check { name: "worker-0".to_owned(), problem: None, remark: None }]
            }),
            metrics: Arc::new(|out| out.push_str("# EOF\n")),
            snapshot: Arc::new(|| json!({"members": ["a"]})),
            forget: Arc::new(|id| match id {
                "gone" => Ok(()),
                other => Err(format!("there is no member {other}").into()),
            }),
        }
    }

    #[tokio::test]
    async fn forget_needs_the_same_host_and_the_header() {
        let elsewhere = "forbidden: run mvp forget ID on the host of this gateway\n";
        let here = (["127.0.0.1", "127.0.0.1"], "127.0.0.1:9");
        for (id, header, (ends, host), code, said) in [
            ("?id=gone", true, here, 200, "gone is forgotten\n"),
            ("?id=other", true, here, 409, "there is no member other\n"),
            ("?id=gone", false, here, 400, "use mvp forget ID\n"),
            ("?id=", true, here, 400, "use mvp forget ID\n"),
            ("", true, here, 400, "use mvp forget ID\n"),
            (
                "?id=gone",
                true,
                (["10.0.0.1", "10.0.0.1"], "10.0.0.1:9"),
                200,
                "gone is forgotten\n",
            ),
            ("?id=gone", true, (["::1", "::1"], "[::1]:9"), 200, "gone is forgotten\n"),
            ("?id=gone", true, (here.0, "localhost:9"), 200, "gone is forgotten\n"),
            ("?id=gone", true, (["10.0.0.2", "10.0.0.1"], "10.0.0.1:9"), 403, elsewhere),
            ("?id=gone", true, (here.0, "example.com:9"), 403, elsewhere),
            ("?id=gone", true, (here.0, "localhost.example.com"), 403, elsewhere),
        ] {
            let mut request = Request::builder().method(Method::POST).uri(format!("/forget{id}"));
            if header {
                request = request.header(ADMIN_HEADER, "1");
            }
            let [remote, own] = ends.map(|end| end.parse::<IpAddr>().unwrap());
            let ends = ConnectInfo(Ends { remote, own: Some(own) });
            let request = request.header(HOST, host).extension(ends).body(Body::empty()).unwrap();
            let (parts, body) = router(admin(None)).oneshot(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let status = parts.status.as_u16();
            assert_eq!((status, &*body), (code, said.as_bytes()), "{id} {header} {host}");
        }
        let (code, ..) = ask(admin(None), Method::GET, "/forget?id=gone").await;
        assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn health() {
        let failed = "[+]listener ok\n[-]local failed: no view yet\nreadyz check failed\n";
        for (problem, path, status, body) in [
            (None, "/livez", 200, "ok"),
            (None, "/livez?verbose", 200, "[+]worker-0 ok\nlivez check passed\n"),
            (Some("no view yet"), "/livez", 200, "ok"),
            (None, "/readyz", 200, "ok"),
            (None, "/readyz?other=verbose", 200, "ok"),
            (None, "/readyz?verbose", 200, "[+]listener ok\n[+]local ok\nreadyz check passed\n"),
            (
                None,
                "/readyz?a&verbose=true",
                200,
                "[+]listener ok\n[+]local ok\nreadyz check passed\n",
            ),
            (Some("no view yet"), "/readyz", 503, failed),
            (Some("no view yet"), "/readyz?verbose", 503, failed),
        ] {
            let (code, response, text) = ask(admin(problem), Method::GET, path).await;
            assert_eq!((code.as_u16(), text.as_str()), (status, body), "{path}");
            assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
            assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }

    #[tokio::test]
    async fn a_stuck_worker_fails_liveness() {
        let problem = Some("no progress for 12 s".to_owned());
        let stuck = Check { name: "worker-1".to_owned(), problem, remark: None };
        let liveness = Arc::new(move || vec![stuck.clone()]);
        let (code, _, text) = ask(Admin { liveness, ..admin(None) }, Method::GET, "/livez").await;
        let expected = "[-]worker-1 failed: no progress for 12 s\nlivez check failed\n";
        assert_eq!((code.as_u16(), text.as_str()), (503, expected));
    }

    #[tokio::test]
    async fn documents() {
        for (path, kind, body) in [
            ("/metrics", "application/openmetrics-text; version=1.0.0; charset=utf-8", "# EOF\n"),
            ("/debug/snapshot", "application/json", "{\n  \"members\": [\n    \"a\"\n  ]\n}\n"),
        ] {
            let (code, response, text) = ask(admin(None), Method::GET, path).await;
            assert_eq!((code, text.as_str()), (StatusCode::OK, body));
            assert_eq!(response.headers()[CONTENT_TYPE], kind);
        }
    }

    #[tokio::test]
    async fn the_index_lists_all_paths() {
        let (code, _, text) = ask(admin(None), Method::GET, "/").await;
        assert_eq!(code, StatusCode::OK);
        let named = text.lines().filter_map(|line| line.split(' ').next());
        for path in named.filter(|word| word.starts_with('/')) {
            assert_eq!(ask(admin(None), Method::GET, path).await.0, StatusCode::OK, "{path}");
        }
        assert_eq!(text.matches("\n/").count(), 4);
    }

    #[tokio::test]
    async fn unknown_paths_and_methods() {
        let (code, _, text) = ask(admin(None), Method::GET, "/healthz/").await;
        assert_eq!((code.as_u16(), text.as_str()), (404, "not found; see / for all paths\n"));
        let (code, response, text) = ask(admin(None), Method::POST, "/livez").await;
        assert_eq!(
            (code.as_u16(), text.as_str()),
            (405, "method not allowed; see / for all paths\n")
        );
        assert_eq!(response.headers()["allow"], "GET,HEAD");
        let (code, _, text) = ask(admin(None), Method::HEAD, "/readyz").await;
        assert_eq!((code, text.as_str()), (StatusCode::OK, ""));
    }

    #[tokio::test]
    async fn serves_until_told_to_stop() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, admin(None), async { stopped.await.unwrap() }));
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"));
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    }
}
