//! The local server of a peer's gateway is down or not ready: the peer refuses, and another serves
//! the request.

use http::{Method, Response, StatusCode};
use mvp_core::decide::LocalHealth;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, Client, ask, full, get, post, request, with};
use crate::double::Double;
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::rows::thing;

#[tokio::test]
async fn a_peer_with_its_server_down_refuses_and_another_peer_serves() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&b).await;
    let gateway_c = Gateway::beside("c", &c).await.start().await;
    let plan = Gateway::beside_address("b", front.address).await;
    let gateway_b = plan.mvp("c", gateway_c.address).start().await;
    let plan = Gateway::beside("a", &a).await;
    let plan = plan.mvp("b", gateway_b.address).mvp("c", gateway_c.address);
    let gateway_a = plan.start().await;
    front.becomes(Mode::Reset);
    gateway_b.takes_local_for(LocalHealth::Unreachable).await;

    let proxied =
        with(with(get(path), "x-remote-user", "bob"), "x-kubernetes-peer-proxied", "true");
    let answer = ask(gateway_b.address, BOTH[1], Some(&pki().proxy), proxied).await;
    answer.assert_refusal();
    assert_eq!(answer.headers["x-mvp-refused"], "local-down");
    assert!(gateway_c.requests.of(path).is_empty(), "it was not proxied again");
    // A request of a client is proxied.
    assert_eq!(
        ask(gateway_b.address, BOTH[1], Some(&pki().alice), get(path)).await.status,
        StatusCode::OK
    );

    let (before_b, before_c) =
        (gateway_b.requests.of(path).len(), gateway_c.requests.of(path).len());
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    assert!(answer.headers.get("x-mvp-refused").is_none());
    // B, as the newest, was tried first, once; C served it; nothing came back to A.
    assert_eq!(gateway_b.requests.of(path).len(), before_b + 1);
    assert_eq!(gateway_c.requests.of(path).len(), before_c + 1);
    assert_eq!(gateway_a.requests.of(path).len(), 1);
    // From now on it is ejected.
    for _ in 0..4 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!(gateway_b.requests.of(path).len(), before_b + 1);
    assert_eq!(c.server().processed(&Method::POST), 1);
}

#[tokio::test]
async fn a_peer_with_an_unready_server_serves_only_what_nobody_else_serves() {
    let lone = "/apis/lone.example/v1/namespaces/default/things";
    let shared = "/apis/shared.example/v1/namespaces/default/things";
    let groups = [("shared.example", "things"), ("lone.example", "things")];
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.37.0", &groups[..1]).await;
    let plan = Gateway::beside("b", &b).await.bare("c", c.address);
    let gateway_b = plan.start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    b.says("/readyz", 500, "text/plain", "[-]shutdown failed\n");
    gateway_b.takes_local_for(LocalHealth::Unready).await;
    for path in [shared, lone] {
        for group in ["one", "two"] {
            let create = post(path, thing(path.split('/').nth(2).unwrap(), group));
            let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        }
    }
    assert_eq!((b.requests.of(shared).len(), b.requests.of(lone).len()), (0, 2));
    assert_eq!(c.requests.of(shared).len(), 2);
    // It works as far as it can, and is not ejected.
    assert!(gateway_a.metric("mvp_ejections_total{member=\"b\"}").is_none());
}

#[tokio::test]
async fn two_gateways_with_servers_down_do_not_loop() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let (a, b) = (
        Double::start("a", "v1.36.0", &groups).await,
        Double::start("b", "v1.36.0", &groups).await,
    );
    let (front_a, front_b) = (Front::before(&a).await, Front::before(&b).await);
    let plan_a = Gateway::beside_address("a", front_a.address).await;
    let plan_b = Gateway::beside_address("b", front_b.address).await;
    let (address_a, address_b) = (plan_a.address(), plan_b.address());
    let gateway_a = plan_a.mvp("b", address_b).start_blind();
    let gateway_b = plan_b.mvp("a", address_a).start().await;
    gateway_a.has_seen(&["a", "b"]).await;
    front_a.becomes(Mode::Reset);
    front_b.becomes(Mode::Reset);
    for method in [Method::GET, Method::POST] {
        let before = (gateway_a.requests.of(path).len(), gateway_b.requests.of(path).len());
        let sent = request(method, path, full("{}"));
        ask(gateway_a.address, BOTH[1], Some(&pki().alice), sent).await.assert_refusal();
        let after = (gateway_a.requests.of(path).len(), gateway_b.requests.of(path).len());
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
    }
}

