//! Connections to etcd: to one etcd member at a time, and to the next when it fails. Entry item:
//! [`Etcd`].

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, ClientConfig};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tower::service_fn;

/// The time limit for a connection, and for each response except those of a watch.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The current TLS configuration. `None` for connections without TLS.
pub type Tls = watch::Receiver<Option<Arc<ClientConfig>>>;

/// An etcd cluster.
#[derive(Clone)]
pub struct Etcd {
    /// The URLs of its members, as `http://HOST:PORT` or `https://HOST:PORT`.
    servers: Arc<[Uri]>,
    prefix: Arc<str>,
    tls: Tls,
    /// The number of the next connection, which decides its etcd member.
    next: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Etcd {
    /// An etcd cluster with these members, and the prefix of kube-apiserver's keys
    /// (`--etcd-prefix`).
    pub fn new(servers: Vec<Uri>, prefix: &str, tls: Tls) -> Etcd {
        // The same normalisation as in kube-apiserver.
        let prefix = format!("/{}", prefix.trim_matches('/')).into();
        Etcd { servers: servers.into(), prefix, tls, next: Arc::default() }
    }

    /// The path of a folder, with a slash at its end.
    pub(super) fn folder(&self, name: &str) -> String {
        format!("{}/{name}/", self.prefix.trim_end_matches('/'))
    }

    /// The same cluster through each of its members alone.
    pub(super) fn each(&self) -> impl Iterator<Item = Etcd> {
        let one = |server: &Uri| Etcd { servers: [server.clone()].into(), ..self.clone() };
        self.servers.iter().map(one)
    }

    /// Resolves when the TLS configuration is replaced after this call.
    pub(super) fn replaced(&self) -> impl Future<Output = ()> + use<> {
        let mut tls = self.tls.clone();
        tls.mark_unchanged();
        async move {
            if tls.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Connects to the next etcd member.
    pub(super) async fn connect(&self, line: &Line) -> Result<Channel, Status> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let uri = index.checked_rem(self.servers.len()).and_then(|index| self.servers.get(index));
        let uri =
            uri.cloned().ok_or_else(|| Status::unavailable("no etcd server is configured"))?;
        let tls = self.tls.borrow().clone().filter(|_| uri.scheme_str() == Some("https"));
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let plain = format!("http://{authority}");
        let endpoint =
            Endpoint::from_shared(plain).map_err(|e| Status::unavailable(e.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .keep_alive_while_idle(true);
        let line = line.clone();
        let dial = service_fn(move |_: Uri| dial(uri.clone(), tls.clone(), line.clone()));
        let connected = tokio::time::timeout(TIMEOUT, endpoint.connect_with_connector(dial)).await;
        let late = |_| Status::unavailable(format!("etcd at {authority}: connect timed out"));
        connected.map_err(late)?.map_err(|error| {
            let mut status = Status::unavailable(format!("etcd at {authority}"));
            status.set_source(Arc::new(error));
            status
        })
    }
}

/// A request with the time limit, for an etcd member that has a leader.
pub(super) fn soon<T>(message: T) -> Request<T> {
    let mut request = lasting(message);
    request.set_timeout(TIMEOUT);
    request
}

/// A request with a streaming response, for an etcd member that has a leader.
pub(super) fn lasting<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// Remembers the TLS error of a connection. With TLS 1.3 a server rejects a client certificate
/// after the client has completed its handshake, and the errors of requests then carry text at
/// best.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<OnceLock<rustls::Error>>);

impl Line {
    pub(super) fn refusal(&self) -> Option<&rustls::Error> {
        self.0.get()
    }

    fn note(&self, error: &io::Error) {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(error) = inner {
            // Later errors follow from the first.
            let _ = self.0.set(error.clone());
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn dial(
    uri: Uri,
    tls: Option<Arc<ClientConfig>>,
    line: Line,
) -> io::Result<TokioIo<Box<dyn Stream>>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(2379))).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(TokioIo::new(Box::new(stream))) };
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await;
    let stream = stream.inspect_err(|error| line.note(error))?;
    Ok(TokioIo::new(Box::new(Noting { stream, line })))
}

/// A stream that remembers its TLS error.
struct Noting {
    stream: TlsStream<TcpStream>,
    line: Line,
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            self.line.note(error);
        }
        read
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
