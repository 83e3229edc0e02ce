//! A client of the demo: one request per connection, as with curl. Entry: [`Client`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mvp_net::ClientTls;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::certificates::Certificates;
use super::cluster::Server;

/// The time limit of a response from a server in the same process.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client with or without a certificate.
pub(super) struct Client(ClientTls);

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
}

impl Client {
    pub(super) fn admin(certificates: &Certificates) -> anyhow::Result<Client> {
        let pair = (certificates.admin.certificate.as_bytes(), certificates.admin.key.as_bytes());
        Ok(Client(ClientTls::new(certificates.ca.as_bytes(), Some(pair))?))
    }

    pub(super) fn anonymous(certificates: &Certificates) -> anyhow::Result<Client> {
        Ok(Client(ClientTls::new(certificates.ca.as_bytes(), None)?))
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
        let exchange = async {
            let response = self.open(server, method, path, headers, body).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
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
    ) -> anyhow::Result<http::Response<Incoming>> {
        let stream = TcpStream::connect(server.address).await?;
        let name = ServerName::try_from("localhost")?;
        let tls = TlsConnector::from(Arc::clone(&self.0.config(&[b"http/1.1"])));
        let stream = tls.connect(name, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The reader of the response sees how the connection ends.
            let _ = connection.await;
        });
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Full<Bytes> = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Full::from(body.to_string())
            }
            None => Full::default(),
        };
        Ok(sender.send_request(request.body(body)?).await?)
    }
}
