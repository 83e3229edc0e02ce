//! Bodies are streamed in both directions: events one by one, uploads with back pressure,
//! `100-continue`, trailers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::client::{BOTH, Client, Protocol, full, get, post, request, streamed, tls, with};
use crate::double::answer;
use crate::pki::pki;
use crate::rows::thing;
use crate::soon;
use crate::world::{BARE, LOCAL, MVP, World};

#[tokio::test]
async fn watch_events_arrive_one_by_one() {
    let world = World::start().await;
    for (path, group) in [(LOCAL, "local.example"), (BARE, "bare.example"), (MVP, "mvp.example")] {
        for protocol in BOTH {
            let alice = Some(&pki().alice);
            let mut watcher = Client::connect(world.gateway.address, protocol, alice).await;
            let watch = get(&format!(
                "{path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
            ));
            let response = watcher.open(watch).await;
            assert_eq!(response.status(), StatusCode::OK);
            let mut events = response.into_body();
            let mut writer = Client::connect(world.gateway.address, protocol, alice).await;
            for index in 0..5 {
                let name = format!("{protocol:?}-{index}").to_lowercase();
                let created = writer.send(post(path, thing(group, &name))).await;
                assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
                // The watch stays open: this event arrives before the next one is sent.
                let line = soon(events.frame()).await.unwrap().unwrap().into_data().unwrap();
                let event: Value = serde_json::from_slice(&line).unwrap();
                assert_eq!(event["type"], "ADDED");
                assert_eq!(event["object"]["metadata"]["name"], name);
            }
        }
    }
}

