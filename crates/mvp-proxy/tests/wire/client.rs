//! A client of a gateway or a server. Entry item: [`Client`].

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use testkit::certificates::{Pair, SERVER_NAME};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::pki;
use crate::soon;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type TestBody = UnsyncBoxBody<Bytes, Error>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

pub const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

pub enum Client {
    Http1(http1::SendRequest<TestBody>),
    Http2(http2::SendRequest<TestBody>),
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Client {
    pub async fn connect(address: SocketAddr, protocol: Protocol, who: Option<&Pair>) -> Client {
        match protocol {
            Protocol::Http1 => {
                let stream = TokioIo::new(tls(address, b"http/1.1", who).await);
                let (sender, connection) = soon(http1::handshake(stream)).await.unwrap();
                tokio::spawn(connection.with_upgrades());
                Client::Http1(sender)
            }
            Protocol::Http2 => {
                let stream = TokioIo::new(tls(address, b"h2", who).await);
                // Unread streams leave window for others.
                let handshake = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(64 << 10)
                    .initial_connection_window_size(16 << 20)
                    .handshake(stream);
                let (sender, connection) = soon(handshake).await.unwrap();
                tokio::spawn(connection);
                Client::Http2(sender)
            }
        }
    }

    /// A client over HTTP/2 that never lets a body be sent to it.
    pub async fn without_window(address: SocketAddr, who: Option<&Pair>) -> Client {
        let stream = TokioIo::new(tls(address, b"h2", who).await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let handshake = builder.initial_stream_window_size(0).handshake(stream);
        let (sender, connection) = soon(handshake).await.unwrap();
        tokio::spawn(connection);
        Client::Http2(sender)
    }

    /// Sends a request and returns at the response head.
    pub async fn open(&mut self, request: Request<TestBody>) -> Response<Incoming> {
        soon(self.try_open(request)).await.unwrap()
    }

    pub async fn try_open(
        &mut self,
        mut request: Request<TestBody>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Client::Http1(sender) => {
                let host = HeaderValue::from_static(SERVER_NAME);
                request.headers_mut().entry(HOST).or_insert(host);
                sender.ready().await?;
                sender.send_request(request).await
            }
            Client::Http2(sender) => {
                let mut parts = request.uri().clone().into_parts();
                parts.scheme = Some(http::uri::Scheme::HTTPS);
                parts.authority = Some(http::uri::Authority::from_static(SERVER_NAME));
                *request.uri_mut() = Uri::from_parts(parts).unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Sends a request, and reads its response to the end.
    pub async fn send(&mut self, request: Request<TestBody>) -> Answer {
        let response = self.open(request).await;
        Answer::read(response).await.unwrap()
    }
}

/// One request over a connection of its own.
pub async fn ask(
    address: SocketAddr,
    protocol: Protocol,
    who: Option<&Pair>,
    request: Request<TestBody>,
) -> Answer {
    Client::connect(address, protocol, who).await.send(request).await
}

impl Answer {
    pub async fn read(response: Response<Incoming>) -> Result<Answer, hyper::Error> {
        let (parts, body) = response.into_parts();
        let collected = soon(body.collect()).await?;
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body, trailers })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that it is a refusal of `mvp`, as a Kubernetes `Status`.
    pub fn assert_refusal(&self) {
        assert_eq!(self.status, StatusCode::SERVICE_UNAVAILABLE, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        let after: u64 = self.headers["retry-after"].to_str().unwrap().parse().unwrap();
        let status = self.json();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["apiVersion"], "v1");
        assert_eq!(status["status"], "Failure");
        assert_eq!(status["reason"], "ServiceUnavailable");
        assert_eq!(status["code"], 503);
        assert_eq!(status["details"]["retryAfterSeconds"], after);
        assert!(after > 0);
    }
}

/// Sends these bytes and returns all output until the connection ends.
pub async fn raw(address: SocketAddr, who: Option<&Pair>, bytes: &[u8]) -> String {
    let mut stream = tls(address, b"http/1.1", who).await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // The connection may end without a TLS close_notify.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

pub async fn tls(address: SocketAddr, alpn: &[u8], who: Option<&Pair>) -> TlsStream<TcpStream> {
    let config = pki().client_tls(who).config(&[alpn]);
    let stream = soon(TcpStream::connect(address)).await.unwrap();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    soon(TlsConnector::from(config).connect(name, stream)).await.unwrap()
}

pub fn get(path: &str) -> Request<TestBody> {
    request(Method::GET, path, Empty::new().map_err(Into::into).boxed_unsync())
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<TestBody> {
    request(Method::POST, path, full(body))
}

pub fn request(method: Method, path: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().method(method).uri(path).body(body).unwrap()
}

pub fn full(body: impl Into<Bytes>) -> TestBody {
    Full::new(body.into()).map_err(Into::into).boxed_unsync()
}

pub fn with<B>(mut request: Request<B>, name: &'static str, value: &'static str) -> Request<B> {
    request.headers_mut().append(name, HeaderValue::from_static(value));
    request
}

/// A body whose frames the test sends one by one; dropping the sender ends it.
pub fn streamed() -> (mpsc::Sender<Frame<Bytes>>, TestBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Streamed(receiver).boxed_unsync())
}

struct Streamed(mpsc::Receiver<Frame<Bytes>>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}
