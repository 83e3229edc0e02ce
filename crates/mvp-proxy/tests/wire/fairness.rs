//! Users share the requests in flight to a peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use mvp_proxy::PeerLimits;
use testkit::certificates::{Pair, cn, o};
use tokio::sync::Semaphore;

use crate::client::{Answer, Client, Protocol, ask, full, get, streamed};
use crate::double::{Double, answer};
use crate::pki::pki;
use crate::until;
use crate::world::{BARE, World};

const WATCH: &str = "/apis/bare.example/v1/namespaces/default/things?watch=1";

async fn world(requests: usize, watches: usize) -> World {
    World::with(|plan| plan.peer_limits(PeerLimits { requests, watches })).await
}

fn user(name: &'static str, group: &'static str) -> Pair {
    pki().clients.client(&[cn(name), o(group)])
}

/// Makes responses start when the test adds permits. Returns the number of requests that wait, too.
fn waits(server: &Double) -> (Arc<Semaphore>, Arc<AtomicUsize>) {
    let (permits, arrived) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let state = (Arc::clone(&permits), Arc::clone(&arrived));
    server.rule(BARE, move |_| {
        let (permits, arrived) = state.clone();
        async move {
            arrived.fetch_add(1, Ordering::SeqCst);
            permits.acquire().await.unwrap().forget();
            answer(StatusCode::OK, full("{}"))
        }
    });
    (permits, arrived)
}

/// Sends a request over a connection of its own, in a task.
fn sends(world: &World, who: &Pair) -> tokio::task::JoinHandle<Answer> {
    let (address, who) = (world.gateway.address, who.clone());
    tokio::spawn(async move { ask(address, Protocol::Http2, Some(&who), get(BARE)).await })
}

