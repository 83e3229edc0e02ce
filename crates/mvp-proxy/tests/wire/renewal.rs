//! Discovery is as fresh as the local server's own: a change there is in the next response, although
//! members are fetched only once here. Nothing else is fetched, and nobody can cause more.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, StatusCode};
use mvp_core::member::MemberKind;
use mvp_net::Limits;
use mvp_proxy::control::{MemberRecord, StaticMembership};
use mvp_proxy::{AuthenticateLayer, Member, RemoteHeaders};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_layer::Layer;
use tower_service::Service;

use crate::client::{Answer, BOTH, TestBody, ask, full, get, with};
use crate::double::{Double, answer};
use crate::gateway::boxed;
use crate::pki::pki;
use crate::rows::V2;
use crate::soon;
use crate::world::World;

const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const V2_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn discover(at: SocketAddr, path: &str, accept: &'static str) -> Answer {
    ask(at, BOTH[1], Some(&pki().alice), with(get(path), "accept", accept)).await
}

/// How often the control loop of a gateway asked a server for this document.
fn fetches(server: &Double, path: &str) -> usize {
    let asked = server.requests.of(path).into_iter();
    let own = asked.filter(|request| request.header("x-remote-user") == Some("system:apiserver"));
    own.filter(|request| request.target == path).count()
}

#[tokio::test]
async fn a_new_api_of_the_local_server_is_in_the_next_document() {
    let world = World::start().await;
    let before = (fetches(&world.bare, "/apis"), fetches(&world.local, "/version"));
    let accepts = [V2, V2BETA1, "application/json", "application/yaml"];
    for (round, accept) in accepts.into_iter().enumerate() {
        let group = format!("new{round}.example");
        world.local.becomes("v1.36.0", &[("local.example", "things"), (&group, "things")]);
        let list = discover(world.gateway.address, "/apis", accept).await;
        assert_eq!(list.status, StatusCode::OK);
        assert!(list.text().contains(&group), "{accept}: {}", list.text());
        assert!(list.text().contains("bare.example"), "{accept}: the rest is merged as before");
    }
    let after = (fetches(&world.bare, "/apis"), fetches(&world.local, "/version"));
    assert_eq!(after, before, "only that document of that server");
}

#[tokio::test]
async fn a_new_resource_of_a_version_is_in_the_next_document() {
    let world = World::start().await;
    world.local.becomes("v1.36.0", &[("local.example", "things others")]);
    let list = discover(world.gateway.address, "/apis/local.example/v1", "application/json").await;
    assert!(list.text().contains("others"), "{}", list.text());
    // A group that a peer serves too.
    world.local.becomes("v1.36.0", &[("bare.example", "more")]);
    let list = discover(world.gateway.address, "/apis/bare.example/v1", "application/json").await;
    assert!(list.text().contains("more") && list.text().contains("things"), "{}", list.text());
    world.local.becomes("v1.36.0", &[("mvp.example", "more")]);
    let group = discover(world.gateway.address, "/apis/mvp.example", "application/json").await;
    assert_eq!(group.status, StatusCode::OK);
    let snapshot = world.gateway.reader.load();
    let local = snapshot.local().unwrap();
    assert!(local.view.version("mvp.example", "v1").is_some(), "a status is enough");
}

#[tokio::test]
async fn an_api_that_is_gone_is_a_404_and_in_no_document() {
    let paths = ["/apis/local.example/v1", "/apis/local.example", "/apis"];
    for path in paths {
        let world = World::start().await;
        world.local.becomes("v1.36.0", &[]);
        let first = discover(world.gateway.address, path, "application/json").await;
        match path {
            "/apis" => assert!(!first.text().contains("local.example"), "{}", first.text()),
            _ => assert_eq!(first.status, StatusCode::NOT_FOUND, "{path}: {}", first.text()),
        }
        let list = discover(world.gateway.address, "/apis", V2).await;
        assert!(!list.text().contains("local.example"), "{}", list.text());
    }
}

#[tokio::test]
async fn a_change_of_the_openapi_index_is_in_the_next_index() {
    let world = World::start().await;
    let index = |key: &str| {
        let url = format!("/openapi/v3/{key}?hash=AB");
        json!({"paths": {key: {"serverRelativeURL": url}}}).to_string()
    };
    let publish = |key: &'static str| {
        let (body, tag) = (index(key), format!("\"{key}\""));
        world.local.rule("/openapi/v3", move |request| {
            let known = request.headers().get("if-none-match").is_some_and(|known| *known == tag);
            let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
            let mut response = answer(status, full(if known { "" } else { &body }.to_owned()));
            response.headers_mut().insert("etag", tag.parse().unwrap());
            std::future::ready(response)
        });
    };
    publish("apis/first/v1");
    // The index of the local server was unknown so far.
    let has = |snapshot: &mvp_core::Snapshot| snapshot.openapi().entry("apis/first/v1").is_some();
    soon(world.gateway.reader.refresh(Duration::from_secs(20), has)).await;
    publish("apis/second/v1");
    let merged = discover(world.gateway.address, "/openapi/v3", "application/json").await;
    assert!(merged.text().contains("apis/second/v1"), "{}", merged.text());
}

#[tokio::test]
async fn a_flood_of_requests_causes_no_flood_of_fetches() {
    let world = World::start().await;
    let before = fetches(&world.local, "/apis");
    world.local.becomes("v1.36.0", &[("new.example", "things")]);
    let flood = (0..50).map(|_| discover(world.gateway.address, "/apis", V2));
    for list in join_all(flood).await {
        assert!(list.text().contains("new.example"), "{}", list.text());
    }
    let fetched = fetches(&world.local, "/apis") - before;
    assert!((1..=2).contains(&fetched), "{fetched} fetches: one, and one that began in its midst");
}

