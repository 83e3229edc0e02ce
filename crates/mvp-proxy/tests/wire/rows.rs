//! Routing: rows 2 to 6 and 13 of the decision.

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::client::{BOTH, Client, ask, full, get, post, request, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::soon;
use crate::world::{BARE, LOCAL, MVP, World};

pub const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub fn thing(group: &str, name: &str) -> String {
    json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": name } })
        .to_string()
}

#[tokio::test]
async fn row_3_non_resource_paths_are_never_proxied() {
    let world = World::start().await;
    for path in ["/healthz?verbose", "/readyz", "/metrics", "/version?mine", "/", "/logs/x"] {
        for protocol in BOTH {
            let before = world.local.requests.of(path).len();
            ask(world.gateway.address, protocol, None, get(path)).await;
            assert_eq!(world.local.requests.of(path).len(), before + 1, "{path}");
        }
    }
    assert!(world.bare.requests.of("/healthz").is_empty());
    assert!(world.bare.requests.of("/metrics").is_empty());
}

#[tokio::test]
async fn row_4_the_local_server_answers_what_it_serves() {
    let groups = [("both.example", "things")];
    let local = Double::start("a", "v1.34.0", &groups).await;
    let newer = Double::start("b", "v1.36.0", &groups).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", newer.address).start().await;
    let path = "/apis/both.example/v1/namespaces/default/things";
    for protocol in BOTH {
        let mut client = Client::connect(gateway.address, protocol, Some(&pki().alice)).await;
        assert_eq!(client.send(get(path)).await.status, StatusCode::OK);
        let body = thing("both.example", &format!("{protocol:?}").to_lowercase());
        assert_eq!(client.send(post(path, body)).await.status, StatusCode::CREATED);
        // Its object 404 is passed through.
        let missing = client.send(get(&format!("{path}/missing"))).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND);
        assert_eq!(missing.json()["details"]["name"], "missing");
    }
    assert!(newer.requests.of(path).is_empty());
}

#[tokio::test]
async fn row_5_every_verb_works_on_a_peers_resource() {
    let world = World::start().await;
    for (path, group) in [(BARE, "bare.example"), (MVP, "mvp.example")] {
        for protocol in BOTH {
            let mut client =
                Client::connect(world.gateway.address, protocol, Some(&pki().alice)).await;
            let created = client.send(post(path, thing(group, "one"))).await;
            assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
            let one = format!("{path}/one");
            assert_eq!(client.send(get(&one)).await.json()["metadata"]["name"], "one");
            assert_eq!(client.send(get(path)).await.json()["items"].as_array().unwrap().len(), 1);

            let patch = full(r#"{"metadata":{"labels":{"a":"b"}}}"#);
            let patch = request(Method::PATCH, &one, patch);
            let patch = with(patch, "content-type", "application/merge-patch+json");
            let patched = client.send(patch).await;
            assert_eq!(patched.json()["metadata"]["labels"]["a"], "b", "{}", patched.text());

            let watch = get(&format!("{path}?watch=true"));
            let mut watcher = Client::connect(world.gateway.address, protocol, None).await;
            let mut events = watcher.open(watch).await.into_body();
            let event = soon(events.frame()).await.unwrap().unwrap().into_data().unwrap();
            let event: Value = serde_json::from_slice(&event).unwrap();
            assert_eq!(event["type"], "ADDED");

            let deleted = client.send(request(Method::DELETE, &one, full(""))).await;
            assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
            let event = soon(events.frame()).await.unwrap().unwrap().into_data().unwrap();
            let event: Value = serde_json::from_slice(&event).unwrap();
            assert_eq!(event["type"], "DELETED");
            let gone = client.send(get(&one)).await;
            assert_eq!(gone.status, StatusCode::NOT_FOUND);
            assert_eq!(gone.json()["details"]["name"], "one");
        }
        assert_eq!(world.server(path).server().processed(&Method::POST), 2);
    }
    assert!(world.local.requests.of(BARE).is_empty());
    assert!(world.local.requests.of(MVP).is_empty());
}

#[tokio::test]
async fn row_6_a_request_from_a_peer_is_not_proxied() {
    let world = World::start().await;
    for protocol in BOTH {
        for path in [BARE, MVP] {
            let request = with(get(path), "x-remote-user", "bob");
            let request = with(request, "x-kubernetes-peer-proxied", "true");
            let answer = ask(world.gateway.address, protocol, Some(&pki().proxy), request).await;
            answer.assert_refusal();
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("things") && message.contains(".example"), "{message}");
            assert!(!message.contains("127.0.0.1"), "{message}");
        }
        // It gets local APIs; and the server behind learns that it must not proxy.
        let request = with(get(LOCAL), "x-remote-user", "bob");
        let request = with(request, "x-kubernetes-peer-proxied", "true");
        let answer = ask(world.gateway.address, protocol, Some(&pki().proxy), request).await;
        assert_eq!(answer.status, StatusCode::OK);
        let seen = world.local.requests.of(LOCAL).pop().unwrap();
        assert_eq!(seen.all("x-kubernetes-peer-proxied"), ["true"]);
        assert_eq!(seen.all("x-remote-user"), ["bob"]);
    }
    assert!(world.bare.requests.of(BARE).is_empty());
    assert!(world.mvp.requests.of(MVP).is_empty());
}

