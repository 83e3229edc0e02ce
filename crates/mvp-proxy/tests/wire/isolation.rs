//! One caller never disturbs another: who shares an upstream connection with whom, and who is blamed
//! for trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use crate::client::{BOTH, Client, Protocol, TestBody, ask, full, get, request, streamed, with};
use crate::double::{Double, answer};
use crate::pki::pki;
use crate::record::Recorded;
use crate::world::{LOCAL, MVP, World};
use crate::{soon, until};

/// As many connections as there are for anonymous callers.
const ANONYMOUS: usize = 32;
/// A watch that the local server serves.
pub const WATCH: &str = "/apis/local.example/v1/namespaces/default/things?watch=1";

/// How many of these came over each connection.
fn by_connection(requests: &[Recorded]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.port).or_default() += 1;
    }
    counts
}

fn ports(requests: &[Recorded]) -> BTreeSet<u16> {
    by_connection(requests).into_keys().collect()
}

/// Answers that begin, and go on for as long as the test.
fn lasts(server: &Double, prefix: &'static str) {
    server.rule(prefix, |_| async {
        let (sender, body) = streamed();
        sender.send(Frame::data(Bytes::from_static(b"{}\n"))).await.unwrap();
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        answer(StatusCode::OK, body)
    });
}

/// Answers that begin when the test adds permits.
fn waits(server: &Double, prefix: &'static str) -> Arc<Semaphore> {
    let permits = Arc::new(Semaphore::new(0));
    let taken = Arc::clone(&permits);
    server.rule(prefix, move |_| {
        let taken = Arc::clone(&taken);
        async move {
            taken.acquire().await.unwrap().forget();
            answer(StatusCode::OK, full("{}"))
        }
    });
    permits
}

#[tokio::test]
async fn watches_are_spread_over_connections_without_short_requests() {
    let world = World::start().await;
    lasts(&world.local, LOCAL);
    let mut watches = Vec::new();
    let mut client =
        Client::connect(world.gateway.address, Protocol::Http2, Some(&pki().alice)).await;
    for _ in 0..80 {
        watches.push(client.open(get(WATCH)).await);
    }
    let spread = by_connection(&world.local.requests.of(WATCH));
    assert!(spread.values().all(|streams| *streams <= 16), "{spread:?}");
    // As few as that allows: kube-apiserver sees little more than it would see without us.
    assert_eq!(spread.len(), 5, "{spread:?}");

    world.local.says("/version", 200, "application/json", "{}");
    client.send(get("/version")).await;
    let short = ports(&world.local.requests.of("/version"));
    assert!(short.iter().all(|port| !spread.contains_key(port)), "{short:?} {spread:?}");
}

/// Sends a request with this token over a connection of its own that stays; how it was answered, and
/// over which connection it came.
async fn with_token(world: &World, client: &mut Client, token: &'static str) -> (StatusCode, u16) {
    let before = world.local.requests.of(LOCAL).len();
    let answer = client.send(with(get(LOCAL), "authorization", token)).await;
    let requests = world.local.requests.of(LOCAL);
    assert_eq!(requests.len(), before + 1);
    (answer.status, requests[before].port)
}

#[tokio::test]
async fn an_unverified_token_does_not_share_a_connection() {
    let world = World::start().await;
    let address = world.gateway.address;
    for protocol in BOTH {
        let (good, expires) = match protocol {
            Protocol::Http1 => ("Bearer good-1", "Bearer expires-1"),
            Protocol::Http2 => ("Bearer good-2", "Bearer expires-2"),
        };
        let expired = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let has_expired = Arc::clone(&expired);
        world.local.rule(LOCAL, move |request: Request<TestBody>| {
            let token = request.headers()["authorization"].to_str().unwrap();
            let expired = has_expired.load(std::sync::atomic::Ordering::Relaxed);
            let known = token.contains("good") || (token.contains("expires") && !expired);
            let status = if known { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            std::future::ready(answer(status, full("{}")))
        });
        let mut one = Client::connect(address, protocol, None).await;
        let mut two = Client::connect(address, protocol, None).await;
        let (status, alone_one) = with_token(&world, &mut one, good).await;
        assert_eq!(status, StatusCode::OK);
        let (status, alone_two) = with_token(&world, &mut two, expires).await;
        assert_eq!(status, StatusCode::OK);
        assert_ne!(alone_one, alone_two, "{protocol:?}: both were unknown");

        // Now both are known, and share.
        let (_, shared_one) = with_token(&world, &mut one, good).await;
        let (_, shared_two) = with_token(&world, &mut two, expires).await;
        assert_eq!(shared_one, shared_two, "{protocol:?}");
        assert!(![alone_one, alone_two].contains(&shared_one), "{protocol:?}");

        // Junk never comes near that connection, however often.
        for junk in ["Bearer junk", "Bearer junk", "Bearer other junk"] {
            let mut client = Client::connect(address, protocol, None).await;
            let (status, port) = with_token(&world, &mut client, junk).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED);
            assert!(![shared_one, alone_one, alone_two].contains(&port), "{protocol:?}");
        }

        // One that expires is noticed once, and is alone again.
        expired.store(true, std::sync::atomic::Ordering::Relaxed);
        let (status, port) = with_token(&world, &mut two, expires).await;
        assert_eq!((status, port), (StatusCode::UNAUTHORIZED, shared_one), "{protocol:?}");
        let mut two = Client::connect(address, protocol, None).await;
        let (status, port) = with_token(&world, &mut two, expires).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert_ne!(port, shared_one, "{protocol:?}");
    }
}

