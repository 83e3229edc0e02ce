//! Tunnels: a connection that WebSocket or SPDY/3.1 took over from HTTP is joined to another one to
//! the server. Entry items: [`Upgrade::take`], [`Upgrade::agreed`], [`Tunnels::open`].
//!
//! The request travels on an HTTP/1.1 connection of its own, which is never used again. Once it was
//! sent it is not sent again: whatever it starts may have been started.

use http::header::UPGRADE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;

use super::connect::Endpoint;
use super::connect_error::ConnectError;
use super::copy::copy_both_ways;
use super::pool::{PoolError, given_back};
use crate::body::Body;
use crate::headers;

/// As many as the gateway takes from a client.
const MAX_HEADERS: usize = 1024;

/// Whether a client asks for a tunnel: the right headers, over a connection that can become one.
pub(crate) fn is_upgrade(parts: &Parts) -> bool {
    parts.extensions.get::<OnUpgrade>().is_some() && headers::upgrade(&parts.headers).is_some()
}

/// A client's wish for a tunnel.
///
/// A request is cloned for each attempt to send it, and all clones have the same way to the
/// client's connection; it is used by whoever gets a server's 101, which only one can get.
pub(crate) struct Upgrade {
    client: OnUpgrade,
    protocols: HeaderValue,
}

impl Upgrade {
    /// Takes the way to the client's connection from a request that asks for a tunnel.
    pub(crate) fn take(request: &mut Request<Body>) -> Option<Upgrade> {
        let protocols = headers::upgrade(request.headers())?;
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Upgrade { client, protocols })
    }

    /// Writes what is asked for into the headers of a request that goes to a server.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers::set_upgrade(headers, self.protocols.clone());
    }

    /// The protocol of a 101, if it is one of those that were asked for.
    fn agreed(&self, response: &Response<Body>) -> Option<HeaderValue> {
        let chosen = response.headers().get(UPGRADE)?;
        let asked_for = self.protocols.to_str().ok()?.split(',');
        let chosen_text = chosen.to_str().ok()?.trim();
        let is = |protocol: &str| protocol.trim().eq_ignore_ascii_case(chosen_text);
        asked_for.into_iter().any(is).then(|| chosen.clone())
    }
}

/// Connections that carry one request each, and perhaps become tunnels.
#[derive(Debug)]
pub(crate) struct SingleUse(pub(crate) Endpoint);

impl SingleUse {
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let stream = self.0.connect().await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(stream)
            .await
            .map_err(|error| ConnectError::from(std::io::Error::other(error)))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        // As for any other request over HTTP/1.1: the handshake above proves nothing of what is after.
        tokio::select! {
            response = sender.try_send_request(request) => {
                Ok(response.map_err(given_back)?.map(Body::new))
            }
            error = self.0.hangs() => Err(PoolError::Hang(error)),
        }
    }
}

/// The tunnels that are open, as a number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels(Gauge);

impl Tunnels {
    pub(crate) fn counted_by(gauge: Gauge) -> Tunnels {
        Tunnels(gauge)
    }

    /// Makes a server's 101 the client's, and joins the two connections once the client has it.
    /// Nothing where the server did not answer what was asked.
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
                tracing::debug!(%error, "a tunnel broke");
            }
        });
        Some(response)
    }
}

/// Ends when both sides have ended, or one of them broke: then both are closed as they are, so that
/// neither takes what it got for the whole.
async fn join(client: OnUpgrade, server: OnUpgrade) -> std::io::Result<()> {
    let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
    copy_both_ways(TokioIo::new(client), TokioIo::new(server)).await
}

/// A tunnel, while it lives.
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