#[tokio::test]
async fn an_upload_is_paced_by_its_reader() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 512;
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let go_on = Arc::new(Notify::new());
        let told = Arc::clone(&go_on);
        world.server(path).rule(path, move |request| {
            let told = Arc::clone(&told);
            async move {
                told.notified().await;
                let length = request.into_body().collect().await.map(|body| body.to_bytes().len());
                answer(StatusCode::OK, full(format!("{length:?}")))
            }
        });
        for (protocol, token) in [(BOTH[0], false), (BOTH[0], true), (BOTH[1], true)] {
            let (sender, body) = streamed();
            let mut request = request(Method::POST, path, body);
            if token {
                request = with(request, "authorization", "Bearer of-carol");
            }
            let sent = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&sent);
            let sending = tokio::spawn(async move {
                for _ in 0..PIECES {
                    sender.send(Frame::data(Bytes::from(vec![7; PIECE]))).await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut client = Client::connect(world.gateway.address, protocol, None).await;
            let response = tokio::spawn(async move { client.send(request).await });
            // Until it stalls. On a slow machine this stops early, which proves less and fails
            // nothing.
            let mut before = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let now = sent.load(Ordering::SeqCst);
                if now == before && now > 0 {
                    break;
                }
                before = now;
            }
            assert!(before < PIECES / 2, "{before} pieces went to a server that reads nothing");
            go_on.notify_one();
            let answer = soon(response).await.unwrap();
            assert_eq!(answer.text(), format!("Ok({})", PIECE * PIECES), "{path} {protocol:?}");
            soon(sending).await.unwrap();
        }
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let world = World::start().await;
    for (path, group) in [(LOCAL, "local.example"), (BARE, "bare.example"), (MVP, "mvp.example")] {
        for (index, token) in ["", "Authorization: Bearer of-carol\r\n"].into_iter().enumerate() {
            let body = thing(group, &format!("waits-{index}"));
            let mut stream = tls(world.gateway.address, b"http/1.1", None).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\nConnection: close\r\n\
                 {token}Content-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = vec![0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
            soon(stream.read_exact(&mut answer)).await.unwrap();
            assert_eq!(answer, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream.write_all(body.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let _ = soon(stream.read_to_string(&mut answer)).await;
            assert!(answer.starts_with("HTTP/1.1 201"), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_server_may_respond_before_reading_the_whole_body() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        world
            .server(path)
            .rule(path, |request| std::future::ready(answer(StatusCode::OK, request.into_body())));
        for (protocol, who) in [(BOTH[0], None), (BOTH[1], None), (BOTH[1], Some(&pki().alice))] {
            let (sender, body) = streamed();
            let mut client = Client::connect(world.gateway.address, protocol, who).await;
            let opening = client.open(request(Method::POST, path, body));
            let first = sender.send(Frame::data(Bytes::from_static(b"first")));
            let (response, _) = tokio::join!(opening, first);
            let mut echo = response.into_body();
            for (read, next) in [("first", "second"), ("second", "third")] {
                let heard = soon(echo.frame()).await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(heard, read, "{path} {protocol:?}");
                sender.send(Frame::data(Bytes::from_static(next.as_bytes()))).await.unwrap();
            }
            drop(sender);
            assert_eq!(soon(echo.collect()).await.unwrap().to_bytes(), "third");
        }
    }
}

fn with_trailers(announced: &[&'static str]) -> Response<crate::client::TestBody> {
    let (sender, body) = streamed();
    tokio::spawn(async move {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-check", HeaderValue::from_static("sum"));
        trailers.insert("x-other", HeaderValue::from_static("too"));
        let _ = sender.send(Frame::data(Bytes::from_static(b"data"))).await;
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let mut response = answer(StatusCode::OK, body);
    for names in announced {
        response.headers_mut().append("trailer", HeaderValue::from_static(names));
    }
    response
}

#[tokio::test]
async fn response_trailers_are_forwarded() {
    trailers_arrive(&["x-check, x-other"]).await;
}

#[tokio::test]
async fn trailers_announced_separately_are_forwarded() {
    trailers_arrive(&["x-check", "x-other"]).await;
}

async fn trailers_arrive(announced: &'static [&'static str]) {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        world.server(path).rule(path, |_| std::future::ready(with_trailers(announced)));
        for protocol in BOTH {
            for token in [true, false] {
                let mut request = with(get(path), "te", "trailers");
                if protocol == Protocol::Http1 {
                    request = with(request, "connection", "te");
                }
                if token {
                    request = with(request, "authorization", "Bearer of-carol");
                }
                let mut client = Client::connect(world.gateway.address, protocol, None).await;
                let answer = client.send(request).await;
                assert_eq!(answer.text(), "data");
                let case = format!("{path} {protocol:?} token: {token}");
                let trailers = answer.trailers.unwrap_or_else(|| panic!("no trailers: {case}"));
                assert_eq!(trailers.get("x-check").unwrap(), "sum", "{case}");
                assert_eq!(
                    trailers.get("x-other").map(|value| value.as_bytes()),
                    Some(&b"too"[..]),
                    "{case}"
                );
            }
        }
    }
}

/// Reports when it is dropped.
struct Dropped(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_watch_ends_at_the_server_when_its_client_leaves() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let (dropped, mut hear) = tokio::sync::mpsc::unbounded_channel();
        world.server(path).rule(path, move |_| {
            let guard = Dropped(dropped.clone());
            let (sender, body) = streamed();
            tokio::spawn(async move {
                let _ = sender.send(Frame::data(Bytes::from_static(b"first"))).await;
                sender.closed().await;
                drop(guard);
            });
            std::future::ready(answer(StatusCode::OK, body))
        });
        for protocol in BOTH {
            for who in [None, Some(&pki().alice)] {
                let mut client = Client::connect(world.gateway.address, protocol, who).await;
                let mut body = client.open(get(path)).await.into_body();
                assert!(soon(body.frame()).await.unwrap().is_ok());
                drop(body);
                drop(client);
                soon(hear.recv()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn watches_beyond_the_stream_limit_get_their_events() {
    const WATCHES: usize = 400;
    let world = World::start().await;
    let alice = Some(&pki().alice);
    let mut watches = Vec::new();
    let mut clients = Vec::new();
    for index in 0..WATCHES {
        if index % 200 == 0 {
            clients.push(Client::connect(world.gateway.address, Protocol::Http2, alice).await);
        }
        let watch = get(&format!(
            "{BARE}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        ));
        watches.push(clients.last_mut().unwrap().open(watch).await.into_body());
    }
    let created = post(BARE, thing("bare.example", "for-all"));
    let answer = clients[0].send(created).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    for mut watch in watches {
        let line = soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], "for-all");
    }
}

#[tokio::test]
async fn a_slow_reader_does_not_stall_others() {
    let world = World::start().await;
    world.bare.rule(BARE, |_| {
        let (sender, body) = streamed();
        tokio::spawn(async move {
            while sender.send(Frame::data(Bytes::from(vec![7; 64 << 10]))).await.is_ok() {}
        });
        std::future::ready(answer(StatusCode::OK, body))
    });
    world.bare.says("/apis/bare.example/v1/namespaces/quick", 200, "text/plain", "quick");
    let alice = Some(&pki().alice);
    let mut client = Client::connect(world.gateway.address, Protocol::Http2, alice).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut body = client.open(get(BARE)).await.into_body();
        assert!(soon(body.frame()).await.unwrap().is_ok());
        slow.push(body);
    }
    // Upstream they share a connection with later requests.
    let mut client = Client::connect(world.gateway.address, Protocol::Http2, alice).await;
    for _ in 0..20 {
        let quick = client.send(get("/apis/bare.example/v1/namespaces/quick/things")).await;
        assert_eq!(quick.text(), "quick");
    }
}
