//! 404s: rows 7, 8, 10 and 11. What exists is never said to be missing, and what is missing is said
//! to be so once everybody confirmed it.

use http::{Method, StatusCode};
use serde_json::json;

use crate::client::{BOTH, ask, get, post};
use crate::double::{Double, NOT_ROUTED};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::soon;
use crate::world::World;

const NOWHERE: &str = "/apis/nowhere.example/v1/namespaces/default/things";
const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";

#[tokio::test]
async fn row_7_a_confirmed_404_is_passed_through_unchanged() {
    let world = World::start().await;
    let bodies =
        [("text/plain; charset=utf-8", "404 page not found\n"), ("application/json", NOT_ROUTED)];
    for (content_type, body) in bodies {
        world.local.says(NOWHERE, 404, content_type, body);
        for protocol in BOTH {
            let discovery = || [&world.bare, &world.behind].map(|s| s.requests.of("/apis").len());
            let before = discovery();
            let answer = ask(world.gateway.address, protocol, None, get(NOWHERE)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND);
            assert_eq!(answer.text(), body);
            assert_eq!(answer.headers["content-type"], content_type);
            let after = discovery();
            assert!(after[0] > before[0] && after[1] > before[1], "everybody was asked again");
        }
    }
    assert_eq!(world.local.requests.of(NOWHERE).len(), 4);
    assert!(world.bare.requests.of(NOWHERE).is_empty());
    assert!(world.mvp.requests.of(NOWHERE).is_empty());
}

#[tokio::test]
async fn row_7_any_other_response_of_the_local_server_is_passed_through() {
    let world = World::start().await;
    for status in [200, 403, 409, 429, 500] {
        world.local.says(NOWHERE, status, "text/plain", "mine");
        let answer = ask(world.gateway.address, BOTH[1], None, get(NOWHERE)).await;
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.text(), "mine");
    }
}

#[tokio::test]
async fn row_7_an_api_that_appears_between_two_rounds_is_served() {
    let world = World::start().await;
    for (index, protocol) in BOTH.into_iter().enumerate() {
        let group = ["first.example", "second.example"][index];
        let path = format!("/apis/{group}/v1/namespaces/default/things");
        world.bare.becomes("v1.36.0", &[("bare.example", "things"), (group, "things")]);
        let created = post(&path, thing(group, "one"));
        let answer = ask(world.gateway.address, protocol, Some(&pki().alice), created).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        assert_eq!(world.bare.requests.only(&path).body, thing(group, "one").as_bytes());
    }
}

#[tokio::test]
async fn row_8_an_unconfirmed_member_turns_the_404_into_a_503() {
    let world = World::start().await;
    world.bare.says("/apis", 500, "text/plain", "broken");
    for protocol in BOTH {
        let answer = ask(world.gateway.address, protocol, Some(&pki().alice), get(NOWHERE)).await;
        answer.assert_refusal();
    }
    // The other half of the API surface can still be confirmed.
    let core = "/api/v1/namespaces/default/nothings";
    let answer = ask(world.gateway.address, BOTH[0], None, get(core)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
}

#[tokio::test]
async fn row_8_a_hanging_member_turns_the_404_into_a_503() {
    let world = World::start().await;
    world.behind.rule("/apis", |_| std::future::pending());
    let answer = ask(world.gateway.address, BOTH[1], Some(&pki().alice), get(NOWHERE)).await;
    answer.assert_refusal();
}

#[tokio::test]
async fn row_8_a_member_never_seen_turns_the_404_into_a_503() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let silent = Double::start("b", "v1.36.0", &[("shared.example", "things")]).await;
    silent.says("/api", 500, "text/plain", "not yet");
    let plan = Gateway::beside("a", &local).await.bare("b", silent.address);
    let gateway = plan.start_blind();
    gateway.has_seen(&["a"]).await;
    ask(gateway.address, BOTH[1], None, get(SHARED)).await.assert_refusal();
    // Nor is there a merged document without it, shortly after the start.
    ask(gateway.address, BOTH[1], None, get("/apis")).await.assert_refusal();
}

