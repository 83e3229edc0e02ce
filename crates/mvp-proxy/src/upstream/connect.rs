//! Connections to servers: TCP and TLS, with time limits. Entry item: [`Endpoint::connect`].

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use mvp_net::{Socket, UntrustedServer};
use rustls::{AlertDescription, CertificateError, ClientConfig, OtherError};
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect_error::{BUSY, ConnectError};
use super::counted::Counted;
use super::egress::{ConnectProxy, Egress};
use super::link::Link;
use super::network::Network;
use super::pulse::Beat;

/// A server that sends nothing for this long on any connection, while one is being opened, is dead.
/// A TCP connection alone proves nothing: the kernel accepts it for a stopped process.
const SILENCE: Duration = Duration::from_secs(2);
/// Without PINGs, a server that is silent for this long is probed with a new connection. With
/// [`SILENCE`], a hang is detected within three seconds.
const PROBE_AFTER: Duration = Duration::from_millis(750);
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The ALPN protocol of HTTP/2.
const HTTP2: &[u8] = b"h2";

const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// A server's address, and how to connect to it.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// `HOST:PORT`
    pub(crate) address: Arc<str>,
    /// The address to connect from.
    pub(crate) source: Option<IpAddr>,
    /// The proxies on the way to it; none on the way to the local server.
    pub(crate) egress: Option<Egress>,
    /// The network to it, where there is no proxy on the way.
    pub(crate) network: Network,
    /// The name that its certificate must have.
    pub(crate) server_name: ServerName<'static>,
    /// The trusted CAs, the client certificate and the protocol.
    pub(crate) tls: Arc<ClientConfig>,
    /// Counts reads from the server.
    pub(crate) beat: Beat,
}

pub(crate) type Connected = TokioIo<TlsStream<Counted<Link>>>;

impl Endpoint {
    /// Opens a connection. Fails if the server is silent for [`SILENCE`], or busy for [`BUSY`].
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        let proxy = self.egress.as_ref().and_then(|egress| egress.proxy_to(&self.address));
        let connected = self.unless_silent(async {
            let stream = match (&proxy, self.source) {
                (Some(proxy), _) => proxy.connect(&self.address).await?,
                (None, source) => self.network.connect(&self.address, source).await?,
            };
            let stream = self.beat.clone().count(stream);
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            let stream = connector.connect(self.server_name.clone(), stream).await;
            let stream = stream.map_err(|error| self.explain(error))?;
            let (_, session) = stream.get_ref();
            if self.wants_http2() && session.alpn_protocol() != Some(HTTP2) {
                return Err(no_http2());
            }
            Ok(TokioIo::new(stream))
        });
        connected.await.map_err(|error| match &proxy {
            Some(proxy) if error.is_silence() => silence(Some(proxy)).into(),
            _ => error,
        })
    }

    fn wants_http2(&self) -> bool {
        self.tls.alpn_protocols == [HTTP2]
    }

    /// The error in words that say what to do, where rustls does not.
    fn explain(&self, error: io::Error) -> io::Error {
        let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
        match reason {
            Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol))
                if self.wants_http2() =>
            {
                no_http2()
            }
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(
                reason,
            )))) => match reason.downcast_ref::<UntrustedServer>() {
                Some(untrusted) => io::Error::new(error.kind(), untrusted.clone()),
                None => error,
            },
            _ => error,
        }
    }

    /// The outcome of `step`, unless the server is silent or busy for too long.
    async fn unless_silent<T>(
        &self,
        step: impl Future<Output = io::Result<T>>,
    ) -> Result<T, ConnectError> {
        let mut step = std::pin::pin!(step);
        let began = Instant::now();
        let mut heard = self.beat.heard();
        loop {
            if let Ok(outcome) = timeout(SILENCE, step.as_mut()).await {
                return outcome.map_err(ConnectError::from);
            }
            let now = self.beat.heard();
            if now == heard {
                return Err(silence(None).into());
            }
            if began.elapsed() >= BUSY {
                return Err(ConnectError::Busy);
            }
            heard = now;
        }
    }

    /// Completes when the server hangs: it sends nothing on any connection, and completes no new
    /// handshake. A slow response is not a hang. Nor is a refused connection: a server that shuts
    /// down accepts none, and still completes its requests.
    pub(crate) async fn hangs(&self) -> ConnectError {
        let (mut heard, mut since) = (self.beat.heard(), Instant::now());
        loop {
            sleep(CHECK_INTERVAL).await;
            let now = self.beat.heard();
            if now == heard && since.elapsed() < PROBE_AFTER {
                continue;
            }
            if now == heard
                && let Err(error) = self.beat.probing().run(|| self.connect()).await
                && error.is_silence()
            {
                return error;
            }
            (heard, since) = (self.beat.heard(), Instant::now());
        }
    }
}

