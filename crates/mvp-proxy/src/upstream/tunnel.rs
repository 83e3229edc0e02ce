//! Tunnels: upgraded client connections (WebSocket, SPDY/3.1) joined to upgraded connections to a
//! server. Entry items: [`Upgrade::take`], [`Tunnels::open`].
//!
//! The request uses its own HTTP/1.1 connection, which is never reused. It is sent once: the server
//! may have started what it asks for.

use std::time::Instant;

use http::header::UPGRADE;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;

use super::connect::Endpoint;
use super::connect_error::ConnectError;
use super::copy::copy_both_ways;
use super::pool::{Opened, PoolError, exchange_error, outcome};
use crate::body::Body;
use crate::headers;

/// The number of headers that the gateway accepts from a client.
const MAX_HEADERS: usize = 1024;

/// Whether a client asks for a tunnel, over a connection that can become one.
pub(crate) fn is_upgrade(parts: &Parts) -> bool {
    parts.extensions.get::<OnUpgrade>().is_some() && headers::upgrade(&parts.headers).is_some()
}

/// A client's request for a tunnel.
///
/// All attempts share the handle to the client's connection. The attempt that gets a 101 uses it;
/// there is at most one.
pub(crate) struct Upgrade {
    client: OnUpgrade,
    protocols: HeaderValue,
}

impl Upgrade {
    /// The handle to the client's connection, if a request asks for a tunnel.
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Option<Upgrade> {
        let client = extensions.get::<OnUpgrade>()?;
        Some(Upgrade { protocols: headers::upgrade(headers)?, client: client.clone() })
    }

    /// Writes the requested protocols into the headers of a request to a server.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers::set_upgrade(headers, self.protocols.clone());
    }

    /// The protocol of a 101, if it was requested.
    fn agreed(&self, response: &Response<Body>) -> Option<HeaderValue> {
        let chosen = response.headers().get(UPGRADE)?;
        let requested = self.protocols.to_str().ok()?.split(',');
        let chosen_text = chosen.to_str().ok()?.trim();
        let is = |protocol: &str| protocol.trim().eq_ignore_ascii_case(chosen_text);
        requested.into_iter().any(is).then(|| chosen.clone())
    }
}

/// Connections that carry one request each, and may become tunnels.
#[derive(Debug)]
pub(crate) struct SingleUse(pub(crate) Endpoint);

impl SingleUse {
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let began = Instant::now();
        let stream = self.0.connect().await?;
        let opened = Opened::since(began);
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(stream)
            .await
            .map_err(|error| ConnectError::from(std::io::Error::other(error)))?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        // The server may hang after the handshake, as for any request over HTTP/1.1.
        let sent = sender.try_send_request(request);
        tokio::select! {
            (_, response) = outcome(sender, sent, task) => {
                let mut response = response.map_err(exchange_error)?.map(Body::new);
                response.extensions_mut().insert(opened);
                Ok(response)
            }
            error = self.0.hangs() => Err(PoolError::Hang(error)),
        }
    }
}

/// Opens and counts tunnels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels(Gauge);

impl Tunnels {
    pub(crate) fn counted_by(gauge: Gauge) -> Tunnels {
        Tunnels(gauge)
    }

    /// The 101 for the client. When the client has it, the two connections are joined. `None` if
    /// the server chose a protocol that was not requested.
    pub(crate) fn open(
        &self,
        upgrade: Upgrade,
        mut response: Response<Body>,
    ) -> Option<Response<Body>> {
        let protocol = upgrade.agreed(&response)?;
        let server = response.extensions_mut().remove::<OnUpgrade>()?;
        headers::remove_hop_by_hop(response.headers_mut());
        headers::set_upgrade(response.headers_mut(), protocol);
        let open = Open::new(self.0.clone());
        tokio::spawn(async move {
            let _open = open;
            if let Err(error) = join(upgrade.client, server).await {
                tracing::debug!(%error, "tunnel aborted");
            }
        });
        Some(response)
    }
}

/// Copies until both directions have ended, or a read fails. Then both connections are closed
/// abruptly, so that neither peer takes what it received for complete.
async fn join(client: OnUpgrade, server: OnUpgrade) -> std::io::Result<()> {
    let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
    copy_both_ways(TokioIo::new(client), TokioIo::new(server)).await
}

/// A guard that counts an open tunnel.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Open {
        gauge.inc();
        Open(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
