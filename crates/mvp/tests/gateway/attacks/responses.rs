//! A server whose responses end elsewhere than they say: what is left over is never a response to
//! somebody else.

use std::io::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_apiserver::Storage;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::cluster::{AGGREGATED, any, api_server, serve};
use crate::support::client::Client;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, free_address};
use crate::support::soon;

const THINGS: &str = "/apis/raw.example/v1/namespaces/default/things";
const POISON: &str = "HTTP/1.1 200 OK\r\nX-Poison: yes\r\nContent-Length: 6\r\n\r\npoison";

/// Responses that two parsers could read differently. Each is followed by [`POISON`].
const RESPONSES: [&str; 18] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 80\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nContent-Length: 2, 80\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nb\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: y\rX-Poison: yes\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nX: y\0\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
];

/// A server over HTTP/1.1 that writes bytes, until it is dropped.
struct Raw {
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn raw() -> Raw {
    let listener = TcpListener::bind(any()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(PKI.server().config()));
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(connection(acceptor.clone(), stream));
        }
    });
    Raw { address, task: task.abort_handle() }
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let service = service_fn(async |request: Request<Incoming>| {
            let (code, kind, body) = document(request.uri().path());
            let response = Response::builder().status(code).header("content-type", kind);
            response.body(Full::new(Bytes::from(body)))
        });
        let builder = http2::Builder::new(TokioExecutor::new());
        return builder.serve_connection(TokioIo::new(stream), service).await.map_err(Error::other);
    }
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        stream.write_all(&response(path.split('?').next().unwrap())).await?;
        stream.flush().await?;
    }
}

/// What the server has at a path.
fn document(path: &str) -> (u16, &'static str, String) {
    let thing = json!({
        "resource": "things", "scope": "Namespaced", "singularResource": "thing",
        "responseKind": { "group": "raw.example", "version": "v1", "kind": "Thing" },
        "verbs": ["get", "list"],
    });
    let group = json!({
        "metadata": { "name": "raw.example" },
        "versions": [{ "version": "v1", "resources": [thing], "freshness": "Current" }],
    });
    let list = |items: &[serde_json::Value]| {
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": items,
        })
    };
    match path {
        "/api" => (200, AGGREGATED, list(&[]).to_string()),
        "/apis" => (200, AGGREGATED, list(&[group]).to_string()),
        "/version" => (200, "application/json", json!({ "gitVersion": "v1.36.0" }).to_string()),
        "/readyz" => (200, "text/plain", "ok".to_owned()),
        THINGS => (200, "application/json", json!({ "fine": true }).to_string()),
        _ => (404, "text/plain", "404 page not found\n".to_owned()),
    }
}

fn response(path: &str) -> Vec<u8> {
    if let Some(number) = path.strip_prefix(THINGS).and_then(|name| name.strip_prefix('/')) {
        let number: usize = number.parse().unwrap();
        return format!("{}{POISON}", RESPONSES[number]).into_bytes();
    }
    let (code, kind, body) = document(path);
    let length = body.len();
    format!("HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test]
async fn a_response_to_nobody_is_never_the_response_to_the_next_request() {
    let raw = raw().await;
    let server = serve(any(), api_server("b", Storage::new())).await;
    let flag = format!("--peer=raw=https://{},kind=bare", raw.address);
    let gateway = Gateway::start(free_address(), "b", server.address, &[flag]).ready().await;
    // Anonymous: such requests share connections over HTTP/1.1.
    let anonymous =
        async || Client::with(gateway.address, PKI.client(false, b"h2")).await.unwrap().0;
    for (number, response) in RESPONSES.iter().enumerate() {
        let client = anonymous().await;
        let request = client.request(Method::GET, &format!("{THINGS}/{number}"));
        // The stream of a response that is broken is reset.
        if let Ok(answer) = client.try_send(request.body(Full::default()).unwrap()).await {
            let (parts, body) = answer.into_parts();
            let body = soon(body.collect()).await.map(|body| body.to_bytes()).unwrap_or_default();
            println!("{response:?}: {} {body:?}", parts.status);
            assert!(!parts.headers.contains_key("x-poison"), "{response:?}: {parts:?}");
            assert_ne!(*body, *b"poison", "{response:?}: {parts:?}");
        }
        for _ in 0..3 {
            let (code, headers, body) = anonymous().await.get(THINGS).await;
            assert_eq!(code, StatusCode::OK, "after {response:?}");
            assert_eq!(*body, *br#"{"fine":true}"#, "after {response:?}");
            assert!(!headers.contains_key("x-poison"), "after {response:?}");
        }
    }
}
