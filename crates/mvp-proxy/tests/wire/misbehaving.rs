//! Clients and backends that misbehave on a shared connection: other callers keep theirs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use testkit::certificates::cn;
use tokio::sync::Semaphore;

use crate::broken::{Front, Mode};
use crate::client::{BOTH, Client, Protocol, TestBody, ask, full, get, request, streamed};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::isolation::WATCH;
use crate::pki::pki;
use crate::soon;
use crate::world::{LOCAL, MVP, World};

#[tokio::test]
async fn a_client_that_resets_streams_is_disconnected_and_other_watches_survive() {
    let world = World::start().await;
    for (path, server) in [(LOCAL, &world.local), (MVP, &world.behind)] {
        let watched = if path == LOCAL { WATCH } else { "/apis/mvp.example/v1/things?watch=1" };
        let (events, event) = tokio::sync::mpsc::channel::<()>(1);
        let event = Arc::new(tokio::sync::Mutex::new(event));
        let reached = Arc::new(Semaphore::new(0));
        let arrived = Arc::clone(&reached);
        server.rule("/apis/", move |request: Request<TestBody>| {
            let (event, arrived) = (Arc::clone(&event), Arc::clone(&arrived));
            async move {
                if request.uri().query() != Some("watch=1") {
                    arrived.add_permits(1);
                    return std::future::pending::<Response<TestBody>>().await;
                }
                let (sender, body) = streamed();
                tokio::spawn(async move {
                    while event.lock().await.recv().await.is_some() {
                        let _ = sender.send(Frame::data(Bytes::from_static(b"event"))).await;
                    }
                });
                answer(StatusCode::OK, body)
            }
        });
        let alice = Some(&pki().alice);
        let mut client = Client::connect(world.gateway.address, Protocol::Http2, alice).await;
        let mut watch = client.open(get(watched)).await;

        let mallory = pki().clients.client(&[cn("mallory")]);
        let Client::Http2(sender) =
            Client::connect(world.gateway.address, Protocol::Http2, Some(&mallory)).await
        else {
            unreachable!()
        };
        let attack = async {
            while !sender.is_closed() {
                let requests: Vec<_> = (0..20)
                    .map(|_| {
                        let mut client = Client::Http2(sender.clone());
                        let attack = request(Method::POST, path, full("{}"));
                        tokio::spawn(async move { drop(client.try_open(attack).await) })
                    })
                    .collect();
                // The requests are sent before they are reset, unless the connection is closed.
                let sent = async {
                    reached.acquire_many(20).await.unwrap().forget();
                };
                let ended = async {
                    while !sender.is_closed() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::select! { () = sent => {}, () = ended => {} }
                for task in requests {
                    task.abort();
                }
            }
        };
        soon(attack).await;
        let resets = server.requests.of(path).len();
        assert!((200..=450).contains(&resets), "{path}: {resets}");

        // The watch is undisturbed, and no server is ejected.
        events.send(()).await.unwrap();
        let frame = soon(watch.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "event", "{path}");
        assert_eq!(world.gateway.metric("mvp_ejections_total{member=\"c\"}"), None);
        assert!(!client_is_closed(&client), "{path}");
    }
}

fn client_is_closed(client: &Client) -> bool {
    match client {
        Client::Http1(sender) => sender.is_closed(),
        Client::Http2(sender) => sender.is_closed(),
    }
}

#[tokio::test]
async fn a_reset_stream_does_not_eject_its_server() {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let broken = Double::start("b", "v1.37.0", &groups).await;
    let fine = Double::start("c", "v1.36.0", &groups).await;
    let front = Front::before(&broken).await;
    let plan = Gateway::beside("a", &local).await.unwatched();
    let gateway = plan.bare("b", front.address).bare("c", fine.address).start().await;
    front.becomes(Mode::ResetStream);
    let path = "/apis/shared.example/v1/namespaces/default/things";
    // More failures than lead to an ejection.
    for _ in 0..5 {
        let post = request(Method::POST, path, full("{}"));
        let answer = ask(gateway.address, Protocol::Http2, Some(&pki().alice), post).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", answer.text());
    }
    assert!(fine.requests.of(path).is_empty(), "sent to another");
    let mut text = String::new();
    gateway.metrics.encode(&mut text);
    let counted = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    assert_eq!(counted("mvp_ejections_total{"), None);
    assert_eq!(counted("mvp_failovers_total{"), None);
}

#[tokio::test]
async fn a_busy_server_that_answers_a_ping_late_keeps_its_watches() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let busy = Double::start("b", "v1.36.0", &[("shared.example", "things")]).await;
    let front = Front::before(&busy).await;
    let plan = Gateway::beside("a", &local).await.unwatched();
    let gateway = plan.bare("b", front.address).start().await;
    let things = "/apis/shared.example/v1/namespaces/default/things";
    let (events, body) = streamed();
    let body = std::sync::Mutex::new(Some(body));
    busy.rule(things, move |request: Request<TestBody>| {
        let watched =
            request.uri().query().is_some().then(|| body.lock().unwrap().take()).flatten();
        std::future::ready(answer(StatusCode::OK, watched.unwrap_or_else(|| full("{}"))))
    });
    let mut client = Client::connect(gateway.address, Protocol::Http2, Some(&pki().alice)).await;
    let mut watch = client.open(get(&format!("{things}?watch=1"))).await;

    front.hold(Some(busy.requests.of(things)[0].port));
    // Longer than two PINGs and the silence after which a server counts as hung.
    let until = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until {
        assert_eq!(client.send(get(things)).await.status, StatusCode::OK);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    front.hold(None);
    events.send(Frame::data(Bytes::from_static(b"event"))).await.unwrap();
    let frame = soon(watch.frame()).await.unwrap().expect("the watch goes on");
    assert_eq!(frame.into_data().unwrap(), "event");
}

#[tokio::test]
async fn a_backend_that_imitates_a_shutdown_gets_a_write_once() {
    let leaving = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"apiserver is shutting down\",\"reason\":\"ServiceUnavailable\",\"code\":503}";
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &groups).await;
    let peer = Double::start("b", "v1.36.0", &groups).await;
    let gateway = Gateway::beside("a", &local).await.bare("b", peer.address).start().await;
    let things = "/apis/shared.example/v1/namespaces/default/things";
    for server in [&local, &peer] {
        server.rule(things, move |_| async move {
            let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, full(leaving));
            let headers = response.headers_mut();
            headers.insert("retry-after", http::HeaderValue::from_static("1"));
            headers.insert("content-type", http::HeaderValue::from_static("application/json"));
            response
        });
    }
    for protocol in BOTH {
        let path = format!("{things}/one/proxy/{protocol:?}");
        let post = request(Method::POST, &path, full("{}"));
        let answer = ask(gateway.address, protocol, Some(&pki().alice), post).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.text(), leaving, "its own words");
        let arrived = local.requests.of(&path).len() + peer.requests.of(&path).len();
        assert_eq!(arrived, 1, "{protocol:?}");
    }
    // A server that sends this itself has processed nothing.
    let post = request(Method::POST, things, full("{}"));
    ask(gateway.address, Protocol::Http2, Some(&pki().alice), post).await;
    assert!(!peer.requests.of(things).is_empty(), "not sent to the peer");
}
