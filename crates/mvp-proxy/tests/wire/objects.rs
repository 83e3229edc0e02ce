//! 404s about objects: they say nothing of routing, and nothing of what was processed.

use http::StatusCode;

use crate::client::{BOTH, ask, get, post};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::world::World;

const NOWHERE: &str = "/apis/nowhere.example/v1/namespaces/default/things";
const MISSING: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"namespaces \"default\" not found","reason":"NotFound","details":{"name":"default","kind":"namespaces"},"code":404}"#;

#[tokio::test]
async fn an_object_404_is_passed_through_although_nobody_lists_the_resource() {
    let world = World::start().await;
    world.local.says(NOWHERE, 404, "application/json", MISSING);
    for protocol in BOTH {
        let answer = ask(world.gateway.address, protocol, Some(&pki().alice), get(NOWHERE)).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, MISSING.into()));
    }
}

#[tokio::test]
async fn a_possibly_processed_write_is_not_retried() {
    let status = "/apis/nowhere.example/v1/namespaces/default/things/one/status";
    for protocol in BOTH {
        let world = World::start().await;
        world.local.says(status, 404, "application/json", MISSING);
        // Meanwhile a peer came to list it: a 404 of routing would go on to it.
        world.bare.becomes("v1.36.0", &[("bare.example", "things"), ("nowhere.example", "things")]);
        let update = post(status, thing("nowhere.example", "one"));
        let answer = ask(world.gateway.address, protocol, Some(&pki().alice), update).await;
        let is_answer = answer.status == StatusCode::NOT_FOUND;
        assert!(is_answer || answer.status == StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
        assert_eq!(world.local.requests.of(status).len(), 1);
        assert!(world.bare.requests.of(status).is_empty(), "it was sent once");
    }
}

#[tokio::test]
async fn an_object_404_is_passed_through_while_the_local_view_is_unknown() {
    let world = World::start().await;
    // A gateway whose local server never told it what it serves.
    world.local.says("/api", 403, "text/plain", "not for you");
    let blind = Gateway::beside("local", &world.local).await.start_blind();
    let object = format!("{NOWHERE}/x");
    world.local.says("/apis/nowhere.example", 404, "application/json", MISSING);
    let answer = ask(blind.address, BOTH[0], Some(&pki().alice), get(&object)).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, MISSING.into()));
}
