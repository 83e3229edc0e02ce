//! Connections to etcd: to one of its members at a time, the next when that fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tower::service_fn;

/// Connecting, and each answer but a watch's.
const TIMEOUT: Duration = Duration::from_secs(3);
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Gives the TLS to connect with, made of files as they are now; nothing for plain connections.
pub type TlsSource = Arc<dyn Fn() -> Result<Option<Arc<ClientConfig>>, String> + Send + Sync>;

/// An etcd, by its members.
#[derive(Clone)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT`, each.
    servers: Arc<[Uri]>,
    prefix: Arc<str>,
    tls: TlsSource,
    /// Which is the one to ask.
    next: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Etcd {
    /// These members, and where kube-apiserver keeps its keys (`--etcd-prefix`).
    pub fn new(servers: Vec<Uri>, prefix: &str, tls: TlsSource) -> Etcd {
        // As kube-apiserver does.
        let prefix = format!("/{}", prefix.trim_matches('/')).into();
        Etcd { servers: servers.into(), prefix, tls, next: Arc::default() }
    }

    /// The folder of that name, with a slash at its end.
    pub(super) fn folder(&self, name: &str) -> String {
        format!("{}/{name}/", self.prefix.trim_end_matches('/'))
    }

    /// A connection to the next member.
    pub(super) async fn connect(&self) -> Result<Channel, Status> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let uri = index.checked_rem(self.servers.len()).and_then(|index| self.servers.get(index));
        let uri = uri.cloned().ok_or_else(|| Status::unavailable("there is no etcd"))?;
        let secure = uri.scheme_str() == Some("https");
        let tls = if secure { (self.tls)().map_err(Status::unavailable)? } else { None };
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let plain = format!("http://{authority}");
        let endpoint =
            Endpoint::from_shared(plain).map_err(|e| Status::unavailable(e.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .keep_alive_while_idle(true);
        let dial = service_fn(move |_: Uri| dial(uri.clone(), tls.clone()));
        let connected = tokio::time::timeout(TIMEOUT, endpoint.connect_with_connector(dial)).await;
        let late = |_| Status::unavailable(format!("etcd at {authority}: no connection in time"));
        connected.map_err(late)?.map_err(|error| {
            let reason = std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string);
            Status::unavailable(format!("etcd at {authority}: {reason}"))
        })
    }
}

/// A request whose answer must come soon, of a member that has a leader.
pub(super) fn soon<T>(message: T) -> Request<T> {
    let mut request = lasting(message);
    request.set_timeout(TIMEOUT);
    request
}

/// A request whose answer goes on and on, as long as the member has a leader.
pub(super) fn lasting<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn dial(uri: Uri, tls: Option<Arc<ClientConfig>>) -> io::Result<TokioIo<Box<dyn Stream>>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(2379))).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(TokioIo::new(Box::new(stream))) };
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    Ok(TokioIo::new(Box::new(stream)))
}