#[tokio::test]
async fn an_unauthorized_caller_causes_no_fetch() {
    let world = World::start().await;
    let before = fetches(&world.local, "/apis");
    let real = world.local.server();
    world.local.becomes("v1.36.0", &[("new.example", "things")]);
    let changed = world.local.server();
    world.local.rule("/apis", move |request: Request<TestBody>| {
        let is_ours = request.headers().get("x-remote-user").is_some();
        let answering = if is_ours { changed.clone() } else { real.clone() }.call(request);
        async move {
            if !is_ours {
                return answer(StatusCode::FORBIDDEN, full("{}"));
            }
            let Ok(response) = answering.await;
            response.map(|body| {
                http_body_util::BodyExt::boxed_unsync(http_body_util::BodyExt::map_err(
                    body,
                    |never| match never {},
                ))
            })
        }
    });
    for path in ["/apis", "/apis/local.example/v1"] {
        let denied = with(with(get(path), "accept", V2), "authorization", "Bearer of-mallory");
        let denied = ask(world.gateway.address, BOTH[1], None, denied).await;
        assert_eq!(denied.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(fetches(&world.local, "/apis"), before);
    let list = discover(world.gateway.address, "/apis", V2).await;
    assert!(list.text().contains("new.example"), "an authorized caller does: {}", list.text());
}

/// A server whose tag changes, but whose document cannot be used, is asked once for each request, and
/// the last known document stays in use.
#[tokio::test]
async fn a_document_that_cannot_be_used_delays_nobody() {
    let world = World::start().await;
    world.local.rule("/apis", |_| {
        let mut response = answer(StatusCode::OK, full("{"));
        response.headers_mut().insert("etag", "\"another\"".parse().unwrap());
        let kind = V2.parse().unwrap();
        response.headers_mut().insert("content-type", kind);
        std::future::ready(response)
    });
    let before = fetches(&world.local, "/apis");
    let list = discover(world.gateway.address, "/apis", V2).await;
    assert!(list.text().contains("local.example"), "{}", list.text());
    assert_eq!(fetches(&world.local, "/apis"), before + 1);
    let snapshot = world.gateway.reader.load();
    let view = &snapshot.local().unwrap().view;
    let asked = *view.asked.of(mvp_core::member::ViewDocument::Apis);
    assert!(asked > view.apis.as_ref().unwrap().confirmed, "the failed fetch ended the wait");
}

#[tokio::test]
async fn a_probe_for_protobuf_is_conditional_too() {
    let world = World::start().await;
    let request = with(get("/apis"), "accept", V2_PROTOBUF);
    ask(world.gateway.address, BOTH[1], None, request).await;
    let probe = world.local.requests.of("/apis").pop().unwrap();
    let accept = probe.header("accept").unwrap();
    assert!(accept.split(',').all(|clause| clause.contains("protobuf")), "{accept}");
    assert!(accept.starts_with(V2_PROTOBUF), "{accept}");
    assert!(probe.header("if-none-match").is_some());
}

/// A load balancer before these servers.
async fn before(servers: &[(&str, &Double)]) -> (SocketAddr, DropGuard) {
    let record = |(id, server): &(&str, &Double)| MemberRecord {
        name: (*id).into(),
        address: Some(server.address.to_string().into()),
        kind: MemberKind::Bare,
        heard: None,
    };
    let member = Member::builder("none", pki().outbound()).without_server();
    let member = member.refresh_interval(Duration::from_secs(3600)).build();
    let stop = CancellationToken::new();
    let membership = StaticMembership::new(servers.iter().map(record).collect());
    let worker = member.start(membership, stop.clone());
    let service = AuthenticateLayer::new(RemoteHeaders::default()).layer(worker.gateway());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = pki().server_tls();
    tokio::spawn(mvp_net::serve(listener, tls, Limits::default(), boxed(service), stop.clone()));
    let seen = |snapshot: &mvp_core::Snapshot| {
        snapshot.members().count() > 0
            && snapshot.members().all(|m| m.view.api.is_some() && m.view.apis.is_some())
    };
    soon(member.reader().wait_for(seen)).await;
    (address, stop.drop_guard())
}

#[tokio::test]
async fn a_load_balancer_asks_every_member_before_it_answers() {
    let a = Double::start("a", "v1.36.0", &[]).await;
    let b = Double::start("b", "v1.36.0", &[]).await;
    let (address, _stop) = before(&[("a", &a), ("b", &b)]).await;
    let before = fetches(&a, "/version");
    for round in 0..4 {
        let group = format!("new{round}.example");
        let server = if round % 2 == 0 { &a } else { &b };
        server.becomes("v1.36.0", &[(&group, "things")]);
        let list = discover(address, "/apis", V2).await;
        assert!(list.text().contains(&group), "{}", list.text());
    }
    assert_eq!(fetches(&a, "/version"), before, "only that document");
    let rounds = fetches(&a, "/apis");
    let flood = (0..50).map(|_| discover(address, "/apis", V2));
    for list in join_all(flood).await {
        assert_eq!(list.status, StatusCode::OK);
    }
    let rounds = fetches(&a, "/apis") - rounds;
    assert!(rounds < 15, "{rounds} rounds for 50 requests");
}
