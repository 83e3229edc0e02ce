//! Readiness, its reasons, and responses while not ready.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use mvp_apiserver::Storage;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, assert_refusal, json_response, serve};
use crate::support::client::Client;
use crate::support::double::{Body, Double};
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

#[tokio::test]
async fn a_single_server_is_a_cluster() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let gateway = Gateway::start(free_address(), "b", server.address, &[]).ready().await;
    let client = Client::user(gateway.address).await;
    for path in [CONFIG_MAPS, "/api", "/apis", "/apis/other.example.com/v1/gears", "/version"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::NOT_FOUND, "nobody can have it");
    let verbose = gateway.page("/readyz?verbose").await;
    let expected = "[+]shutdown ok\n[+]local-server ok\n[+]members ok\n[+]request-headers ok, but \
                    the headers that servers read users from are unknown; see the log\nreadyz check \
                    passed\n";
    assert_eq!(verbose, expected);
}

/// Users may read discovery, the gateway itself may not.
#[tokio::test]
async fn forbidden_discovery_is_logged_with_the_missing_permission() {
    let api = api_server("b", Storage::new());
    let server = Double::start(any(), move |request: Request<Incoming>| {
        let api = api.clone();
        let user = request.headers().get("x-remote-user").map(|user| user.as_bytes());
        let forbidden = user == Some(b"system:apiserver");
        async move {
            match (forbidden, api.oneshot(request).await) {
                (true, _) => no_access(),
                (false, Ok(response)) => response,
                (false, Err(never)) => match never {},
            }
        }
    })
    .await;
    let gateway = Gateway::start(free_address(), "b", server.address, &[]);
    let reason = eventually("the reason is told", async || match gateway.ask("/readyz").await {
        Some((503, reason)) if reason.contains("system:discovery") => Ok(reason),
        other => Err(other),
    })
    .await;
    assert!(reason.contains("[-]local-server failed: /api of the local server"), "{reason}");
    assert!(reason.contains("status 403 Forbidden"), "{reason}");
    let client = Client::user(gateway.address).await;
    for path in [CONFIG_MAPS, "/version"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    // But it is unknown whether nobody serves an API.
    let (code, status) = client.call(Method::GET, WIDGETS, Value::Null).await;
    assert_refusal(code, &status);
}

fn no_access() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "forbidden: User \"system:apiserver\" cannot get path \"/apis\"",
        "reason": "Forbidden", "details": {}, "code": 403,
    });
    json_response(StatusCode::FORBIDDEN, &status)
}

/// Row 1: a member that never answers delays discovery, for a limited time.
#[tokio::test]
async fn a_member_never_seen_delays_discovery_for_at_most_30_seconds() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let flag = format!("--peer=a=https://{}", free_address());
    let start = Instant::now();
    let gateway = Gateway::start(free_address(), "b", server.address, &[flag]);
    let told = "[+]local-server ok\n[-]members failed: not seen yet: /api of a (";
    eventually("the reason is told", async || match gateway.ask("/readyz").await {
        Some((503, reason)) if reason.contains(told) => Ok(()),
        other => Err(other),
    })
    .await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK, "what local has is served");
    let (code, status) = client.call(Method::GET, "/apis", Value::Null).await;
    assert_refusal(code, &status);
    assert!(status["message"].as_str().unwrap().contains("not known yet"), "{status}");
    while client.get("/apis").await.0 != StatusCode::OK {
        assert!(start.elapsed() < Duration::from_secs(40), "it is held up for too long");
        sleep(Duration::from_millis(200)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(25), "it was not held up");
}
