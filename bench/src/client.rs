//! One request over a connection of its own: for readiness checks and setup.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use testkit::pki::PkiFiles;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pki::{ADMIN, client_config};

/// A response with its whole body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    etag: Option<String>,
    pub(crate) body: String,
}

/// The ETag of a document.
pub(crate) async fn etag(
    pki: &PkiFiles,
    to: SocketAddr,
    path: &str,
    accept: &str,
) -> anyhow::Result<Option<String>> {
    let answer = exchange(pki, to, "GET", path, accept, None).await?;
    anyhow::ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
    Ok(answer.etag)
}

/// Sends a request as the user `admin`.
pub(crate) async fn ask(
    pki: &PkiFiles,
    to: SocketAddr,
    method: &str,
    path: &str,
    json: Option<String>,
) -> anyhow::Result<Answer> {
    exchange(pki, to, method, path, "*/*", json).await
}

async fn exchange(
    pki: &PkiFiles,
    to: SocketAddr,
    method: &str,
    path: &str,
    accept: &str,
    json: Option<String>,
) -> anyhow::Result<Answer> {
    let exchange = async {
        let stream = TcpStream::connect(to).await?;
        let connector = TlsConnector::from(client_config(pki, ADMIN, b"http/1.1", false)?);
        let stream = connector.connect(ServerName::try_from(SERVER_NAME)?, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", to.to_string())
            .header("accept", accept)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(json.unwrap_or_default())))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.map(str::to_owned);
        let body = response.into_body().collect().await?.to_bytes();
        connection.abort();
        anyhow::Ok(Answer { status, etag, body: String::from_utf8_lossy(&body).into_owned() })
    };
    let outcome = timeout(Duration::from_secs(10), exchange).await;
    outcome.context("no answer")?.with_context(|| format!("{method} {path} at {to}"))
}
