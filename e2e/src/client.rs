//! An HTTP client that hides nothing of the wire: one request per connection, like curl, or many.
//! HTTP/2 is in `http2`; requests that no library would send are in `raw`.

mod http2;
mod raw;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mvp_net::ClientTls;
use rustls_pki_types::ServerName;
use serde_json::Value;
use testkit::pki::PairFiles;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) use http2::{Http2, Http2Watch, is_retryable};
pub(crate) use raw::{Outcome, http1_status, http2_outcome};

/// The time limit of a request.
const DEADLINE: Duration = Duration::from_secs(30);

/// A caller: with a certificate, a token or further headers, or anonymous.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    tls: ClientTls,
    headers: HeaderMap,
    from: Option<IpAddr>,
}

/// A response with its whole body.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body, if the status is the expected one; otherwise an error that shows both.
    pub(crate) fn expect(&self, status: u16) -> anyhow::Result<Value> {
        if self.status.as_u16() != status {
            bail!("expected {status}, got {self}");
        }
        Ok(self.json())
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        let shown: String = body.trim().chars().take(300).collect();
        write!(f, "{}: {shown}", self.status)
    }
}

impl Client {
    /// An anonymous caller that trusts this CA.
    pub(crate) fn nobody(ca: &Path) -> anyhow::Result<Client> {
        let tls = ClientTls::new(&read(ca)?, None)?;
        Ok(Client { tls, headers: HeaderMap::new(), from: None })
    }

    /// A caller with a client certificate.
    pub(crate) fn with_certificate(ca: &Path, pair: &PairFiles) -> anyhow::Result<Client> {
        let (certificate, key) = (read(&pair.certificate)?, read(&pair.key)?);
        let tls = ClientTls::new(&read(ca)?, Some((&certificate, &key)))?;
        Ok(Client { tls, headers: HeaderMap::new(), from: None })
    }

    /// Adds a header to every request.
    pub(crate) fn with_header(&self, name: &str, value: &str) -> anyhow::Result<Client> {
        let mut client = self.clone();
        let value = HeaderValue::from_str(value)?;
        client.headers.append(HeaderName::from_bytes(name.as_bytes())?, value);
        Ok(client)
    }

    /// Adds a header whose value may have any bytes.
    pub(crate) fn with_value(
        &self,
        name: &'static str,
        value: HeaderValue,
    ) -> anyhow::Result<Client> {
        let mut client = self.clone();
        client.headers.try_append(HeaderName::from_static(name), value)?;
        Ok(client)
    }

    pub(crate) fn with_token(&self, token: &str) -> anyhow::Result<Client> {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// Connects from this address, so that logs can tell its requests from others.
    #[must_use]
    pub(crate) fn from(&self, address: IpAddr) -> Client {
        Client { from: Some(address), ..self.clone() }
    }

    pub(crate) async fn get(&self, to: SocketAddr, path: &str) -> anyhow::Result<Answer> {
        self.send(to, Method::GET, path, None).await
    }

    /// A GET with another `Accept`.
    pub(crate) async fn get_as(
        &self,
        to: SocketAddr,
        path: &str,
        accept: &str,
    ) -> anyhow::Result<Answer> {
        self.with_header("accept", accept)?.get(to, path).await
    }

    pub(crate) async fn create(
        &self,
        to: SocketAddr,
        path: &str,
        object: &Value,
    ) -> anyhow::Result<Answer> {
        self.send(to, Method::POST, path, Some(("application/json", object))).await
    }

    pub(crate) async fn delete(&self, to: SocketAddr, path: &str) -> anyhow::Result<Answer> {
        self.send(to, Method::DELETE, path, None).await
    }

    /// Sends one request over a connection of its own.
    pub(crate) async fn send(
        &self,
        to: SocketAddr,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Answer> {
        let what = format!("{method} {path} at {to}");
        let exchange = async { self.connect(to).await?.send(method, path, body).await };
        let outcome = timeout(DEADLINE, exchange).await;
        outcome.unwrap_or_else(|_| bail!("no answer within {} s", DEADLINE.as_secs())).context(what)
    }

    /// Opens a connection for one request after the other.
    pub(crate) async fn connect(&self, to: SocketAddr) -> anyhow::Result<Connection> {
        let stream = self.handshake(to, b"http/1.1").await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(Connection { sender, headers: self.headers.clone(), to })
    }

    /// Opens a TLS connection for one protocol.
    pub(crate) async fn handshake(
        &self,
        to: SocketAddr,
        protocol: &[u8],
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(from) = self.from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        crate::sockets::count_own();
        let stream = socket.connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.tls.config(&[protocol]));
        let name = ServerName::from(to.ip());
        connector.connect(name, stream).await.context("no TLS")
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, to: SocketAddr, path: &str) -> anyhow::Result<Watch> {
        match self.open_watch(to, path).await? {
            Ok(watch) => Ok(watch),
            Err(answer) => bail!("watch {path} at {to}: {answer}"),
        }
    }

    /// Opens a watch, or returns the response that rejected it.
    pub(crate) async fn open_watch(
        &self,
        to: SocketAddr,
        path: &str,
    ) -> anyhow::Result<Result<Watch, Answer>> {
        let started = async {
            let mut connection = self.connect(to).await?;
            let response = connection.start(Method::GET, path, None).await?;
            if response.status() != StatusCode::OK {
                return Ok(Err(whole(response).await?));
            }
            Ok(Ok(Watch { body: response.into_body(), read: Vec::new() }))
        };
        let what = format!("watch {path} at {to}");
        timeout(DEADLINE, started).await.unwrap_or_else(|_| bail!("no answer")).context(what)
    }
}

/// A connection for several requests.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    to: SocketAddr,
}

