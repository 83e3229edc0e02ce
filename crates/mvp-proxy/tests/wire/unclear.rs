//! 404s that cannot be judged: they are withheld, and a write is not sent again after one.

use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tower_service::Service;

use crate::client::{BOTH, ask, full, get, post};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;
use crate::world::World;

const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";
const NOWHERE: &str = "/apis/nowhere.example/v1/namespaces/default/things";

/// A `Status` in CBOR, as Kubernetes writes it: kind, message and details.
fn cbor(message: &str, name: Option<&str>) -> Vec<u8> {
    let text = |text: &str| [&[0x58, text.len() as u8], text.as_bytes()].concat();
    let details = match name {
        None => vec![0xa0],
        Some(name) => [vec![0xa1], text("name"), text(name)].concat(),
    };
    let fields = [text("kind"), text("Status"), text("message"), text(message), text("details")];
    [vec![0xd9, 0xd9, 0xf7, 0xa3], fields.concat(), details].concat()
}

/// Content type, content encoding and body of a 404.
type NotFound = (&'static str, &'static str, Vec<u8>);

fn says(server: &Double, prefix: &'static str, (content_type, encoding, body): &NotFound) {
    let (content_type, encoding, body) = (*content_type, *encoding, body.clone());
    server.rule(prefix, move |_| {
        let response = Response::builder().status(404).header("content-type", content_type);
        let response = response.header("content-encoding", encoding);
        std::future::ready(response.body(full(body.clone())).unwrap())
    });
}

/// Two servers that serve the same, and a gateway beside the first.
async fn two() -> (Double, Double, Gateway) {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &groups).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    (local, peer, gateway)
}

#[tokio::test]
async fn a_read_goes_on_to_a_peer_and_a_write_only_if_nothing_was_processed() {
    let unrouted = cbor("the server could not find the requested resource", None);
    let object = r#"{"kind":"Status","details":{"name":"x"}}"#;
    let cases: [(NotFound, bool); 5] = [
        (("application/cbor", "identity", unrouted), true),
        (("application/cbor", "identity", cbor("no", None)), false),
        (("application/json", "br", object.into()), false),
        (("text/html", "identity", "<h1>Not Found</h1>".into()), false),
        (("application/json", "identity", r#"{"kind":"Status"}"#.into()), false),
    ];
    let (local, peer, gateway) = two().await;
    for (number, (not_found, nothing_processed)) in cases.into_iter().enumerate() {
        says(&local, SHARED, &not_found);
        for protocol in BOTH {
            let answer = ask(gateway.address, protocol, Some(&pki().alice), get(SHARED)).await;
            assert_eq!(answer.status, StatusCode::OK, "{not_found:?}: {}", answer.text());
        }
        let create = post(SHARED, thing("shared.example", &format!("thing-{number}")));
        let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), create).await;
        match nothing_processed {
            true => assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text()),
            false => answer.assert_refusal(),
        }
    }
    let writes = peer.requests.of(SHARED).iter().filter(|met| met.method == "POST").count();
    assert_eq!(writes, 1, "no write is sent twice");
}

#[tokio::test]
async fn what_no_member_lists_is_404_once_all_confirm_it_whatever_its_body() {
    let world = World::start().await;
    let cases: [NotFound; 3] = [
        ("application/cbor", "identity", cbor("no", None)),
        ("application/json", "br", "whatever".into()),
        ("text/html", "identity", "<h1>Not Found</h1>".into()),
    ];
    for not_found in cases {
        says(&world.local, NOWHERE, &not_found);
        for request in [get(NOWHERE), post(NOWHERE, thing("nowhere.example", "one"))] {
            let answer = ask(world.gateway.address, BOTH[1], None, request).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{not_found:?}");
            assert_eq!(answer.body, not_found.2);
        }
    }
    // A member that cannot confirm it.
    world.bare.says("/apis", 500, "text/plain", "broken");
    ask(world.gateway.address, BOTH[1], None, get(NOWHERE)).await.assert_refusal();
}

#[tokio::test]
async fn not_founds_of_objects_webhooks_and_kubelets_pass_through_at_once() {
    let (local, peer, gateway) = two().await;
    let webhook = r#"{"kind":"Status","message":"admission webhook \"x\" denied the request"}"#;
    let exec = "/apis/shared.example/v1/namespaces/default/things/x/exec";
    let cases: [(&'static str, NotFound); 4] = [
        (SHARED, ("application/cbor", "identity", cbor("no", Some("x")))),
        (SHARED, ("application/json", "identity", webhook.into())),
        (exec, ("text/plain", "identity", "container not found (\"x\")".into())),
        (exec, ("text/plain", "identity", "404 page not found\n".into())),
    ];
    for (path, not_found) in cases {
        says(&local, path, &not_found);
        for request in [get(path), post(path, "{}".to_owned())] {
            let before = local.requests.of(path).len();
            let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), request).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{not_found:?}: {}", answer.text());
            assert_eq!(answer.body, not_found.2);
            assert_eq!(local.requests.of(path).len(), before + 1);
        }
    }
    assert!(peer.requests.of(SHARED).is_empty());
}

/// Its discovery takes longer than a request waits for members that answer at once.
#[tokio::test]
async fn a_member_with_slow_discovery_confirms_a_404() {
    let world = World::start().await;
    let server = world.bare.server();
    world.bare.rule("/apis", move |request| {
        let mut server = server.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(1100)).await;
            let Ok(response) = server.call(request).await;
            response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
        }
    });
    // From the first slow fetch on, requests wait as long as it took.
    let slow = |snapshot: &mvp_core::Snapshot| {
        let member = snapshot.member_by_id("b");
        member.is_some_and(|member| member.view.fetched_in >= Duration::from_secs(1))
    };
    crate::soon(world.gateway.reader.refresh(Duration::from_secs(20), slow)).await;
    world.local.denies(NOWHERE);
    for _ in 0..2 {
        let answer = ask(world.gateway.address, BOTH[1], Some(&pki().alice), get(NOWHERE)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    }
}
