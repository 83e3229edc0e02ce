//! Both ends of a tunnel: a client that asks for one, a server that agrees. Entry: [`tunnel`].

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use testkit::certificates::Pair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::client::{Answer, Client, Protocol, TestBody, full, get, with};
use crate::double::{Double, answer};
use crate::soon;

pub type Stream = TokioIo<Upgraded>;

/// The server's ends of tunnels, as they come.
pub struct Served(UnboundedReceiver<Stream>);

impl Served {
    pub async fn next(&mut self) -> Stream {
        soon(self.0.recv()).await.unwrap()
    }
}

impl Double {
    /// From now on paths that begin so are upgraded to whatever is asked for.
    pub fn upgrades(&self, prefix: &'static str) -> Served {
        let (sender, receiver) = unbounded_channel();
        self.rule(prefix, move |request| {
            let sender = sender.clone();
            let protocol = request.headers().get("upgrade").cloned();
            std::future::ready(match protocol {
                None => answer(StatusCode::BAD_REQUEST, full("no upgrade was asked for")),
                Some(protocol) => {
                    tokio::spawn(async move {
                        // A client may be gone before it has the answer.
                        if let Ok(stream) = hyper::upgrade::on(request).await {
                            let _ = sender.send(TokioIo::new(stream));
                        }
                    });
                    switching(protocol)
                }
            })
        });
        Served(receiver)
    }
}

/// The answer of a server that agrees.
pub fn switching(protocol: HeaderValue) -> Response<TestBody> {
    let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, full(Bytes::new()));
    for (name, value) in [
        ("connection", HeaderValue::from_static("Upgrade")),
        ("upgrade", protocol),
        ("sec-websocket-accept", HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
        ("sec-websocket-protocol", HeaderValue::from_static("v5.channel.k8s.io")),
        ("keep-alive", HeaderValue::from_static("timeout=5")),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}

/// A watch over WebSocket, as a browser asks for it.
pub fn websocket(path: &str) -> Request<TestBody> {
    let request =
        with(with(get(path), "connection", "keep-alive, Upgrade"), "upgrade", "websocket");
    let request = with(request, "sec-websocket-version", "13");
    with(request, "sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// The client's end of a new tunnel, and the headers with which it came.
pub async fn tunnel(
    address: SocketAddr,
    who: Option<&Pair>,
    request: Request<TestBody>,
) -> (Stream, HeaderMap) {
    match try_tunnel(address, who, request).await {
        Ok(tunnel) => tunnel,
        Err(answer) => panic!("{}: {}", answer.status, answer.text()),
    }
}

/// The same, or the answer that there is none.
pub async fn try_tunnel(
    address: SocketAddr,
    who: Option<&Pair>,
    request: Request<TestBody>,
) -> Result<(Stream, HeaderMap), Answer> {
    let mut client = Client::connect(address, Protocol::Http1, who).await;
    let response = client.open(request).await;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Answer::read(response).await.unwrap());
    }
    let headers = response.headers().clone();
    let stream = soon(hyper::upgrade::on(response)).await.unwrap();
    Ok((TokioIo::new(stream), headers))
}

/// A word goes from one end to the other.
pub async fn passes(from: &mut Stream, to: &mut Stream) {
    soon(from.write_all(b"word")).await.unwrap();
    soon(from.flush()).await.unwrap();
    let mut word = [0; 4];
    soon(to.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"word");
}

/// Words go both ways.
pub async fn is_open(client: &mut Stream, server: &mut Stream) {
    passes(client, server).await;
    passes(server, client).await;
}
