//! Tests of the routes, without a socket where possible.

use axum::body::Body;
use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use tower::ServiceExt;

use super::host::AllowedHosts;
use super::*;
use crate::report::Answered;

fn router(admin: Admin) -> Router {
    let hosts = AllowedHosts::new(&["gateway.example".to_owned()]);
    over_tcp(admin, Arc::new(hosts), None, true)
}

async fn send(router: Router, request: Request) -> (StatusCode, Response, String) {
    let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (parts.status, Response::from_parts(parts, Body::empty()), text)
}

async fn ask(admin: Admin, method: Method, path: &str) -> (StatusCode, Response, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    send(router(admin), request).await
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
        callers: Arc::new(|_| None),
        apart: Apart::default(),
        status: Arc::new(|all| {
            let gateways = vec![Answered::default(); if all { 2 } else { 1 }];
            Box::pin(async { Some(Gateways { gateways, left_out: 0 }) })
        }),
        apis: Arc::new(|| json!({"members": []})),
        forget: Arc::new(|id| match id {
            "gone" => Ok(()),
            other => Err(format!("there is no member {other}").into()),
        }),
        flags: Arc::new(Flags::default().with("server-id", "a".to_owned())),
        board: dashboard::board::tests::board(),
    }
}

#[tokio::test]
async fn forget_needs_the_unix_socket() {
    let hint = "forbidden: run mvp forget ID --admin-socket=/run/x.sock on this host\n";
    let none = "forbidden: start mvp serve with --admin-socket=PATH, then run mvp forget ID \
                --admin-socket=PATH on this host\n";
    let hosts = || Arc::new(AllowedHosts::new(&[]));
    let tcp = || over_tcp(admin(None), hosts(), Some("/run/x.sock".to_owned()), true);
    for (router, id, code, said) in [
        (over_socket(admin(None), Arc::default()), "?id=gone", 200, "gone is forgotten\n"),
        (over_socket(admin(None), Arc::default()), "?id=other", 409, "there is no member other\n"),
        (over_socket(admin(None), Arc::default()), "?id=", 400, "use mvp forget ID\n"),
        (over_socket(admin(None), Arc::default()), "", 400, "use mvp forget ID\n"),
        (tcp(), "?id=gone", 403, hint),
        (over_tcp(admin(None), hosts(), None, true), "?id=gone", 403, none),
    ] {
        let request = Request::post(format!("/forget{id}")).body(Body::empty()).unwrap();
        let (status, _, body) = send(router, request).await;
        assert_eq!((status.as_u16(), &*body), (code, said), "{id}");
    }
    for router in [tcp(), over_socket(admin(None), Arc::default())] {
        let request = Request::get("/forget?id=gone").body(Body::empty()).unwrap();
        assert_eq!(send(router, request).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn flags_are_told_over_the_unix_socket_only() {
    let request = || Request::get("/debug/flags").body(Body::empty()).unwrap();
    let (status, _, body) = send(over_socket(admin(None), Arc::default()), request()).await;
    assert_eq!(status, StatusCode::OK);
    let told: Flags = serde_json::from_str(&body).unwrap();
    assert_eq!(told.flags["server-id"], ["a"]);
    assert_eq!(send(router(admin(None)), request()).await.0, StatusCode::NOT_FOUND);
}

/// A web page that resolves its own name to our address (DNS rebinding) sends that name.
#[tokio::test]
async fn every_path_over_tcp_checks_the_host() {
    let paths = [
        "/",
        "/dashboard",
        "/dashboard/page.js",
        "/dashboard/apis",
        "/livez",
        "/readyz",
        "/metrics",
        "/debug/snapshot",
        "/debug/status",
        "/debug/apis",
        "/forget",
        "/none",
    ];
    for path in paths {
        for (host, passes) in
            [("127.0.0.1:6480", true), ("gateway.example:80", true), ("evil.example:6480", false)]
        {
            let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
            let (status, response, body) = send(router(admin(None)), request).await;
            assert_eq!(status != StatusCode::FORBIDDEN, passes, "{path} {host}");
            assert_eq!(body.contains("--admin-allowed-hosts"), !passes, "{body}");
            assert!(response.headers().contains_key(CACHE_CONTROL));
        }
    }
    // It is forbidden to all over TCP, but a page of another host is not told more.
    let request = Request::get("/debug/callers").header("host", "evil.example").body(Body::empty());
    let (status, _, body) = send(router(admin(None)), request.unwrap()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(body.contains("--admin-allowed-hosts"), "{body}");
}

/// No web page can open a Unix socket, but it can open a port that somebody forwards to it.
#[tokio::test]
async fn every_path_over_the_unix_socket_checks_the_host() {
    for path in [
        "/",
        "/dashboard",
        "/dashboard/apis",
        "/livez",
        "/metrics",
        "/debug/snapshot",
        "/debug/callers",
        "/debug/status",
        "/debug/apis",
        "/debug/flags",
        "/forget",
        "/none",
    ] {
        for (host, passes) in [("localhost", true), ("evil.example:6480", false)] {
            let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
            let router = over_socket(admin(None), Arc::default());
            let (status, _, body) = send(router, request).await;
            assert_eq!(status != StatusCode::FORBIDDEN, passes, "{path} {host}");
            assert_eq!(body.contains("--admin-allowed-hosts"), !passes, "{body}");
        }
    }
}

#[tokio::test]
async fn metrics_come_in_the_format_that_is_accepted() {
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, kind, body) in [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", open, "# EOF\n"),
        ("text/plain;version=0.0.4", text, ""),
        ("*/*", text, ""),
    ] {
        let request = Request::get("/metrics").header("accept", accept).body(Body::empty());
        let (_, response, said) = send(router(admin(None)), request.unwrap()).await;
        assert_eq!(response.headers()[CONTENT_TYPE], kind, "{accept}");
        assert_eq!(said, body, "{accept}");
    }
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
        (None, "/readyz?a&verbose=true", 200, "[+]listener ok\n[+]local ok\nreadyz check passed\n"),
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
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", ""),
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
    assert_eq!(text.matches("\n/").count(), 7);
}

/// The test has one thread, as the control loop has.
#[tokio::test]
async fn apis_are_written_on_another_thread_one_at_a_time() {
    let (proceed, wait) = std::sync::mpsc::channel::<()>();
    let (wait, writers) = (std::sync::Mutex::new(wait), Arc::new(std::sync::Mutex::new(())));
    let apis = Arc::new(move || {
        let writing = writers.try_lock();
        let alone = writing.is_ok();
        let told = wait.lock().unwrap().recv_timeout(std::time::Duration::from_secs(20));
        json!({ "alone": alone, "told": told.is_ok() })
    });
    let admin = Admin { apis, ..admin(None) };
    let one = tokio::spawn(ask(admin.clone(), Method::GET, "/debug/apis"));
    let two = tokio::spawn(ask(admin.clone(), Method::GET, "/debug/apis"));
    tokio::task::yield_now().await;
    assert_eq!(ask(admin, Method::GET, "/livez").await.2, "ok");
    for _ in 0..2 {
        proceed.send(()).unwrap();
    }
    for asked in [one, two] {
        assert_eq!(asked.await.unwrap().2, "{\"alone\":true,\"told\":true}\n");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods() {
    let (code, _, text) = ask(admin(None), Method::GET, "/healthz/").await;
    assert_eq!((code.as_u16(), text.as_str()), (404, "not found; see / for all paths\n"));
    let (code, response, text) = ask(admin(None), Method::POST, "/livez").await;
    assert_eq!((code.as_u16(), text.as_str()), (405, "method not allowed; see / for all paths\n"));
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
    let stopped = futures_util::FutureExt::shared(async { stopped.await.unwrap() });
    let hosts = AllowedHosts::new(&[]);
    let server = tokio::spawn(serve(listener, None, hosts, admin(None), stopped));
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"));
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
