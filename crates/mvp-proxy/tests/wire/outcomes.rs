//! What metrics, logs and refusals say about how a request ended.

use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use mvp_core::decide::LocalHealth;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, ask, full, get, post};
use crate::double::{Double, NOT_ROUTED, answer};
use crate::gateway::Gateway;
use crate::pki::pki;

const THINGS: &str = "/apis/shared.example/v1/namespaces/default/things";
const GROUPS: [(&str, &str); 1] = [("shared.example", "things")];

#[tokio::test]
async fn the_fallback_to_an_unready_local_server_is_not_counted_as_rerouted() {
    let local = Double::start("a", "v1.36.0", &GROUPS).await;
    let peer = Double::start("b", "v1.36.0", &GROUPS).await;
    let front = Front::before(&peer).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", front.address).start().await;
    local.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
    gateway.takes_local_for(LocalHealth::Unready).await;
    front.becomes(Mode::Refuse);
    let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(THINGS)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let counted = r#"mvp_requests_total{action="local",reason="local-not-ready",code="200"}"#;
    assert_eq!(gateway.metric(counted).as_deref(), Some("1"));
    let rerouted = r#"apiserver_rerouted_request_total{code="200",group="shared.example",version="v1",resource="things"}"#;
    assert_eq!(gateway.metric(rerouted), None);
}

#[tokio::test]
async fn a_body_that_is_gone_is_the_reason_of_the_refusal() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let first = Double::start("b", "v1.36.0", &GROUPS).await;
    let second = Double::start("c", "v1.36.0", &GROUPS).await;
    for server in [&first, &second] {
        server.rule(THINGS, |request| async {
            request.into_body().collect().await.unwrap();
            let mut response = answer(StatusCode::NOT_FOUND, full(NOT_ROUTED));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert("content-type", json);
            response
        });
    }
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", first.address).bare("c", second.address).start().await;
    let large = "x".repeat(200 << 10);
    let refusal = ask(gateway.address, BOTH[1], Some(&pki().alice), post(THINGS, large)).await;
    refusal.assert_refusal();
    let counted = r#"mvp_requests_total{action="refuse",reason="body-gone",code="503"}"#;
    assert_eq!(gateway.metric(counted).as_deref(), Some("1"), "{}", refusal.text());
}

#[tokio::test]
async fn a_refusal_names_the_members_whose_half_is_unconfirmed() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let lacks_api = Double::start("b", "v1.36.0", &[]).await;
    let lacks_apis = Double::start("c", "v1.36.0", &[]).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", lacks_api.address).bare("c", lacks_apis.address).start().await;
    // From now on one half of each cannot be confirmed.
    let groups = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#;
    lacks_api.says("/api", 500, "text/plain", "broken");
    lacks_api.says("/apis", 200, "application/json", groups);
    lacks_apis.says("/apis", 500, "text/plain", "broken");
    local.denies("/openapi");
    let ask_for = async |path: &str| {
        let answer = ask(gateway.address, BOTH[1], Some(&pki().alice), get(path)).await;
        answer.assert_refusal();
        answer.text()
    };
    let of_core = ask_for("/openapi/v3/api/v9").await;
    assert!(of_core.contains("not heard from b)"), "{of_core}");
    let of_group = ask_for("/openapi/v3/apis/nowhere.example/v1").await;
    assert!(of_group.contains("not heard from c)"), "{of_group}");
}

#[tokio::test]
async fn a_gateway_without_peers_does_not_repeat_what_a_backend_refused() {
    let leaving = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"apiserver is shutting down","code":503}"#;
    let local = Double::start("a", "v1.36.0", &GROUPS).await;
    local.rule(THINGS, move |_| async move {
        let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, full(leaving));
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        response
    });
    let gateway = Gateway::beside("a", &local).await.unwatched().alone().start_blind();
    let path = format!("{THINGS}/one/proxy/x");
    let said =
        ask(gateway.address, BOTH[1], Some(&pki().alice), post(&path, "{}".to_owned())).await;
    assert_eq!((said.status, said.text()), (StatusCode::SERVICE_UNAVAILABLE, leaving.to_owned()));
    assert_eq!(local.requests.of(&path).len(), 1);
}