/// A TCP connection without delays. A server that vanished is detected, also where there are no PINGs.
pub(super) fn tcp(stream: TcpStream) -> io::Result<Socket> {
    SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
    Socket::new(stream)
}

fn silence(proxy: Option<&ConnectProxy>) -> io::Error {
    let seconds = SILENCE.as_secs();
    let message = match proxy {
        Some(proxy) => format!("no connection within {seconds} s through {proxy}"),
        None => format!("no connection within {seconds} s"),
    };
    io::Error::new(io::ErrorKind::TimedOut, message)
}

fn no_http2() -> io::Error {
    let message = "the server does not support HTTP/2 (ALPN h2), which mvp needs; enable HTTP/2 on the \
                   server, and if a proxy answers at this address, give the address of the API server \
                   itself";
    io::Error::new(io::ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::pulse::Pulses;

    fn endpoint(beat: Beat) -> Endpoint {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Endpoint {
            address: "127.0.0.1:1".into(),
            source: None,
            egress: None,
            network: Network::default(),
            server_name: crate::upstream::server_name(),
            tls: Arc::new(tls),
            beat,
        }
    }

    /// Reads a byte from the server at an interval, on another connection.
    fn read_elsewhere(beat: Beat, every: Duration) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut server, client) = tokio::io::duplex(64);
        let mut client = beat.count(client);
        tokio::spawn(async move {
            loop {
                sleep(every).await;
                server.write_all(b"x").await.unwrap();
                client.read_exact(&mut [0]).await.unwrap();
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_dead_and_a_busy_one_is_waited_for() {
        let pulses = Pulses::default();
        let silent = endpoint(pulses.beat(&"silent:1".into()));
        let began = Instant::now();
        let never = std::future::pending::<io::Result<()>>;
        assert!(silent.unless_silent(never()).await.unwrap_err().is_silence());
        assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());

        let busy = endpoint(pulses.beat(&"busy:1".into()));
        read_elsewhere(pulses.beat(&"busy:1".into()), Duration::from_millis(700));
        let late = async {
            sleep(Duration::from_secs(5)).await;
            Ok(())
        };
        assert!(busy.unless_silent(late).await.is_ok(), "the handshake completes late");
        let began = Instant::now();
        assert!(matches!(busy.unless_silent(never()).await, Err(ConnectError::Busy)));
        assert_eq!(began.elapsed().as_secs(), BUSY.as_secs());
    }

    #[test]
    fn the_alert_of_a_server_without_http2_is_explained() {
        let alert = || {
            let alert = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
            io::Error::new(io::ErrorKind::InvalidData, alert)
        };
        for (offered, explained) in [(HTTP2, true), (b"http/1.1", false)] {
            let mut endpoint = endpoint(Pulses::default().beat(&"server:1".into()));
            Arc::make_mut(&mut endpoint.tls).alpn_protocols = vec![offered.to_vec()];
            let error = endpoint.explain(alert()).to_string();
            assert_eq!(error.contains("; enable HTTP/2 on the server"), explained, "{error}");
        }
    }
}
