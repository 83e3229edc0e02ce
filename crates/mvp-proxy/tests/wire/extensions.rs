//! Groups behind an APIService: an extension server's 404 is its own, whatever its shape.

use std::time::Duration;

use http::StatusCode;
use mvp_core::Snapshot;
use mvp_core::discovery::Part;
use serde_json::json;

use crate::client::{Answer, BOTH, ask, get, post};
use crate::double::{Double, NOT_ROUTED};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const METRICS: &str = "/apis/metrics.example/v1/namespaces/default/things";
const OWN: &str = "/apis/own.example/v1/namespaces/default/things";
const GROUPS: [(&str, &str); 2] = [("metrics.example", "things"), ("own.example", "things")];

/// What a server says of its APIServices, of which one is another server's.
fn api_services() -> String {
    let item = |group: &str, service: serde_json::Value| {
        let name = format!("v1.{group}");
        json!({"metadata": {"name": name}, "spec": {"group": group, "version": "v1", "service": service}})
    };
    let service = json!({"namespace": "default", "name": "metrics", "port": 443});
    let items = [item("own.example", json!(null)), item("metrics.example", service)];
    json!({"kind": "APIServiceList", "apiVersion": "apiregistration.k8s.io/v1", "items": items})
        .to_string()
}

/// Has the local server asked again.
async fn round(gateway: &Gateway) {
    let now = gateway.reader.now();
    let asked_since = |snapshot: &Snapshot| {
        let seen = snapshot.local().and_then(|local| local.view.part(Part::Apis));
        seen.is_some_and(|seen| seen.confirmed >= now)
    };
    let snapshot = gateway.reader.refresh(Duration::from_secs(30), asked_since).await;
    assert!(asked_since(&snapshot));
}

async fn read(gateway: &Gateway, path: &str) -> Answer {
    ask(gateway.address, BOTH[1], Some(&pki().alice), get(path)).await
}

#[tokio::test]
async fn a_404_of_an_extension_server_is_always_passed_through() {
    let local = Double::start("a", "v1.36.0", &GROUPS).await;
    let peer = Double::start("b", "v1.36.0", &GROUPS).await;
    local.says(API_SERVICES, 200, "application/json", &api_services());
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    let shapes =
        [("text/plain; charset=utf-8", "404 page not found\n"), ("application/json", NOT_ROUTED)];
    for (content_type, body) in shapes {
        for prefix in [METRICS, OWN] {
            local.says(prefix, 404, content_type, body);
            peer.says(prefix, 404, content_type, body);
        }
        for protocol in BOTH {
            let answer = ask(gateway.address, protocol, Some(&pki().alice), get(METRICS)).await;
            assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, body.to_owned()));
        }
        let create = post(METRICS, thing("metrics.example", "one"));
        let answer = ask(gateway.address, BOTH[0], Some(&pki().alice), create).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::NOT_FOUND, body.to_owned()));
        // A server's own 404 is believed as little as ever.
        read(&gateway, OWN).await.assert_refusal();
    }
    assert!(peer.requests.of(METRICS).is_empty(), "an answer is not asked for twice");
}

#[tokio::test]
async fn known_extension_groups_stay_until_a_new_list_arrives() {
    let local = Double::start("a", "v1.36.0", &GROUPS).await;
    local.denies(METRICS);
    local.says(API_SERVICES, 403, "application/json", "{}");
    let gateway = Gateway::beside("a", &local).await.start().await;
    read(&gateway, METRICS).await.assert_refusal();

    local.says(API_SERVICES, 200, "application/json", &api_services());
    round(&gateway).await;
    for (status, body) in [(200, api_services()), (500, "{}".into()), (403, "{}".into())] {
        local.says(API_SERVICES, status, "application/json", &body);
        round(&gateway).await;
        assert_eq!(read(&gateway, METRICS).await.status, StatusCode::NOT_FOUND, "after {status}");
    }
    for body in ["{}", "{\"items\":[{}]}", "nonsense"] {
        local.says(API_SERVICES, 200, "application/json", body);
        round(&gateway).await;
        assert_eq!(read(&gateway, METRICS).await.status, StatusCode::NOT_FOUND, "after {body}");
    }
    local.says(API_SERVICES, 200, "application/json", "{\"items\":[]}");
    round(&gateway).await;
    read(&gateway, METRICS).await.assert_refusal();
}
