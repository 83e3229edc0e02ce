//! Clients of the demo: one request per connection, as with curl ([`Client`]), or one connection for
//! many requests, as controllers have ([`Line`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use mvp_net::ClientTls;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::certificates::{Certificates, Pair};
use super::server::Server;

/// The time limit of a response from a server in the same process.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client, and how it proves who it is.
#[derive(Clone)]
pub(super) struct Client {
    tls: ClientTls,
    token: Option<&'static str>,
}

/// A complete response.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The message of a `Status`.
    pub(super) fn message(&self) -> String {
        let status = self.json();
        status.get("message").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Whether it is a 404 that names no object: the server has no such API.
    pub(super) fn is_unrouted(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
            && self.json().pointer("/details/name").and_then(Value::as_str).is_none()
    }
}

impl Client {
    pub(super) fn admin(certificates: &Certificates) -> anyhow::Result<Client> {
        Client::with(certificates, Some(&certificates.admin), None)
    }

    pub(super) fn controller(certificates: &Certificates) -> anyhow::Result<Client> {
        Client::with(certificates, Some(&certificates.controller), None)
    }

    pub(super) fn front_proxy(certificates: &Certificates) -> anyhow::Result<Client> {
        Client::with(certificates, Some(&certificates.proxy), None)
    }

    pub(super) fn bearer(
        certificates: &Certificates,
        token: &'static str,
    ) -> anyhow::Result<Client> {
        Client::with(certificates, None, Some(token))
    }

    pub(super) fn anonymous(certificates: &Certificates) -> anyhow::Result<Client> {
        Client::with(certificates, None, None)
    }

    fn with(
        certificates: &Certificates,
        pair: Option<&Pair>,
        token: Option<&'static str>,
    ) -> anyhow::Result<Client> {
        let pair = pair.map(|pair| (pair.certificate.as_bytes(), pair.key.as_bytes()));
        Ok(Client { tls: ClientTls::new(certificates.ca.as_bytes(), pair)?, token })
    }

    /// Sends a request, and reads the whole response.
    pub(super) async fn send(
        &self,
        server: &Server,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> anyhow::Result<Answer> {
        self.send_to(server.address, method, path, headers, body).await
    }

    /// The same, to an address.
    pub(super) async fn send_to(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> anyhow::Result<Answer> {
        let exchange = async {
            let response = self.open_to(address, method, path, headers, body).await?;
            whole(response).await
        };
        timeout(DEADLINE, exchange).await.context("no response within 10 s")?
    }

    /// Sends a GET request.
    pub(super) async fn get(&self, server: &Server, path: &str) -> anyhow::Result<Answer> {
        self.send(server, Method::GET, path, &[], None).await
    }

    /// Sends a request, and returns the response with its body unread.
    pub(super) async fn open(
        &self,
        server: &Server,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let opened = self.open_to(server.address, method, path, headers, body);
        timeout(DEADLINE, opened).await.context("no response within 10 s")?
    }

    async fn open_to(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut sender = self.connect(address).await?;
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = self.complete(request.body(Full::new(body))?)?;
        Ok(sender.send_request(request).await?)
    }

    async fn connect(&self, address: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let tls = TlsConnector::from(Arc::clone(&self.tls.config(&[b"http/1.1"])));
        let stream = tls.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The reader of the response sees how the connection ends.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Adds what every request of this client has.
    fn complete(&self, mut request: Request<Full<Bytes>>) -> anyhow::Result<Request<Full<Bytes>>> {
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        if let Some(token) = self.token {
            headers.insert(AUTHORIZATION, format!("Bearer {token}").try_into()?);
        }
        Ok(request)
    }
}

async fn whole(response: Response<Incoming>) -> anyhow::Result<Answer> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// A client that keeps its connection. Its requests go one after the other.
pub(super) struct Line {
    client: Client,
    open: Mutex<Option<(SocketAddr, SendRequest<Full<Bytes>>)>>,
}

impl Line {
    pub(super) fn new(client: Client) -> Line {
        Line { client, open: Mutex::new(None) }
    }

    /// Sends a request over the connection to this address, and reads the whole response.
    pub(super) async fn send(
        &self,
        address: SocketAddr,
        request: Request<Bytes>,
    ) -> anyhow::Result<Answer> {
        let exchange = async {
            let mut open = self.open.lock().await;
            let mut sender = match open.take() {
                Some((to, sender)) if to == address && !sender.is_closed() => sender,
                _ => self.client.connect(address).await?,
            };
            sender.ready().await?;
            let request = self.client.complete(request.map(Full::new))?;
            let answer = whole(sender.send_request(request).await?).await?;
            *open = Some((address, sender));
            anyhow::Ok(answer)
        };
        timeout(DEADLINE, exchange).await.context("no response within 10 s")?
    }
}