#[tokio::test]
async fn row_8_an_api_recorded_for_an_unreachable_server_is_503() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let resource = json!({
        "resource": "storageversions", "scope": "Cluster", "verbs": ["list"],
        "responseKind": {"group": "internal.apiserver.k8s.io", "version": "v1alpha1", "kind": "It"},
    });
    let versions =
        json!([{"version": "v1alpha1", "freshness": "Current", "resources": [resource]}]);
    let group = json!({"metadata": {"name": "internal.apiserver.k8s.io"}, "versions": versions});
    let discovery = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [group],
    });
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    local.says("/apis", 200, aggregated, &discovery.to_string());
    let things = json!({"apiServerID": "c", "servedVersions": ["shared.example/v1"]});
    let things = json!({
        "metadata": {"name": "shared.example.things"}, "status": {"storageVersions": [things]},
    });
    let list = json!({"kind": "StorageVersionList", "items": [things]}).to_string();
    const LIST: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    local.says(LIST, 200, "application/json", &list);
    local.denies(SHARED);
    local.denies(NOWHERE);
    let gateway = Gateway::beside("a", &local).await.nowhere("c").start_blind();
    let told = |snapshot: &mvp_core::Snapshot| {
        snapshot.member_by_id("c").is_some_and(|member| member.view.recorded.is_some())
    };
    soon(gateway.reader.wait_for(told)).await;
    for protocol in BOTH {
        let answer = ask(gateway.address, protocol, Some(&pki().alice), get(SHARED)).await;
        answer.assert_refusal();
        let message = answer.json()["message"].to_string();
        let reason = "things.v1.shared.example cannot be served now: a StorageVersion records it";
        assert!(message.contains(reason) && message.contains("(not heard from c)"), "{message}");
        let answer = ask(gateway.address, protocol, None, get(SHARED)).await;
        answer.assert_refusal();
        assert!(!answer.text().contains("heard from"), "{}", answer.text());
        let answer = ask(gateway.address, protocol, Some(&pki().alice), get(NOWHERE)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    }
    let listed = local.requests.of(LIST);
    let asked = listed.first().expect("it was asked");
    assert_eq!(asked.headers["x-remote-user"], "system:apiserver");
}

#[tokio::test]
async fn row_10_a_peer_serves_what_the_local_server_lists_and_denies() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &groups).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    local.denies(SHARED);
    for protocol in BOTH {
        let answer = ask(gateway.address, protocol, Some(&pki().alice), get(SHARED)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    peer.says(SHARED, 404, "application/json", NOT_ROUTED);
    ask(gateway.address, BOTH[0], Some(&pki().alice), get(SHARED)).await.assert_refusal();
}

#[tokio::test]
async fn row_10_what_only_the_local_server_lists_and_denies_is_503() {
    let local = Double::start("a", "v1.36.0", &[("shared.example", "things")]).await;
    let peer = Double::start("b", "v1.36.0", &[]).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    local.denies(SHARED);
    ask(gateway.address, BOTH[0], Some(&pki().alice), get(SHARED)).await.assert_refusal();
}

#[tokio::test]
async fn row_10_an_api_that_moved_to_a_peer_is_served() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &[]).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    local.becomes("v1.36.0", &[]);
    peer.becomes("v1.36.0", &groups);
    let answer = ask(gateway.address, BOTH[0], Some(&pki().alice), get(SHARED)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

#[tokio::test]
async fn row_10_an_api_removed_everywhere_is_404() {
    let local = Double::start("a", "v1.36.0", &[("shared.example", "things")]).await;
    let peer = Double::start("b", "v1.36.0", &[]).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    local.becomes("v1.36.0", &[]);
    let answer = ask(gateway.address, BOTH[0], Some(&pki().alice), get(SHARED)).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
}

#[tokio::test]
async fn row_11_the_next_peer_serves_what_a_peer_denies() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let first = Double::start("b", "v1.37.0", &groups).await;
    let second = Double::start("c", "v1.36.0", &groups).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", first.address).bare("c", second.address).start().await;
    first.denies(SHARED);
    for protocol in BOTH {
        // Reads are spread: one of them meets the first one. Writes do, it is the newest.
        for _ in 0..2 {
            let answer = ask(gateway.address, protocol, Some(&pki().alice), get(SHARED)).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        }
        let create = post(SHARED, thing("shared.example", &format!("{protocol:?}").to_lowercase()));
        let answer = ask(gateway.address, protocol, Some(&pki().alice), create).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    }
    for (method, at_least) in [(Method::GET, 1), (Method::POST, 2)] {
        let met = first.requests.of(SHARED).iter().filter(|met| met.method == method).count();
        assert!(met >= at_least, "{method}: {met}");
    }
    second.denies(SHARED);
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(SHARED)).await;
    answer.assert_refusal();
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("b") && message.contains("c"), "{message}");
    assert!(local.requests.of(SHARED).is_empty());
}
