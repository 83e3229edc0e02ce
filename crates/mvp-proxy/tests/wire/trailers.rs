//! Trailers that must not be forwarded are dropped, and the request completes.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::client::{BOTH, Client, TestBody, full, raw, request, streamed};
use crate::double::answer;
use crate::pki::pki;
use crate::world::{BARE, LOCAL, MVP, World};

/// h2 does not send the first six; Go resets a request with any of them.
const FORBIDDEN: [&str; 12] = [
    "connection",
    "te",
    "upgrade",
    "keep-alive",
    "transfer-encoding",
    "proxy-connection",
    "authorization",
    "content-length",
    "host",
    "trailer",
    "if-match",
    "x-remote-user",
];

fn server_reads_the_body(world: &World, path: &'static str) {
    world.server(path).rule(path, |request: Request<TestBody>| async {
        let body = request.into_body().collect().await;
        let status = if body.is_ok() { StatusCode::CREATED } else { StatusCode::BAD_REQUEST };
        answer(status, full("{}"))
    });
}

#[tokio::test]
async fn forbidden_trailers_of_http1_requests_are_dropped() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        server_reads_the_body(&world, path);
        for name in FORBIDDEN {
            let text = format!(
                "POST {path}?{name} HTTP/1.1\r\nHost: a\r\nTrailer: {name}, X-Check\r\n\
                 Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                 2\r\n{{}}\r\n0\r\n{name}: 1\r\nX-Check: sum\r\n\r\n"
            );
            let answer = raw(world.gateway.address, Some(&pki().alice), text.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 201"), "{path} {name}: {answer}");
            let seen = world.server(path).requests.only(&format!("{path}?{name}"));
            let trailers = seen.trailers.unwrap_or_default();
            assert!(!trailers.contains_key(name), "{path} {name}");
            assert_eq!(trailers["x-check"], "sum", "{path} {name}");
        }
    }
}

#[tokio::test]
async fn forbidden_trailers_of_http2_requests_are_dropped() {
    let world = World::start().await;
    server_reads_the_body(&world, LOCAL);
    let alice = Some(&pki().alice);
    let mut client = Client::connect(world.gateway.address, BOTH[1], alice).await;
    // Those that h2 sends.
    for name in ["authorization", "content-length", "host", "trailer", "if-match"] {
        let (sender, body) = streamed();
        let trailers =
            HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
        tokio::spawn(async move {
            sender.send(Frame::data(Bytes::from_static(b"{}"))).await.unwrap();
            sender.send(Frame::trailers(trailers)).await.unwrap();
        });
        let path = format!("{LOCAL}?{name}");
        let answer = client.send(request(Method::POST, &path, body)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{name}: {}", answer.text());
        assert_eq!(world.local.requests.only(&path).trailers, None, "{name}");
    }
}