impl Connection {
    /// Waits until it can carry the next request. Returns whether it still can.
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Answer> {
        whole(self.start(method, path, body).await?).await
    }

    /// Forwards a request of another client, with this caller's token and the server's `Host`. The
    /// response body is not read.
    pub(crate) async fn pass_on(
        &mut self,
        parts: http::request::Parts,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let path = parts.uri.path_and_query().context("no path")?.to_string();
        let mut request = Request::builder().method(parts.method).uri(path);
        let headers = request.headers_mut().context("no headers")?;
        *headers = parts.headers;
        headers.insert(http::header::HOST, HeaderValue::from_str(&self.to.to_string())?);
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// Sends a request. The response body is not read.
    pub(crate) async fn start(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).body(Full::default())?;
        *request.headers_mut() = self.headers.clone();
        let host = HeaderValue::from_str(&self.to.to_string())?;
        request.headers_mut().insert(http::header::HOST, host);
        if let Some((content_type, value)) = body {
            let content_type = HeaderValue::from_str(content_type)?;
            request.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
            *request.body_mut() = Full::new(Bytes::from(serde_json::to_vec(value)?));
        }
        Ok(self.sender.send_request(request).await?)
    }
}

/// A response that broke off.
pub(crate) const CUT_OFF: &str = "the body broke off";

/// Reads a response to its end.
pub(crate) async fn whole(response: Response<Incoming>) -> anyhow::Result<Answer> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.context(CUT_OFF)?.to_bytes();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    body: Incoming,
    read: Vec<u8>,
}

impl Watch {
    /// The next event; none once the server has ended the watch.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        timeout(DEADLINE, self.next_line()).await.context("no event came")?
    }

    /// The next event; none once the watch has ended, or after a timeout.
    pub(crate) async fn next_or_silence(
        &mut self,
        silence: Duration,
    ) -> anyhow::Result<Option<Value>> {
        timeout(silence, self.next_line()).await.unwrap_or(Ok(None))
    }

    async fn next_line(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// The next event as `ADDED name`.
    pub(crate) async fn next_change(&mut self) -> anyhow::Result<String> {
        let event = self.next().await?.context("the watch ended")?;
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Ok(format!("{} {}", text("/type"), text("/object/metadata/name")))
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {file:?}"))
}

/// Sends a GET without TLS.
pub(crate) async fn plain(to: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let request = Request::get(path).body(Full::default())?;
    plainly(to, request).await.with_context(|| format!("GET {path} at {to}"))
}

/// Sends a POST of JSON without TLS, with this token.
pub(crate) async fn plain_post(
    to: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> anyhow::Result<Answer> {
    let mut request = Request::post(path);
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, token);
    }
    let request = request.body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
    plainly(to, request).await.with_context(|| format!("POST {path} at {to}"))
}

async fn plainly(to: SocketAddr, mut request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
    request.headers_mut().insert(http::header::HOST, HeaderValue::from_str(&to.to_string())?);
    let exchange = async {
        let stream = TcpStream::connect(to).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        whole(sender.send_request(request).await?).await
    };
    timeout(DEADLINE, exchange).await.unwrap_or_else(|_| bail!("no answer"))
}
