//! Bodies that are sent again after a 404 of routing: whole or not at all.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use mvp_net::Limits;
use serde_json::json;
use tokio::sync::Notify;

use crate::client::{BOTH, Client, Protocol, TestBody, ask, full, post, request, streamed, with};
use crate::double::{Double, NOT_ROUTED, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::soon;

const SHARED: &str = "/apis/shared.example/v1/namespaces/default/things";
const KEPT: usize = 128 << 10;

/// Two peers that list the same.
async fn two_peers() -> (Double, Double, Double, Gateway) {
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    let first = Double::start("b", "v1.36.0", &groups).await;
    let second = Double::start("c", "v1.36.0", &groups).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", first.address).bare("c", second.address).start().await;
    (local, first, second, gateway)
}

/// Reads the whole body, then denies it.
fn denies_after_reading(server: &Double) {
    server.rule(SHARED, |request| async move {
        request.into_body().collect().await.unwrap();
        not_routed()
    });
}

fn not_routed() -> Response<TestBody> {
    let mut response = answer(StatusCode::NOT_FOUND, full(NOT_ROUTED));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

fn object(name: &str, size: usize) -> String {
    let object = |filler: &str| {
        json!({
            "apiVersion": "shared.example/v1",
            "kind": "Thing",
            "metadata": { "name": name },
            "filler": filler,
        })
        .to_string()
    };
    object(&"x".repeat(size - object("").len()))
}

#[tokio::test]
async fn a_buffered_body_is_replayed_whole() {
    let (_local, first, second, gateway) = two_peers().await;
    denies_after_reading(&first);
    for (index, size) in [200, 60_000, KEPT - 1, KEPT].into_iter().enumerate() {
        for protocol in BOTH {
            for who in [None, Some(&pki().alice)] {
                let name = format!("{protocol:?}-{index}-{}", who.is_some()).to_lowercase();
                let body = object(&name, size);
                let answer = ask(gateway.address, protocol, who, post(SHARED, body.clone())).await;
                assert_eq!(answer.status, StatusCode::CREATED, "{size}: {}", answer.text());
                let seen = second.requests.of(SHARED).pop().unwrap();
                assert!(seen.body == body.as_bytes(), "{size} bytes arrive as they were sent");
            }
        }
    }
    let created = second.requests.of(SHARED).len();
    assert_eq!(created, 16);
    assert_eq!(second.server().processed(&Method::POST), 16);
    assert_eq!(first.requests.of(SHARED).len(), 16);
}

#[tokio::test]
async fn a_body_too_large_to_replay_gives_503_not_404() {
    let (local, first, second, gateway) = two_peers().await;
    denies_after_reading(&first);
    for size in [KEPT + 1, 4 * KEPT] {
        for protocol in BOTH {
            for who in [None, Some(&pki().alice)] {
                let body = object("big", size);
                let answer = ask(gateway.address, protocol, who, post(SHARED, body)).await;
                answer.assert_refusal();
            }
        }
    }
    assert!(second.requests.of(SHARED).is_empty());
    assert!(local.requests.of(SHARED).is_empty());
}

/// A server may answer before it read all, and keep the request open. What the client sends from
/// then on is for whoever is asked next.
#[tokio::test]
async fn a_body_still_being_sent_after_a_404_reaches_the_next_peer_whole() {
    for (protocol, token) in [(BOTH[0], false), (BOTH[0], true), (BOTH[1], false), (BOTH[1], true)]
    {
        let (_local, first, second, gateway) = two_peers().await;
        let cut_off = Arc::new(Notify::new());
        let cut = Arc::clone(&cut_off);
        first.rule(SHARED, move |request| {
            let cut = Arc::clone(&cut);
            async move {
                let mut body = request.into_body();
                let _ = body.frame().await;
                tokio::spawn(async move {
                    while let Some(Ok(_)) = body.frame().await {}
                    cut.notify_one();
                });
                not_routed()
            }
        });
        second.rule(SHARED, |request| async move {
            let length = request.into_body().collect().await.map(|body| body.to_bytes().len());
            answer(StatusCode::OK, full(format!("{length:?}")))
        });
        let piece = |letter: u8| Bytes::from(vec![letter; 10 << 10]);
        let (sender, body) = streamed();
        let mut request = request(Method::POST, SHARED, body);
        if token {
            request = with(request, "authorization", "Bearer of-carol");
        }
        let mut client = Client::connect(gateway.address, protocol, None).await;
        let arrivals = second.requests.clone();
        let sending = async move {
            sender.send(Frame::data(piece(b'a'))).await.unwrap();
            // The next peer has what the first one denied; the rest comes now.
            arrivals.wait(|seen| seen.target == SHARED && seen.body.len() == 10 << 10).await;
            for letter in b'b'..=b'z' {
                sender.send(Frame::data(piece(letter))).await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(client.send(request), sending);
        let case = format!("{protocol:?}, token: {token}");
        assert_eq!(answer.text(), format!("Ok({})", 26 * (10 << 10)), "{case}");
        let expected: Vec<u8> = (b'a'..=b'z').flat_map(piece).collect();
        assert!(second.requests.only(SHARED).body == expected, "{case}: other bytes");
        // The first one is not kept waiting for what will never come.
        soon(cut_off.notified()).await;
    }
}

#[tokio::test]
async fn a_body_with_trailers_is_replayed_whole_or_not_at_all() {
    let (_local, first, second, gateway) = two_peers().await;
    denies_after_reading(&first);
    let (sender, body) = streamed();
    let request = with(request(Method::POST, SHARED, body), "trailer", "x-check");
    let mut client = Client::connect(gateway.address, Protocol::Http2, Some(&pki().alice)).await;
    let sending = async move {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-check", http::HeaderValue::from_static("sum"));
        sender.send(Frame::data(object("trailing", 300).into())).await.unwrap();
        sender.send(Frame::trailers(trailers)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(client.send(request), sending);
    match answer.status {
        StatusCode::CREATED => {
            let seen = second.requests.only(SHARED);
            assert_eq!(seen.trailers.unwrap()["x-check"], "sum");
        }
        _ => answer.assert_refusal(),
    }
}

/// A server that denied a body may go on reading it. That must not take from the next one what it
/// waits for.
#[tokio::test]
async fn a_server_that_keeps_reading_after_its_404_takes_nothing_from_the_retry() {
    const START: usize = 30 << 10;
    let groups = [("shared.example", "things")];
    let local = Double::start("a", "v1.36.0", &[]).await;
    // So little room that the gateway waits for it to read.
    let limits = Limits { stream_window: 16 << 10, ..Limits::default() };
    let first = Double::start_with("b", "v1.36.0", &groups, limits).await;
    let second = Double::start("c", "v1.36.0", &groups).await;
    let plan = Gateway::beside("a", &local).await;
    let gateway = plan.bare("b", first.address).bare("c", second.address).start().await;
    let signals = Arc::new([Notify::new(), Notify::new(), Notify::new()]);
    let told = Arc::clone(&signals);
    first.rule(SHARED, move |request| {
        let told = Arc::clone(&told);
        async move {
            told[0].notified().await;
            let mut body = request.into_body();
            tokio::spawn(async move {
                told[1].notified().await;
                while let Some(Ok(_)) = body.frame().await {}
                told[2].notify_one();
            });
            not_routed()
        }
    });
    second.rule(SHARED, |request| async move {
        let length = request.into_body().collect().await.map(|body| body.to_bytes().len());
        answer(StatusCode::OK, full(format!("{length:?}")))
    });
    let (sender, body) = streamed();
    let request = with(request(Method::POST, SHARED, body), "authorization", "Bearer of-carol");
    let mut client = Client::connect(gateway.address, Protocol::Http2, None).await;
    let (here, there) = (second.requests.clone(), first.requests.clone());
    let sending = async move {
        for letter in [b'a', b'b', b'c'] {
            sender.send(Frame::data(vec![letter; START].into())).await.unwrap();
        }
        there.wait(|seen| seen.target == SHARED).await;
        let [deny, read_on, cut_off] = &*signals;
        deny.notify_one();

        here.wait(|seen| seen.body.len() == 3 * START).await;
        read_on.notify_one();

        tokio::select! {
            () = there.wait(|seen| seen.body.len() > START) => {}
            () = cut_off.notified() => {}
        }
        for index in 1..=50 {
            sender.send(Frame::data(vec![b'd'; 1000].into())).await.unwrap();
            here.wait(|seen| seen.body.len() == 3 * START + 1000 * index).await;
        }
    };
    let (answer, ()) = tokio::join!(client.send(request), sending);
    assert_eq!(answer.text(), format!("Ok({})", 3 * START + 50_000));
}
