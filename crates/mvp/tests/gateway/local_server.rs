//! The local server comes late, goes away and comes back.

use http::{Method, StatusCode};
use mvp_apiserver::Storage;
use serde_json::Value;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, assert_refusal, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

/// What only the local server can answer for, or not even it.
const NOWHERE: &str = "/apis/example.org/v1/nothings";

#[tokio::test]
async fn it_comes_late_goes_away_and_comes_back() {
    let storage = Storage::new();
    let peer = serve(any(), api_server("a", storage.clone())).await;
    let flag = format!("--peer=a=https://{},kind=bare", peer.address);
    let local = free_address();
    let gateway = Gateway::start(free_address(), "b", local, &[flag]);

    let reason = eventually("not ready", async || match gateway.ask("/readyz").await {
        Some((503, reason)) if reason.contains("[+]members ok") => Ok(reason),
        other => Err(other),
    })
    .await;
    assert!(reason.contains("[-]local-server failed: "), "{reason}");
    assert_eq!(gateway.page("/livez").await, "ok");
    let client = Client::user(gateway.address).await;
    never_not_found(&client).await;

    let mut server = serve(local, api_server("b", storage)).await;
    let gateway = gateway.ready().await;
    served(&client).await;
    let (code, ..) = client.get(NOWHERE).await;
    assert_eq!(code, StatusCode::NOT_FOUND, "every member says so");

    for _ in 0..2 {
        server.cut().await;
        never_not_found(&client).await;
        // What a peer serves is served.
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
        assert_eq!(gateway.page("/livez").await, "ok");
        server.restart().await;
        served(&client).await;
    }
}

async fn never_not_found(client: &Client) {
    for path in [CONFIG_MAPS, NOWHERE, "/version", "/healthz", "/api", "/apis"] {
        let (code, status) = client.call(Method::GET, path, Value::Null).await;
        assert_refusal(code, &status);
    }
    let body = serde_json::json!({ "metadata": { "name": "one" } });
    let (code, status) = client.call(Method::POST, CONFIG_MAPS, body).await;
    assert_refusal(code, &status);
}

async fn served(client: &Client) {
    for path in [CONFIG_MAPS, "/version", "/healthz", "/api", "/apis"] {
        eventually(path, async || match client.get(path).await {
            (StatusCode::OK, ..) => Ok(()),
            (code, _, body) => {
                assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{body:?}");
                Err(body)
            }
        })
        .await;
    }
}
