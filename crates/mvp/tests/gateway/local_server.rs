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
async fn the_local_server_starts_late_stops_and_returns() {
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
    assert!(reason.contains("cannot be reached"), "{reason}");
    assert_eq!(gateway.page("/livez").await, "ok");
    let client = Client::user(gateway.address).await;
    // It was never seen, so that nobody knows which peers are as new as it: writes wait for it, and
    // so does discovery, which would lack what only it serves.
    refused(&client, &["/version", "/healthz", "/api", "/apis", NOWHERE]).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK, "a peer has it too");
    let (code, status) = client.call(Method::POST, CONFIG_MAPS, config_map("early")).await;
    assert_refusal(code, &status);

    let mut server = serve(local, api_server("b", storage)).await;
    let gateway = gateway.ready().await;
    served(&client).await;
    let (code, ..) = client.get(NOWHERE).await;
    assert_eq!(code, StatusCode::NOT_FOUND, "every member says so");

    for round in ["one", "two"] {
        server.cut().await;
        refused(&client, &["/version", "/healthz", NOWHERE]).await;
        // What a peer serves is served, and what both serve too.
        for path in [WIDGETS, CONFIG_MAPS, "/api", "/apis"] {
            assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
        }
        let (code, object) = client.call(Method::POST, CONFIG_MAPS, config_map(round)).await;
        assert_eq!(code, StatusCode::CREATED, "{object}");
        assert_eq!(gateway.page("/livez").await, "ok");
        let (code, reason) = gateway.ask("/readyz").await.unwrap();
        assert_eq!(code, 503, "{reason}");
        assert!(reason.contains("cannot be reached"), "{reason}");
        server.restart().await;
        served(&client).await;
        eventually("ready again", async || match gateway.ask("/readyz").await {
            Some((200, _)) => Ok(()),
            other => Err(other),
        })
        .await;
    }
}

fn config_map(name: &str) -> Value {
    serde_json::json!({ "metadata": { "name": name } })
}

/// Never 404, never empty.
async fn refused(client: &Client, paths: &[&str]) {
    for path in paths {
        let (code, status) = client.call(Method::GET, path, Value::Null).await;
        assert_refusal(code, &status);
    }
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
