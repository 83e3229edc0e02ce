//! Requests of any kind over one HTTP/2 connection, for loads that read what comes back.

use std::net::SocketAddr;

use anyhow::ensure;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;

use super::connect::connect;
use super::{Order, pki};
use crate::pki::client_config;

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) struct Sender {
    sender: http2::SendRequest<Full<Bytes>>,
    server: SocketAddr,
}

impl Sender {
    pub(super) async fn connect(order: &Order, server: SocketAddr) -> anyhow::Result<Sender> {
        let stream =
            connect(server, &client_config(&pki(order), &order.user, b"h2", false)?).await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Sender { sender, server })
    }

    /// Sends a request, and returns the status and the whole body of the answer.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: &Bytes,
    ) -> anyhow::Result<(u16, Bytes)> {
        let response = self.begin(method, path, body).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Sends a request that must succeed, and returns the object of the answer.
    pub(super) async fn object(
        &self,
        method: &str,
        path: &str,
        body: &Bytes,
    ) -> anyhow::Result<Value> {
        let (status, said) = self.send(method, path, body).await?;
        let text = || String::from_utf8_lossy(&said).into_owned();
        ensure!(matches!(status, 200 | 201), "{method} {path}: {status}: {}", text());
        Ok(serde_json::from_slice(&said)?)
    }

    /// Opens a watch, and returns its body.
    pub(super) async fn watch(&self, path: &str) -> anyhow::Result<Incoming> {
        let response = self.begin("GET", path, &Bytes::new()).await?;
        ensure!(response.status() == 200, "GET {path}: {}", response.status());
        Ok(response.into_body())
    }

    async fn begin(
        &self,
        method: &str,
        path: &str,
        body: &Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.server))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()))?;
        Ok(self.sender.clone().send_request(request).await?)
    }
}
