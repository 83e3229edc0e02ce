//! Requests that the gateway rejects itself, and responses that close the client connection.

use std::convert::Infallible;

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use mvp_net::{ConnectionInfo, Judgement};
use mvp_proxy::{AuthenticateLayer, Body};
use tower::ServiceExt;
use tower_layer::Layer;

use crate::client::{Answer, BOTH, Client, Protocol, TestBody, ask, get, raw, tls, with};
use crate::pki::pki;
use crate::soon;
use crate::world::{BARE, LOCAL, MVP, World};

fn assert_status(answer: &Answer, code: u16, reason: &str) {
    assert_eq!(answer.status.as_u16(), code, "{}", answer.text());
    let status = answer.json();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["reason"], reason);
    assert_eq!(status["code"], code);
}

#[tokio::test]
async fn malformed_http1_requests_are_rejected_by_the_gateway() {
    let world = World::start().await;
    for line in [
        format!("GET {LOCAL}/%zz"),
        format!("GET {BARE}/%"),
        format!("GET https://user:password@gateway{LOCAL}"),
        format!("GET {LOCAL}/a<b"),
        "CONNECT gateway:443".to_owned(),
        "GET gateway:443".to_owned(),
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{line}: {answer}");
    }
    // Legal in HTTP/1.1, and served by kube-apiserver.
    let text =
        format!("GET https://gateway{LOCAL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(world.arrived().len(), 1);
}

#[tokio::test]
async fn malformed_http2_requests_are_rejected_by_the_gateway() {
    let world = World::start().await;
    let mut client =
        Client::connect(world.gateway.address, Protocol::Http2, Some(&pki().alice)).await;
    for path in [LOCAL, BARE] {
        for request in [
            get(&format!("{path}/%zz")),
            get(&format!("{path}/%")),
            with(get(path), "host", "user@gateway"),
        ] {
            assert_status(&client.send(request).await, 400, "BadRequest");
        }
    }
    let stream = tls(world.gateway.address, b"h2", Some(&pki().alice)).await;
    let (sender, connection) = soon(h2::client::handshake(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut sender = soon(sender.ready()).await.unwrap();
    let of = |method: Method, uri: &str| {
        Request::builder().method(method).version(Version::HTTP_2).uri(uri).body(()).unwrap()
    };
    for request in [
        of(Method::CONNECT, "gateway:443"),
        of(Method::GET, &format!("https://user@gateway{LOCAL}")),
    ] {
        let (response, _) = sender.send_request(request, true).unwrap();
        assert_eq!(soon(response).await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
    assert!(world.arrived().is_empty());
    // The connection stays usable.
    assert_eq!(client.send(get(LOCAL)).await.status, StatusCode::OK);
}

/// As Go's HTTP/1.1 server refuses them, but with a `Status`.
#[tokio::test]
async fn http1_hosts_and_expectations_are_refused_as_by_go() {
    let world = World::start().await;
    for (headers, code, message) in [
        ("", 400, "missing required Host header"),
        ("Host: a\r\nHost: a\r\n", 400, "too many Host headers"),
        ("Host: a b\r\n", 400, "malformed Host header"),
        ("Host: a\r\nExpect: bogus\r\n", 417, "expectation"),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501, "transfer encoding"),
    ] {
        let text = format!("GET {LOCAL} HTTP/1.1\r\n{headers}\r\n");
        // It reads to the end: the connection is closed.
        let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{headers}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{headers}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &code.into()));
        assert!(status["message"].as_str().unwrap().contains(message), "{headers}: {body}");
    }
    assert!(world.arrived().is_empty());
    let text = format!("GET {LOCAL} HTTP/1.0\r\n\r\n");
    let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

/// Go's HTTP/2 server ignores an expectation that its HTTP/1.1 server refuses.
#[tokio::test]
async fn an_unknown_expectation_over_http2_is_not_forwarded() {
    let world = World::start().await;
    let request = with(get(LOCAL), "expect", "bogus");
    let answer = ask(world.gateway.address, Protocol::Http2, None, request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(world.local.requests.only(LOCAL).header("expect"), None);
}

#[tokio::test]
async fn a_request_may_have_1100_headers() {
    let world = World::start().await;
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let path = format!("{path}?by={protocol:?}");
            let mut request = get(&path);
            for index in 0..1100 - 1 {
                let name = HeaderName::try_from(format!("x-{index}")).unwrap();
                request.headers_mut().insert(name, HeaderValue::from_static("1"));
            }
            let alice = Some(&pki().alice);
            let answer = ask(world.gateway.address, protocol, alice, request).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
            assert_eq!(world.server(&path).requests.only(&path).header("x-1098"), Some("1"));
        }
    }
}

#[tokio::test]
async fn a_request_head_over_the_limit_is_rejected() {
    let world = World::start().await;
    let with_head = |bytes: usize| {
        let mut request = get(LOCAL);
        let value = HeaderValue::try_from("x".repeat(bytes)).unwrap();
        request.headers_mut().insert("x-large", value);
        request
    };
    for protocol in BOTH {
        let alice = Some(&pki().alice);
        let mut client = Client::connect(world.gateway.address, protocol, alice).await;
        assert_eq!(client.send(with_head(120 << 10)).await.status, StatusCode::OK);
        let answer = client.send(with_head(128 << 10)).await;
        assert_status(&answer, 431, "RequestEntityTooLarge");
        assert_eq!(client.send(get(LOCAL)).await.status, StatusCode::OK);
    }
    assert_eq!(world.arrived().len(), 4);
}

/// Whether the response to `request` closes its connection.
async fn ends(
    layer: &AuthenticateLayer,
    connection: ConnectionInfo,
    mut request: Request<TestBody>,
    status: StatusCode,
) -> bool {
    request.extensions_mut().insert(connection.clone());
    let inner = tower::service_fn(|_: Request<TestBody>| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    layer.layer(inner).oneshot(request).await.unwrap();
    connection.is_ending()
}

fn connection(judgement: &Judgement) -> ConnectionInfo {
    ConnectionInfo::new(([127, 0, 0, 1], 1).into(), Vec::new(), judgement.clone())
}

fn front_proxy() -> Judgement {
    Judgement { presented: true, front_proxy: true, ..Judgement::default() }
}

fn stranger() -> Judgement {
    Judgement { presented: true, rejected: true, ..Judgement::default() }
}

#[tokio::test]
async fn a_401_or_an_anonymous_response_closes_the_clients_http2_connection() {
    let layer = AuthenticateLayer::default();
    let nobody = Judgement::default();
    let anonymous = || with(get(LOCAL), "host", "gateway");
    let token = || with(anonymous(), "authorization", "Bearer of-carol");
    let (ok, unauthorized) = (StatusCode::OK, StatusCode::UNAUTHORIZED);
    for (judgement, request, status, expected) in [
        (&nobody, anonymous(), ok, true),
        (&nobody, anonymous(), StatusCode::FORBIDDEN, true),
        (&nobody, token(), ok, false),
        (&nobody, token(), StatusCode::FORBIDDEN, false),
        (&nobody, token(), unauthorized, true),
        // Refused by the gateway.
        (&stranger(), anonymous(), ok, true),
        (&front_proxy(), anonymous(), ok, false),
        (&front_proxy(), token(), unauthorized, false),
    ] {
        let http2 = connection(judgement).over_http2();
        let shown = format!("{judgement:?} {:?} {status}", request.headers());
        assert_eq!(ends(&layer, http2, request, status).await, expected, "{shown}");
    }
    for request in [anonymous(), token()] {
        assert!(!ends(&layer, connection(&nobody), request, unauthorized).await, "HTTP/1.1");
    }
}

#[tokio::test]
async fn goaway_chance_applies_to_http2_connections_of_clients() {
    let token = || with(with(get(LOCAL), "host", "gateway"), "authorization", "Bearer of-carol");
    let nobody = connection(&Judgement::default());
    for (chance, expected) in [(0.0, false), (1.0, true)] {
        let layer = AuthenticateLayer::default().with_goaway_chance(chance);
        let of = async |connection| ends(&layer, connection, token(), StatusCode::OK).await;
        assert_eq!(of(connection(&Judgement::default()).over_http2()).await, expected);
        assert!(!of(nobody.clone()).await, "HTTP/1.1");
        assert!(!of(connection(&front_proxy()).over_http2()).await, "front proxy");
    }
}

#[tokio::test]
async fn an_anonymous_response_closes_only_its_own_connection() {
    let world = World::start().await;
    let connect = || Client::connect(world.gateway.address, Protocol::Http2, None);
    let (mut anonymous, mut token) = (connect().await, connect().await);
    let of_carol = || with(get(LOCAL), "authorization", "Bearer of-carol");
    assert_eq!(anonymous.send(get(LOCAL)).await.status, StatusCode::OK);
    assert_eq!(token.send(of_carol()).await.status, StatusCode::OK);
    soon(async { while anonymous.try_open(of_carol()).await.is_ok() {} }).await;
    assert_eq!(token.send(of_carol()).await.status, StatusCode::OK);
}
