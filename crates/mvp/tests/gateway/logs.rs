//! What is logged: a line for each request that was proxied or refused, none for everyday ones.

use http::{Method, StatusCode};
use serde_json::Value;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS, assert_refusal};
use crate::support::client::Client;

#[tokio::test]
async fn only_what_is_proxied_or_refused_is_logged() {
    let cluster = Cluster::start().await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    for path in [CONFIG_MAPS, "/version", "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    drop(cluster.a.gateway);
    let (code, status) = client.call(Method::GET, WIDGETS, Value::Null).await;
    assert_refusal(code, &status);

    let lines = b.requests_logged();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(summary(&lines[0]), ("widgets.v1.example.com", "peers", "a", 200));
    assert_eq!(summary(&lines[1]), ("widgets.v1.example.com", "refuse", "", 503));
    assert!(lines.iter().all(|line| line["milliseconds"].is_number()), "{lines:#?}");
}

#[tokio::test]
async fn local_requests_are_logged_on_demand() {
    let cluster = Cluster::with(&["--log-local-requests".to_owned()]).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    let lines = b.requests_logged();
    let local = lines.iter().filter(|line| line["what"] == "configmaps.v1").collect::<Vec<_>>();
    assert_eq!(local.len(), 1, "{lines:#?}");
    assert_eq!(summary(local[0]), ("configmaps.v1", "local", "b", 200));
}

#[tokio::test]
async fn text_lines_are_one_line_each() {
    let cluster = Cluster::with(&["--log-format=text".to_owned()]).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    // A path is the client's to choose: no line of the log is.
    let forged = format!("{WIDGETS}%0Aforged");
    let response = client.open(&forged).await;
    assert_ne!(response.status(), StatusCode::OK);
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let log = b.log();
    assert!(log.lines().all(|line| line.starts_with("20")), "a line has no time:\n{log}");
    let proxied = log.lines().filter(|line| line.contains("what=widgets.v1.example.com"));
    assert_eq!(proxied.count(), 1, "{log}");
}

/// What it was, what was done, by whom, and with what outcome.
fn summary(line: &Value) -> (&str, &str, &str, u64) {
    let text = |key: &str| line[key].as_str().unwrap();
    (text("what"), text("action"), text("member"), line["code"].as_u64().unwrap())
}
