//! One request to an API server, over a connection of its own. Entries: [`Https::get`],
//! [`Https::post`].

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Builder;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mvp_net::{ClientTls, connect_from};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::cli::ServerUrl;

/// The time limit of a request, connection included.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest body that is read.
const MAX_BODY: usize = 64 << 20;

/// A way to one API server: its address, the name to verify, and the credentials.
#[derive(Debug, Clone)]
pub(crate) struct Https {
    pub(crate) url: ServerUrl,
    pub(crate) tls: ClientTls,
    /// The name in the server's certificate.
    pub(crate) name: ServerName<'static>,
    pub(crate) token: Option<String>,
    /// The address of this host to connect from, if not any.
    pub(crate) source: Option<IpAddr>,
}

/// A complete response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Https {
    /// Sends a GET request with these headers, and reads the whole response.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
        self.send(Request::get(path), headers, Bytes::new()).await
    }

    /// Sends a POST request with a JSON body, in the same way.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &serde_json::Value,
    ) -> anyhow::Result<Answer> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.send(request, headers, body.to_string().into()).await
    }

    async fn send(
        &self,
        request: Builder,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Answer> {
        let mut request = request.header(HOST, self.url.authority());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .context("the token has characters that a header cannot have")?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let exchange = self.exchange(request.body(Full::new(body))?);
        timeout(TIMEOUT, exchange)
            .await
            .with_context(|| format!("{} sent no response within {TIMEOUT:?}", self.url))?
    }

    /// Opens a connection, without TLS.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let address = (self.url.host.as_str(), self.url.port);
        match self.source {
            Some(source) => connect_from(source, address).await,
            None => TcpStream::connect(address).await,
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let stream =
            self.connect().await.with_context(|| format!("{} cannot be reached", self.url))?;
        let tls = TlsConnector::from(Arc::clone(&self.tls.config(&[b"http/1.1"])));
        let stream = tls
            .connect(self.name.clone(), stream)
            .await
            .with_context(|| format!("TLS with {} failed", self.url))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await;
        let response = response.with_context(|| format!("{} sent no response", self.url))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body =
            body.map_err(|error| anyhow::anyhow!("the response of {}: {error}", self.url))?;
        driver.abort();
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}
