//! What a client may not do, and what it may.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use mvp_net::{ClientWaits, HandshakeLimit, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Gateway, H1, H2, TestBody, get, soon, text};

/// Reads until the other side ends the connection, in whatever way.
async fn closed(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = soon(stream.read_to_end(&mut received)).await;
    received
}

#[tokio::test]
async fn a_slow_or_foolish_handshake_is_cut_and_others_go_on() {
    let limits = Limits { handshake_timeout: Duration::from_secs(2), ..Limits::default() };
    let gateway = Gateway::start(limits);
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    let mut begun = TcpStream::connect(gateway.address).await.unwrap();
    // The head of a TLS record of 512 bytes, of which none follows.
    begun.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    let mut plain = TcpStream::connect(gateway.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    closed(&mut plain).await;
    assert!(!gateway.info_of(None).await.judgement().presented);
    closed(&mut silent).await;
    closed(&mut begun).await;
    gateway.info_of(None).await;
}

#[tokio::test]
async fn a_slow_head_is_cut() {
    let limits = Limits { header_read_timeout: Duration::from_millis(200), ..Limits::default() };
    let gateway = Gateway::start(limits);
    let client = gateway.authorities.client_tls(None);
    for (alpn, said) in [
        (H1, &b""[..]),
        (H1, b"GET / HTTP/1.1\r\nhost: a\r\n"),
        (H2, b""),
        (H2, b"PRI * HTTP/2.0\r\n"),
    ] {
        let mut stream = gateway.connect(client.config(&[alpn])).await;
        stream.write_all(said).await.unwrap();
        closed(&mut stream).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let limits = Limits { idle_timeout: Duration::from_millis(200), ..Limits::default() };
    let connections = limits.connections.clone();
    let gateway = Gateway::start(limits);
    let mut http1 = gateway.http1(None).await;
    let mut http2 = gateway.http2(None).await;
    text(soon(http1.send_request(get("/"))).await.unwrap()).await;
    text(soon(http2.send_request(get("/"))).await.unwrap()).await;
    soon(async {
        while !(http1.is_closed() && http2.is_closed()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(connections.idle(), 2);
}

#[tokio::test]
async fn connections_over_the_limit_of_handshakes_are_closed_and_others_go_on() {
    let handshakes = HandshakeLimit::new(1);
    let limits = Limits { handshakes: handshakes.clone(), ..Limits::default() };
    let gateway = Gateway::start(limits);
    let mut served = gateway.http1(None).await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    soon(async {
        while handshakes.in_progress() != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut refused = TcpStream::connect(gateway.address).await.unwrap();
    assert_eq!(closed(&mut refused).await, b"");
    assert_eq!(handshakes.refused(), 1);
    // Its handshake is over.
    text(soon(served.send_request(get("/"))).await.unwrap()).await;
    // The silent one makes room for another as soon as it is not new any more.
    let cut = async {
        loop {
            let _newcomer = TcpStream::connect(gateway.address).await.unwrap();
            let read = silent.read_u8();
            if let Ok(read) = timeout(Duration::from_millis(50), read).await {
                return read.is_err();
            }
        }
    };
    assert!(timeout(Duration::from_secs(20), cut).await.unwrap());
    soon(async {
        while handshakes.in_progress() != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    gateway.info_of(None).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_counted() {
    // Larger than any buffer of sockets.
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    let service = service_fn(move |_: Request<Incoming>| {
        let body = Full::new(body.clone()).boxed();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let waits = ClientWaits::default();
    let limits = Limits { waits: waits.clone(), ..Limits::default() };
    let gateway = Gateway::with_service(limits, BoxCloneService::new(service));
    let client = gateway.authorities.client_tls(None);
    let mut stream = gateway.connect(client.config(&[H1])).await;
    assert_eq!(waits.stalls(), 0);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(async {
        while waits.stalls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_with_all_its_streams_in_use_is_counted() {
    let waits = ClientWaits::default();
    let limits = Limits { max_concurrent_streams: 3, waits: waits.clone(), ..Limits::default() };
    let end = Arc::new(Barrier::new(3));
    let ended = Arc::clone(&end);
    let service = service_fn(move |request: Request<Incoming>| {
        let ended = Arc::clone(&ended);
        async move {
            if request.uri().path() == "/held" {
                ended.wait().await;
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new().boxed()))
        }
    });
    let gateway = Gateway::with_service(limits, BoxCloneService::new(service));
    let mut sender = gateway.http2(None).await;
    let mut held = JoinSet::new();
    for full in [0, 1] {
        held.spawn(sender.send_request(get("/held")));
        // Requests begin in the order in which they were sent: this one comes beside those held.
        soon(sender.send_request(get("/"))).await.unwrap();
        assert_eq!(waits.full(), full);
    }
    soon(sender.send_request(get("/"))).await.unwrap();
    assert_eq!(waits.full(), 2);
    soon(end.wait()).await;
    assert!(soon(held.join_all()).await.into_iter().all(|response| response.is_ok()));
}

#[tokio::test]
async fn three_hundred_streams_at_once() {
    let barrier = Arc::new(Barrier::new(300));
    let service = service_fn(move |_: Request<Incoming>| {
        let barrier = Arc::clone(&barrier);
        async move {
            // None is answered before all have come.
            barrier.wait().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new().boxed()))
        }
    });
    let limits = Limits { max_concurrent_streams: 400, ..Limits::default() };
    let gateway = Gateway::with_service(limits, BoxCloneService::new(service));
    let sender = gateway.http2(None).await;
    let mut requests = JoinSet::new();
    for number in 0..300 {
        let mut sender = sender.clone();
        requests.spawn(async move { sender.send_request(get(&format!("/{number}"))).await });
    }
    let responses = soon(requests.join_all()).await;
    assert_eq!(responses.len(), 300);
    assert!(responses.into_iter().all(|response| response.unwrap().status() == StatusCode::OK));
}

fn with_header(bytes: usize) -> Request<TestBody> {
    let mut request = get("/");
    let value = HeaderValue::try_from("x".repeat(bytes)).unwrap();
    request.headers_mut().insert("x-large", value);
    request
}

#[tokio::test]
async fn a_head_of_one_mebibyte_passes_and_a_larger_one_does_not() {
    let gateway = Gateway::start(Limits::default());
    for (bytes, expected) in [
        (1 << 20, StatusCode::OK),
        ((1 << 20) + (8 << 10), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
    ] {
        let request = with_header(bytes);
        let response = soon(gateway.http2(None).await.send_request(request)).await.unwrap();
        assert_eq!(response.status(), expected, "HTTP/2");
        let request = with_header(bytes);
        let response = soon(gateway.http1(None).await.send_request(request)).await.unwrap();
        assert_eq!(response.status(), expected, "HTTP/1.1");
    }
}

#[tokio::test]
async fn a_thousand_headers_pass() {
    let gateway = Gateway::start(Limits::default());
    let request = || {
        let mut request = get("/");
        for number in 0..1000 {
            let name = HeaderName::try_from(format!("x-{number}")).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_static("v"));
        }
        request
    };
    let response = soon(gateway.http1(None).await.send_request(request())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let response = soon(gateway.http2(None).await.send_request(request())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}
