//! Connections to servers: TCP and TLS, within a bounded time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest that a connection may take to come about, and then TLS: where a process was stopped,
/// the kernel still accepts for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TLS_TIMEOUT: Duration = Duration::from_secs(2);

/// Without PINGs, a server that takes so long to answer is asked for a new connection; the next time
/// after twice as long, up to a bound, so that a hang that begins late is found too.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(4);

const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// Where and how to connect.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// `HOST:PORT`
    pub(crate) address: Arc<str>,
    /// The name that its certificate must be for.
    pub(crate) server_name: ServerName<'static>,
    /// Whom we trust, what we present, and which protocol we speak.
    pub(crate) tls: Arc<ClientConfig>,
}

pub(crate) type Connected = TokioIo<TlsStream<TcpStream>>;

impl Endpoint {
    pub(crate) async fn connect(&self) -> io::Result<Connected> {
        let stream = TcpStream::connect(&*self.address);
        let stream = within(CONNECT_TIMEOUT, "connection", stream).await?;
        stream.set_nodelay(true)?;
        // A server that vanishes without a word is noticed also where there are no PINGs.
        SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(self.server_name.clone(), stream);
        Ok(TokioIo::new(within(TLS_TIMEOUT, "TLS", stream).await?))
    }

    /// Ends when the server hangs: it may think for as long as it likes, but it shakes hands. One that
    /// refuses does not hang: it may take no more connections and still finish what it has.
    pub(crate) async fn hangs(&self) -> io::Error {
        let mut wait = PROBE_INTERVAL;
        loop {
            sleep(wait).await;
            match self.connect().await {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return error,
                _ => wait = next_wait(wait),
            }
        }
    }
}

/// How long after a probe the next one is.
fn next_wait(wait: Duration) -> Duration {
    wait.saturating_mul(2).min(MAX_PROBE_INTERVAL)
}

async fn within<T>(
    limit: Duration,
    what: &str,
    step: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(limit, step).await.unwrap_or_else(|_| {
        let message = format!("no {what} within {} s", limit.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_is_looked_for_again_and_again() {
        let waits = std::iter::successors(Some(PROBE_INTERVAL), |wait| Some(next_wait(*wait)));
        let seconds: Vec<u64> = waits.take(6).map(|wait| wait.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 4, 4, 4]);
    }
}