#[tokio::test]
async fn over_the_bound_users_wait_shortly_and_get_a_429() {
    let world = world(2, 0).await;
    let (permits, arrived) = waits(&world.bare);
    let first = [sends(&world, &pki().alice), sends(&world, &pki().alice)];
    until(|| arrived.load(Ordering::SeqCst) == 2).await;

    let refused = sends(&world, &pki().alice).await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
    assert_eq!(refused.headers["retry-after"], "1");
    let status = refused.json();
    assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &429.into()), "{status}");
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(status["message"].as_str().unwrap().contains("the API server b is busy"), "{status}");
    assert_eq!(world.gateway.metric("mvp_peer_refusals_total").as_deref(), Some("1"));

    // Neither of them waits for anybody.
    let (admin, node) = (user("admin", "system:masters"), user("system:node:n", "system:nodes"));
    let privileged = [sends(&world, &admin), sends(&world, &admin), sends(&world, &node)];
    until(|| arrived.load(Ordering::SeqCst) == 5).await;

    permits.add_permits(5);
    for request in first.into_iter().chain(privileged) {
        assert_eq!(request.await.unwrap().status, StatusCode::OK);
    }
    permits.add_permits(1);
    assert_eq!(sends(&world, &pki().alice).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_user_with_many_requests_does_not_keep_another_waiting() {
    let world = world(8, 0).await;
    let (permits, arrived) = waits(&world.bare);
    let many: Vec<_> = (0..40).map(|_| sends(&world, &pki().alice)).collect();
    // Half of the bound, and half of the rest.
    until(|| arrived.load(Ordering::SeqCst) == 6).await;
    let refusals = || -> usize {
        let count = world.gateway.metric("mvp_peer_refusals_total");
        count.unwrap().parse().unwrap()
    };
    // The first of hers have waited for too long.
    until(|| refusals() > 0).await;
    assert_eq!(arrived.load(Ordering::SeqCst), 6);
    let bob = sends(&world, &user("bob", "developers"));
    // None of hers has ended.
    until(|| arrived.load(Ordering::SeqCst) == 7).await;
    permits.add_permits(1_000);
    assert_eq!(bob.await.unwrap().status, StatusCode::OK);
    let mut served = 0;
    for request in many {
        served += usize::from(request.await.unwrap().status == StatusCode::OK);
    }
    assert!(served >= 6, "{served}");
    assert_eq!(served + refusals(), 40);
}

/// The most that one user can do: responses that never end.
#[tokio::test]
async fn one_user_cannot_hold_all_places_with_watches_that_last() {
    let world = world(0, 8).await;
    world.bare.rule(BARE, |_| async {
        let (sender, body) = streamed();
        sender.send(Frame::data(Bytes::from_static(b"{}\n"))).await.unwrap();
        tokio::spawn(async move { sender.closed().await });
        answer(StatusCode::OK, body)
    });
    let connect =
        async |who: &Pair| Client::connect(world.gateway.address, Protocol::Http2, Some(who)).await;
    let (mut alice, mut watches) = (connect(&pki().alice).await, Vec::new());
    for _ in 0..6 {
        watches.push(alice.open(get(WATCH)).await);
    }
    assert!(watches.iter().all(|watch| watch.status() == StatusCode::OK));
    let refused = ask(world.gateway.address, Protocol::Http2, Some(&pki().alice), get(WATCH)).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.text().contains("too many requests of this user"), "{}", refused.text());
    let mut bob = connect(&user("bob", "developers")).await;
    assert_eq!(bob.open(get(WATCH)).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_place_is_given_back_however_a_request_ends() {
    let world = world(1, 1).await;
    let alice = &pki().alice;
    for path in [BARE, WATCH] {
        // The client leaves in the middle of the response.
        world.bare.rule(BARE, |_| async {
            let (sender, body) = streamed();
            sender.send(Frame::data(Bytes::from_static(b"{}\n"))).await.unwrap();
            tokio::spawn(async move { sender.closed().await });
            answer(StatusCode::OK, body)
        });
        let mut client = Client::connect(world.gateway.address, Protocol::Http2, Some(alice)).await;
        let response = client.open(get(path)).await;
        let refused = ask(world.gateway.address, Protocol::Http2, Some(alice), get(path)).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{path}");
        drop((response, client));
        until(|| world.gateway.metric("mvp_in_flight").as_deref() == Some("0")).await;
        // A short response, without and with a body, and one after the other.
        for body in ["", "{}", "{}"] {
            world.bare.says(BARE, 200, "application/json", body);
            let served = ask(world.gateway.address, Protocol::Http2, Some(alice), get(path)).await;
            assert_eq!(served.status, StatusCode::OK, "{path}: {}", served.text());
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_no_place() {
    let world = world(1, 0).await;
    let alice = &pki().alice;
    world.bare.says(BARE, 200, "application/json", "{}");
    let mut client = Client::without_window(world.gateway.address, Some(alice)).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        // Each needs the only place.
        let response = client.open(get(BARE)).await;
        assert_eq!(response.status(), StatusCode::OK);
        unread.push(response);
    }
    until(|| world.gateway.metric("mvp_in_flight").as_deref() == Some("0")).await;
    assert_eq!(world.gateway.metric("mvp_peer_refusals_total").as_deref(), Some("0"));
}

#[tokio::test]
async fn watches_and_other_requests_do_not_share_a_bound() {
    let world = world(1, 1).await;
    world.bare.rule(BARE, |_| async {
        let (sender, body) = streamed();
        sender.send(Frame::data(Bytes::from_static(b"{}\n"))).await.unwrap();
        tokio::spawn(async move { sender.closed().await });
        answer(StatusCode::OK, body)
    });
    let mut client =
        Client::connect(world.gateway.address, Protocol::Http2, Some(&pki().alice)).await;
    let watch = client.open(get(WATCH)).await;
    let list = client.open(get(BARE)).await;
    assert_eq!((watch.status(), list.status()), (StatusCode::OK, StatusCode::OK));
}

#[tokio::test]
async fn a_429_of_the_peer_passes_and_slows_its_user_alone() {
    let world = world(32, 0).await;
    world.bare.rule(BARE, |_| async {
        let mut response = answer(StatusCode::TOO_MANY_REQUESTS, full("Too many requests"));
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("retry-after", "7"),
            ("x-kubernetes-pf-flowschema-uid", "a-schema"),
            ("x-kubernetes-pf-prioritylevel-uid", "a-level"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    });
    let passed = sends(&world, &pki().alice).await.unwrap();
    assert_eq!(passed.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(passed.text(), "Too many requests");
    assert_eq!(passed.headers["retry-after"], "7");
    assert_eq!(passed.headers["x-kubernetes-pf-flowschema-uid"], "a-schema");
    assert_eq!(passed.headers["x-kubernetes-pf-prioritylevel-uid"], "a-level");
    assert_eq!(world.gateway.metric("mvp_peer_slowdowns_total").as_deref(), Some("1"));

    // An eighth of the bound for her, the rest for others.
    let (permits, arrived) = waits(&world.bare);
    let of_alice: Vec<_> = (0..8).map(|_| sends(&world, &pki().alice)).collect();
    let bob = user("bob", "developers");
    let of_bob: Vec<_> = (0..10).map(|_| sends(&world, &bob)).collect();
    until(|| arrived.load(Ordering::SeqCst) == 14).await;
    permits.add_permits(100);
    for request in of_alice.into_iter().chain(of_bob) {
        assert_eq!(request.await.unwrap().status, StatusCode::OK);
    }
}