#[tokio::test]
async fn a_refusal_header_from_a_server_is_ignored() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let gateway_b = Gateway::beside("b", &b).await.start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    // It processes requests, as an extension server might, and claims that it did not.
    b.rule(path, |_| {
        let response = Response::builder().status(503).header("x-mvp-refused", "local-down");
        std::future::ready(response.body(full("{}".to_owned())).unwrap())
    });
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers.get("x-mvp-refused").is_none());
    assert_eq!(b.requests.of(path).len(), 1);
    assert!(c.requests.of(path).is_empty(), "a write was sent twice");
}

#[tokio::test]
async fn an_unready_peer_costs_no_retry_budget() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let gateway_b = Gateway::beside("b", &b).await.bare("c", c.address).start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    b.says("/readyz", 500, "text/plain", "[-]shutdown failed\n");
    gateway_b.takes_local_for(LocalHealth::Unready).await;
    let mut client = Client::connect(gateway_a.address, BOTH[1], Some(&pki().alice)).await;
    // Many more than the retry budget allows.
    for round in 0..600 {
        let read = client.send(get(path)).await;
        assert_eq!(read.status, StatusCode::OK, "read {round}: {}", read.text());
        let create = post(path, thing("shared.example", &format!("thing-{round}")));
        let write = client.send(create).await;
        assert_eq!(write.status, StatusCode::CREATED, "write {round}: {}", write.text());
    }
    let asked = gateway_b.requests.of(path).len();
    assert!(asked < 100, "it was asked {asked} times");
    assert!(gateway_a.metric("mvp_ejections_total{member=\"b\"}").is_none());
}

#[tokio::test]
async fn a_lost_read_behind_a_peer_gateway_is_retried_and_a_write_is_not() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.37.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&b).await;
    let plan = Gateway::beside_address("b", front.address).await;
    let gateway_b = plan.bare("c", c.address).unwatched().start().await;
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", gateway_b.address).bare("c", c.address).start().await;
    front.becomes(Mode::AfterSending);
    // Reads are spread: one of two goes to b.
    for _ in 0..2 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert!(!gateway_b.requests.of(path).is_empty(), "nothing was lost");
    // As the newest, b gets a write first, and may have processed it.
    let create = post(path, thing("shared.example", "one"));
    let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
    answer.assert_refusal();
    assert!(answer.headers.get("x-mvp-lost").is_none());
    assert_eq!(c.server().processed(&Method::POST), 0);
}

#[tokio::test]
async fn an_unready_member_serves_when_no_member_is_ready() {
    let groups = [("shared.example", "things")];
    let path = "/apis/shared.example/v1/namespaces/default/things";
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &groups).await;
    let c = Double::start("c", "v1.36.0", &groups).await;
    let (plan_b, plan_c) = (Gateway::beside("b", &b).await, Gateway::beside("c", &c).await);
    let (address_b, address_c) = (plan_b.address(), plan_c.address());
    let gateway_b = plan_b.mvp("c", address_c).start_blind();
    let gateway_c = plan_c.mvp("b", address_b).start_blind();
    let plan = Gateway::beside("a", &a).await;
    let gateway_a = plan.mvp("b", address_b).mvp("c", address_c).start().await;
    for (server, gateway) in [(&b, &gateway_b), (&c, &gateway_c)] {
        gateway.has_seen(&["b", "c"]).await;
        server.says("/readyz", 500, "text/plain", "[-]etcd failed\n");
        gateway.takes_local_for(LocalHealth::Unready).await;
    }
    for round in 0..3 {
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), get(path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let create = post(path, thing("shared.example", &format!("thing-{round}")));
        let answer = ask(gateway_a.address, BOTH[1], Some(&pki().alice), create).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    }
    let made = b.server().processed(&Method::POST) + c.server().processed(&Method::POST);
    assert_eq!(made, 3);
    // The header is internal: no server receives it.
    for server in [&b, &c] {
        for seen in server.requests.of(path) {
            assert_eq!(seen.header("x-mvp-insists"), None);
        }
    }
}
