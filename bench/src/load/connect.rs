//! The TLS connections of the load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, stream};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wire::{Seen, Wire};
use super::{Order, pki};
use crate::pki::client_config;

const DEADLINE: Duration = Duration::from_secs(20);

/// Opens a TCP connection and completes the TLS handshake.
pub(super) async fn connect(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let shaken = async {
        let stream = TcpStream::connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let connector = TlsConnector::from(Arc::clone(config));
        connector.connect(name, stream).await.context("no TLS")
    };
    timeout(DEADLINE, shaken).await.context("no connection in time")?
}

/// A connection with HTTP on it.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    wire: Wire,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>, order: &Order) -> Connection {
        let mut out = Vec::new();
        let wire = Wire::new(order, &mut out);
        Connection { stream, wire, out, input: vec![0; 64 << 10] }
    }

    /// Opens as many connections as ordered.
    pub(super) async fn all(order: &Order) -> anyhow::Result<Vec<Connection>> {
        let config = client_config(&pki(order), &order.user, order.protocol.alpn(), false)?;
        let all = stream::iter(0..order.connections).map(async |_| {
            let stream = connect(order.to, &config).await?;
            Ok(Connection::new(stream, order))
        });
        let all: Vec<anyhow::Result<Connection>> = all.buffered(32).collect().await;
        all.into_iter().collect()
    }

    pub(super) fn request(&mut self, due: std::time::Instant) {
        self.wire.request(due, &mut self.out);
    }

    /// Sends the pending output.
    pub(super) async fn flush(&mut self) -> anyhow::Result<()> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await?;
            self.stream.flush().await?;
            self.out.clear();
        }
        Ok(())
    }

    /// Waits for input. It can be cancelled without loss.
    pub(super) async fn read(&mut self, seen: &mut Seen<'_>) -> anyhow::Result<()> {
        let read = self.stream.read(&mut self.input).await?;
        anyhow::ensure!(read > 0, "the server closed the connection");
        let input = self.input.get(..read).unwrap_or_default();
        self.wire.feed(input, &mut self.out, seen)
    }
}
