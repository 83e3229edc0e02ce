//! Connections to a collector. Entry item: [`Collector`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// The port of collectors for OTLP with gRPC.
const PORT: u16 = 4317;
/// A connection that answers no PING for this long is dead.
const PING: Duration = Duration::from_secs(10);
/// The largest head of a response.
const MAX_HEAD: u32 = 16 << 10;

/// Makes the TLS of a new connection, so that a renewed CA file is used without a restart. It must
/// offer HTTP/2.
pub type Tls = Arc<dyn Fn() -> io::Result<Arc<ClientConfig>> + Send + Sync>;

/// Where an OpenTelemetry collector listens for OTLP with gRPC.
#[derive(Clone)]
pub struct Collector {
    host: String,
    port: u16,
    endpoint: Endpoint,
    tls: Option<Tls>,
}

/// The URL does not name a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidCollector;

impl Collector {
    /// The collector at `http://HOST:PORT`, or at `https://HOST:PORT` with this TLS. The default port
    /// is 4317.
    ///
    /// # Errors
    /// If the URL has another scheme, no host, a user or a path, or if TLS and scheme differ.
    pub fn new(url: &Uri, tls: Option<Tls>) -> Result<Collector, InvalidCollector> {
        let authority = url.authority().ok_or(InvalidCollector)?;
        let secure = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(InvalidCollector),
        };
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        let is_host = !authority.host().is_empty() && !authority.as_str().contains('@');
        if !is_bare || !is_host || secure != tls.is_some() {
            return Err(InvalidCollector);
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // tonic sees plain HTTP: the connections below have their own TLS.
        let endpoint =
            Endpoint::from_shared(format!("http://{authority}")).map_err(|_| InvalidCollector)?;
        let endpoint = endpoint
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .http2_max_header_list_size(MAX_HEAD);
        Ok(Collector { host, port: authority.port_u16().unwrap_or(PORT), endpoint, tls })
    }

    /// A connection that opens with the first request, and again after it was lost.
    pub(super) fn channel(&self) -> Channel {
        let Collector { host, port, tls, .. } = self.clone();
        let dial = service_fn(move |_: Uri| dial(host.clone(), port, tls.clone()));
        self.endpoint.connect_with_connector_lazy(dial)
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let Collector { host, port, .. } = self;
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({self})")
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn dial(host: String, port: u16, tls: Option<Tls>) -> io::Result<TokioIo<Box<dyn Stream>>> {
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(TokioIo::new(Box::new(stream))) };
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await?;
    Ok(TokioIo::new(Box::new(stream)))
}
