//! A client of the gateway with one connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use testkit::certificates::SERVER_NAME;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pki::PKI;
use super::soon;

/// A TLS connection, for what no library would send.
pub(crate) async fn connect(
    address: SocketAddr,
    config: Arc<rustls::ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    secure(TcpStream::connect(address).await?, config).await
}

/// The same over a connection of the test.
pub(crate) async fn secure(
    stream: TcpStream,
    config: Arc<rustls::ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    TlsConnector::from(config).connect(name, stream).await
}

/// A connection over HTTP/2. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    sender: http2::SendRequest<Full<Bytes>>,
    token: Option<&'static str>,
}

/// The stream window.
const STREAM_WINDOW: u32 = 64 << 10;

impl Client {
    /// A client with a user certificate.
    pub(crate) async fn user(address: SocketAddr) -> Client {
        Client::connect(address, None).await
    }

    /// A client with a token.
    pub(crate) async fn token(address: SocketAddr, token: &'static str) -> Client {
        Client::connect(address, Some(token)).await
    }

    async fn connect(address: SocketAddr, token: Option<&'static str>) -> Client {
        let config = PKI.client(token.is_none(), b"h2");
        let (client, _) = Client::with(address, config).await.unwrap();
        Client { token, ..client }
    }

    /// A client with a TLS configuration of the test, and the certificate that the gateway
    /// presented.
    pub(crate) async fn with(
        address: SocketAddr,
        config: Arc<rustls::ClientConfig>,
    ) -> io::Result<(Client, CertificateDer<'static>)> {
        soon(async {
            let stream = connect(address, config).await?;
            let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(STREAM_WINDOW * 500)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)?;
            tokio::spawn(connection);
            Ok((Client { sender, token: None }, shown))
        })
        .await
    }

    /// Sends a GET and returns the status, after the whole response; or the error.
    pub(crate) async fn try_get(&self, path: &str) -> Result<StatusCode, hyper::Error> {
        let request = self.request(Method::GET, path).body(Full::default()).unwrap();
        soon(async {
            let response = self.sender.clone().send_request(request).await?;
            let code = response.status();
            response.into_body().collect().await?;
            Ok(code)
        })
        .await
    }

    /// Sends a request, and waits for the head of its response.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.try_send(request).await.expect("an answer")
    }

    /// The same, or the error.
    pub(crate) async fn try_send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        soon(self.sender.clone().send_request(request)).await
    }

    /// A request of this client.
    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let uri = format!("https://{SERVER_NAME}{path}");
        let request = Request::builder().method(method).uri(uri);
        match self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a GET and returns the response with an unread body.
    pub(crate) async fn open(&self, path: &str) -> Response<Incoming> {
        self.send(self.request(Method::GET, path).body(Full::default()).unwrap()).await
    }

    /// Sends a GET and returns status, headers and body.
    pub(crate) async fn get(&self, path: &str) -> (StatusCode, HeaderMap, Bytes) {
        read(self.open(path).await).await
    }

    /// Sends a GET and returns status and JSON.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = self.request(method, path).header(CONTENT_TYPE, kind);
        let response = self.send(request.body(Full::from(body)).unwrap()).await;
        let (code, headers, body) = read(response).await;
        let json = serde_json::from_slice(&body).unwrap_or_else(|error| {
            panic!("{path}: {code} {headers:?} is not JSON ({error}): {body:?}")
        });
        (code, json)
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let response = self.open(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Watch { body: response.into_body(), pending: Vec::new() }
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    let body = soon(body.collect()).await.expect("a whole body").to_bytes();
    (parts.status, parts.headers, body)
}

/// A watch, event by event.
pub(crate) struct Watch {
    body: Incoming,
    pending: Vec<u8>,
}

impl Watch {
    /// The type of the next event, and its object.
    pub(crate) async fn next(&mut self) -> (String, Value) {
        soon(async {
            loop {
                if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.pending.drain(..=end).collect();
                    let mut event: Value = serde_json::from_slice(&line).unwrap();
                    let kind = event["type"].as_str().unwrap().to_owned();
                    return (kind, event["object"].take());
                }
                let frame = self.body.frame().await.expect("the watch goes on").unwrap();
                self.pending.extend_from_slice(frame.data_ref().unwrap());
            }
        })
        .await
    }

    /// Type and name.
    pub(crate) async fn next_name(&mut self) -> (String, String) {
        let (kind, object) = self.next().await;
        (kind, object["metadata"]["name"].as_str().unwrap().to_owned())
    }

    /// Whether the watch has ended.
    pub(crate) async fn has_ended(mut self) -> bool {
        soon(async {
            loop {
                match self.body.frame().await {
                    None | Some(Err(_)) => return true,
                    Some(Ok(_)) => {}
                }
            }
        })
        .await
    }
}