#[tokio::test]
async fn unverified_tokens_forwarded_to_a_peer_do_not_share_a_connection() {
    let world = World::start().await;
    lasts(&world.behind, MVP);
    let mut watches = Vec::new();
    for number in 0..20 {
        let mut client = Client::connect(world.gateway.address, Protocol::Http2, None).await;
        let mut request = get(MVP);
        let token = http::HeaderValue::try_from(format!("Bearer {number}")).unwrap();
        request.headers_mut().insert("authorization", token);
        watches.push((client.open(request).await, client));
    }
    let spread = by_connection(&world.behind.requests.of(MVP));
    assert_eq!(spread.len(), 20, "{spread:?}");
    // Between the two gateways they share.
    assert_eq!(ports(&world.mvp.requests.of(MVP)).len(), 1);
}

#[tokio::test]
async fn anonymous_callers_use_a_bounded_number_of_connections() {
    let world = World::start().await;
    let permits = waits(&world.local, LOCAL);
    // An anonymous HTTP/2 connection ends after its first answer: all are asked before that.
    let anonymous = Client::connect(world.gateway.address, Protocol::Http2, None).await;
    let Client::Http2(sender) = anonymous else { unreachable!() };
    let mut open: Vec<_> = (0..100)
        .map(|_| {
            let mut client = Client::Http2(sender.clone());
            tokio::spawn(async move { client.try_open(get(LOCAL)).await })
        })
        .collect();
    until(|| world.local.requests.of(LOCAL).len() == ANONYMOUS).await;

    world.local.says("/version", 200, "application/json", "{}");
    let alice = Some(&pki().alice);
    let answer = ask(world.gateway.address, Protocol::Http2, alice, get("/version")).await;
    assert_eq!(answer.status, StatusCode::OK);

    // Those who wait for too long are told so, while the first have no answer yet.
    until(|| open.iter().filter(|task| task.is_finished()).count() == 100 - ANONYMOUS).await;
    let (refused, served): (Vec<_>, Vec<_>) = open.drain(..).partition(|task| task.is_finished());
    for task in refused {
        let response = task.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "1");
    }
    permits.add_permits(ANONYMOUS);
    for task in served {
        assert_eq!(soon(task).await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(ports(&world.local.requests.of(LOCAL)).len(), ANONYMOUS);
}

#[tokio::test]
async fn a_caller_anonymous_to_the_server_never_shares_a_connection() {
    let world = World::start().await;
    world.local.says("/version", 200, "application/json", "{}");
    // kube-apiserver passes over what is not a bearer token.
    for header in ["Basic x", "Bearer", "Bearer  two-spaces", "bearer"] {
        for _ in 0..2 {
            let request = with(get("/version?by=nobody"), "authorization", header);
            let answer = ask(world.gateway.address, Protocol::Http2, None, request).await;
            assert_eq!(answer.status, StatusCode::OK, "{header}");
        }
    }
    let anonymous = world.local.requests.of("/version?by=nobody");
    assert_eq!(anonymous.len(), 8);
    assert!(anonymous.iter().all(|seen| seen.version == http::Version::HTTP_11), "{anonymous:?}");
    // Nor is one whom a front proxy calls so.
    let request = with(get("/version?by=proxy"), "x-remote-user", "system:anonymous");
    let answer = ask(world.gateway.address, Protocol::Http2, Some(&pki().proxy), request).await;
    assert_eq!(answer.status, StatusCode::OK);
    let named = world.local.requests.only("/version?by=proxy");
    assert_eq!(named.version, http::Version::HTTP_11);
    assert_eq!(named.header("x-remote-user"), Some("system:anonymous"));
}

#[tokio::test]
async fn anonymous_uploads_and_slow_readers_do_not_block_health_checks() {
    let world = World::start().await;
    world.local.says("/readyz", 200, "text/plain", "ok");
    let mut slow = Vec::new();
    for _ in 0..50 {
        let (sender, body) = streamed();
        let mut client = Client::connect(world.gateway.address, Protocol::Http1, None).await;
        let upload = request(Method::POST, LOCAL, body);
        slow.push((tokio::spawn(async move { client.try_open(upload).await }), sender));
    }
    until(|| world.local.requests.of(LOCAL).len() == 8).await;
    // Its answer is never read.
    let unread = Client::connect(world.gateway.address, Protocol::Http1, None).await;
    let Client::Http1(mut sender) = unread else { unreachable!() };
    sender.ready().await.unwrap();
    let _unread = soon(sender.send_request(with(get("/readyz"), "host", "x"))).await.unwrap();
    for _ in 0..40 {
        let answer = ask(world.gateway.address, Protocol::Http1, None, get("/readyz")).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn unverified_tokens_of_one_client_are_bounded_towards_a_peer() {
    let world = World::start().await;
    let permits = waits(&world.behind, MVP);
    let Client::Http2(sender) = Client::connect(world.gateway.address, Protocol::Http2, None).await
    else {
        unreachable!()
    };
    let mut open: Vec<_> = (0..30)
        .map(|number| {
            let mut client = Client::Http2(sender.clone());
            let mut request = get(MVP);
            let token = http::HeaderValue::try_from(format!("Bearer {number}")).unwrap();
            request.headers_mut().insert("authorization", token);
            tokio::spawn(async move { client.try_open(request).await })
        })
        .collect();
    until(|| open.iter().filter(|task| task.is_finished()).count() == 14).await;
    assert_eq!(world.behind.requests.of(MVP).len(), 16);
    // Another client is not affected.
    permits.add_permits(1);
    let request = with(get(MVP), "authorization", "Bearer other");
    let other = tokio::spawn({
        let address = world.gateway.address;
        async move { ask(address, Protocol::Http2, None, request).await.status }
    });
    until(|| world.behind.requests.of(MVP).len() == 17).await;
    permits.add_permits(16);
    assert_eq!(soon(other).await.unwrap(), StatusCode::OK);
    let mut statuses = BTreeMap::new();
    for task in open.drain(..) {
        *statuses.entry(soon(task).await.unwrap().unwrap().status().as_u16()).or_insert(0) += 1;
    }
    assert_eq!(statuses, BTreeMap::from([(200, 16), (429, 14)]));
}

#[tokio::test]
async fn a_read_with_a_body_or_large_trailers_breaks_no_shared_connection() {
    let world = World::start().await;
    lasts(&world.local, LOCAL);
    let alice = Some(&pki().alice);
    let mut client = Client::connect(world.gateway.address, Protocol::Http2, alice).await;
    let _shared = client.open(get(WATCH)).await;
    let _alone = client.open(request(Method::GET, WATCH, full("unread"))).await;
    assert_eq!(by_connection(&world.local.requests.of(WATCH)).len(), 2);

    world.local.rule("/api/", |request: Request<TestBody>| async {
        let _ = request.into_body().collect().await;
        answer(StatusCode::CREATED, full("{}"))
    });
    for (size, arrives) in [(100, true), (100 << 10, false)] {
        let path = format!("/api/v1/namespaces/default/configmaps?size={size}");
        let (sender, body) = streamed();
        let mut trailers = http::HeaderMap::new();
        let value = http::HeaderValue::try_from("x".repeat(size)).unwrap();
        trailers.insert("x-trailer", value);
        tokio::spawn(async move {
            sender.send(Frame::data(Bytes::from_static(b"{}"))).await.unwrap();
            sender.send(Frame::trailers(trailers)).await.unwrap();
        });
        let answer = client.send(request(Method::POST, &path, body)).await;
        assert_eq!(answer.status, StatusCode::CREATED);
        let seen = world.local.requests.only(&path);
        let passed = seen.trailers.is_some_and(|trailers| trailers.contains_key("x-trailer"));
        assert_eq!(passed, arrives, "{size}");
    }
}
