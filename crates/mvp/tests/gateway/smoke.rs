//! The basic functions of a small cluster.

use http::{Method, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::cluster::{AGGREGATED, CONFIG_MAPS, Cluster, WIDGETS, assert_refusal, make, widget};
use crate::support::client::{Client, read};
use crate::support::eventually;

#[tokio::test]
async fn every_verb_works_on_a_peers_resource() {
    let cluster = Cluster::start().await;
    for client in [
        Client::user(cluster.b.gateway.address).await,
        Client::token(cluster.b.gateway.address, "good").await,
    ] {
        let mut watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
        let path = format!("{WIDGETS}/one");

        let (code, made) = client.call(Method::POST, WIDGETS, widget("one")).await;
        assert_eq!((code, &made["kind"]), (StatusCode::CREATED, &json!("Widget")), "{made}");
        let (code, again) = client.call(Method::POST, WIDGETS, widget("one")).await;
        assert_eq!((code, &again["reason"]), (StatusCode::CONFLICT, &json!("AlreadyExists")));
        let (code, read) = client.call(Method::GET, &path, Value::Null).await;
        assert_eq!((code, &read), (StatusCode::OK, &made));
        let size = json!({ "spec": { "size": 2 } });
        let (code, patched) = client.call(Method::PATCH, &path, size).await;
        assert_eq!((code, &patched["spec"]["size"]), (StatusCode::OK, &json!(2)), "{patched}");
        let mut larger = patched.clone();
        larger["spec"]["size"] = json!(3);
        let (code, updated) = client.call(Method::PUT, &path, larger).await;
        assert_eq!((code, &updated["spec"]["size"]), (StatusCode::OK, &json!(3)), "{updated}");
        let (code, list) = client.call(Method::GET, WIDGETS, Value::Null).await;
        assert_eq!((code, &list["items"][0]["spec"]["size"]), (StatusCode::OK, &json!(3)));
        let (code, _) = client.call(Method::DELETE, &path, Value::Null).await;
        assert_eq!(code, StatusCode::OK);
        // An object 404 of the peer is passed through.
        let (code, missing) = client.call(Method::GET, &path, Value::Null).await;
        assert_eq!((code, &missing["details"]["name"]), (StatusCode::NOT_FOUND, &json!("one")));

        let mut seen = Vec::new();
        for _ in 0..4 {
            let (kind, object) = watch.next().await;
            seen.push((kind, object["spec"]["size"].clone()));
        }
        let event = |kind: &str, size: Value| (kind.to_owned(), size);
        assert_eq!(
            seen,
            [
                event("ADDED", Value::Null),
                event("MODIFIED", json!(2)),
                event("MODIFIED", json!(3)),
                event("DELETED", json!(3)),
            ]
        );
    }
}

#[tokio::test]
async fn both_gateways_return_the_same_discovery() {
    let cluster = Cluster::start().await;
    let clients = [
        Client::user(cluster.a.gateway.address).await,
        Client::token(cluster.b.gateway.address, "good").await,
    ];
    for path in ["/api", "/apis"] {
        let mut documents = Vec::new();
        for client in &clients {
            let request = client.request(Method::GET, path).header("accept", AGGREGATED);
            let response = client.send(request.body(Full::default()).unwrap()).await;
            let (code, headers, body) = read(response).await;
            assert_eq!(code, StatusCode::OK, "{body:?}");
            let etag = headers["etag"].clone();

            let request = client.request(Method::GET, path).header("accept", AGGREGATED);
            let request = request.header("if-none-match", &etag);
            let unchanged = client.send(request.body(Full::default()).unwrap()).await;
            assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
            documents.push((etag, body));
        }
        assert_eq!(documents[0], documents[1], "{path}");
        if path == "/apis" {
            let list: Value = serde_json::from_slice(&documents[0].1).unwrap();
            let items = list["items"].as_array().unwrap();
            let groups: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            assert_eq!(groups, ["example.com", "other.example.com"]);
        }
    }
}

#[tokio::test]
async fn the_admin_endpoint_reports_health() {
    let mut cluster = Cluster::start().await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    make(&client, "one").await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);

    assert_eq!(b.page("/livez").await, "ok");
    assert_eq!(b.page("/readyz").await, "ok");
    let verbose = b.page("/readyz?verbose").await;
    assert!(verbose.lines().all(|line| !line.starts_with("[-]")), "{verbose}");
    assert!(verbose.ends_with("readyz check passed\n"), "{verbose}");

    let snapshot: Value = serde_json::from_str(&b.page("/debug/snapshot").await).unwrap();
    let members = snapshot["members"].as_array().unwrap();
    let ids: Vec<_> = members.iter().map(|m| (&m["id"], &m["local"], &m["view"])).collect();
    let fresh = json!("Fresh");
    assert_eq!(
        ids,
        [(&json!("a"), &json!(false), &fresh), (&json!("b"), &json!(true), &fresh)],
        "{snapshot:#}"
    );
    assert_eq!(members[0]["apis"]["versions"], json!(["example.com/v1"]));

    // An API that only A serves, while A is down.
    cluster.a.server.cut().await;
    let (code, status) = client.call(Method::GET, WIDGETS, Value::Null).await;
    assert_refusal(code, &status);
    drop(cluster.a.gateway);
    let (code, status) = client.call(Method::GET, WIDGETS, Value::Null).await;
    assert_refusal(code, &status);

    eventually("its view gets stale", async || {
        let snapshot: Value = serde_json::from_str(&b.page("/debug/snapshot").await).unwrap();
        let a = &snapshot["members"][0];
        let is_stale = a["view"] == "Stale" && a["staleSeconds"].is_number();
        if is_stale { Ok(()) } else { Err(a.clone()) }
    })
    .await;

    let failed = "apiserver_peer_discovery_sync_errors_total";
    let metrics = eventually("the peer is asked in vain", async || {
        let metrics = b.page("/metrics").await;
        let line = metrics.lines().find(|line| line.starts_with(failed) && !line.ends_with(" 0"));
        if line.is_some() { Ok(metrics) } else { Err(metrics) }
    })
    .await;
    let value = |name: &str, labels: &[&str]| -> f64 {
        let mut lines = metrics.lines().filter(|line| !line.starts_with('#'));
        let line = lines.find(|line| {
            line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|l| line.contains(l))
        });
        let line = line.unwrap_or_else(|| panic!("no {name} {labels:?} in\n{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let widgets =
        ["code=\"201\"", "group=\"example.com\"", "version=\"v1\"", "resource=\"widgets\""];
    for (name, labels) in [
        ("apiserver_rerouted_request_total", &widgets[..]),
        ("apiserver_peer_proxy_errors_total", &["type=\"", "group=\"", "resource=\""]),
        (failed, &["type=\""]),
        ("aggregator_discovery_peer_aggregated_cache_hits_total", &[]),
        ("aggregator_discovery_peer_aggregated_cache_misses_total", &[]),
        ("mvp_requests_total", &["action=\"local\"", "code=\"200\""]),
        ("mvp_requests_total", &["action=\"peers\"", "code=\"201\""]),
        ("mvp_requests_total", &["action=\"refuse\"", "code=\"503\""]),
        ("mvp_view_age_seconds", &["member=\"a\""]),
        ("mvp_view_age_seconds", &["member=\"b\""]),
    ] {
        assert!(value(name, labels) >= 0.0);
    }
    let served = value("apiserver_rerouted_request_total", &widgets);
    assert_eq!(served, 1.0, "one widget was made");
}