#[tokio::test]
async fn a_request_with_both_views_wrong_makes_exactly_one_hop() {
    let path = "/apis/moving.example/v1/namespaces/default/things";
    let moving = [("moving.example", "things")];
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &moving).await;
    let plan_a = Gateway::beside("a", &a).await;
    let plan_b = Gateway::beside("b", &b).await;
    let (address_a, address_b) = (plan_a.address(), plan_b.address());
    let gateway_a = plan_a.mvp("b", address_b).start_blind();
    let gateway_b = plan_b.mvp("a", address_a).start().await;
    gateway_a.has_seen(&["a", "b"]).await;
    // Both know that B serves it; then it moves, and only the second learns that A serves it.
    a.becomes("v1.36.0", &moving);
    b.becomes("v1.36.0", &[]);
    let refresh = gateway_b.reader.refresh(std::time::Duration::from_secs(20), |snapshot| {
        let has = |id| {
            let view = &snapshot.member_by_id(id).unwrap().view;
            view.apis.as_ref().unwrap().list.group("moving.example").is_some()
        };
        has("a") && !has("b")
    });
    soon(refresh).await;
    for (who, token) in [(None, Some("Bearer of-carol")), (None, None), (Some(&pki().alice), None)]
    {
        let (before_a, before_b) =
            (gateway_a.requests.of(path).len(), gateway_b.requests.of(path).len());
        let mut request = get(path);
        if let Some(token) = token {
            request = with(request, "authorization", token);
        }
        ask(gateway_a.address, BOTH[1], who, request).await.assert_refusal();
        assert_eq!(gateway_a.requests.of(path).len(), before_a + 1);
        assert_eq!(gateway_b.requests.of(path).len(), before_b + 1);
    }
    assert!(a.requests.of(path).is_empty());
    // The second asks only its own server, which may be newer than its view.
    assert_eq!(b.requests.of(path).len(), 3);
}

#[tokio::test]
async fn row_13_a_server_that_lists_the_resource_rejects_the_verb() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for protocol in BOTH {
            // `status` can be read and changed, but not created.
            let request = post(&format!("{path}/x/status"), "{}");
            let answer = ask(world.gateway.address, protocol, Some(&pki().alice), request).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}: {}", answer.text());
        }
        assert_eq!(world.server(path).requests.of(&format!("{path}/x/status")).len(), 2);
    }
}

/// kube-apiserver finds a resource in these paths, and routes none of them.
#[tokio::test]
async fn the_404_of_a_path_that_no_resource_has_passes_through() {
    let world = World::start().await;
    for server in [&world.local, &world.bare, &world.behind] {
        for path in ["//apis/", "/apis/local.example/v1/namespaces/default/things/x/status/y"] {
            server.denies(path);
        }
        server.denies("/apis/bare.example/v1/namespaces/default/things/x/status/y");
        server.denies("/apis/mvp.example/v1/namespaces/default/things/x/status/y");
    }
    let alice = Some(&pki().alice);
    for path in [LOCAL, BARE, MVP] {
        for path in [format!("/{path}"), format!("{path}/x/status/y")] {
            for request in [get(&path), post(&path, "{}")] {
                let what = format!("{} {path}", request.method());
                let answer = ask(world.gateway.address, BOTH[1], alice, request).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{what}: {}", answer.text());
                assert_eq!(answer.text(), "404 page not found\n", "{what}");
            }
        }
    }
}
