//! One connection, from the handshake to its end. Entry: [`serve_connection`].

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::head::HeadTimeout;
use super::request::{Activity, Client, RequestService};
use super::target::TargetGuard;
use super::tracked::{Streams, Tracked};
use crate::ReloadableTls;
use crate::connection_limit::Permit;
use crate::limits::{Limits, deadline};

/// A client that vanished without a word is noticed even where HTTP has nothing to say: an idle
/// watch over HTTP/1.1, a quiet tunnel.
const TCP_KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(15));

/// Once all is to end: how long a client that has just come may take to say what it wants.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What a front proxy or a peer may send on all its streams before it is read.
const FRONT_PROXY_WINDOW: u32 = 256 << 20;
/// How many streams it may reset before they are looked at.
const FRONT_PROXY_RESETS: usize = 1000;

type Stream = TokioIo<Tracked<HeadTimeout<TargetGuard<TlsStream<TcpStream>>>>>;

/// What all connections of a listener have in common.
pub(crate) struct Shared {
    pub(crate) tls: ReloadableTls,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    pub(crate) streams: Streams,
}

/// Ends when the connection does; a drain ends it after the requests it has.
pub(crate) async fn serve_connection<S, B>(
    stream: TcpStream,
    remote: SocketAddr,
    service: S,
    shared: Arc<Shared>,
    (activity, permit): (Arc<Activity>, Permit),
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let limits = &shared.limits;
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%remote, %error, "cannot set up the connection");
        return;
    }
    let tls = shared.tls.current();
    let handshake = TlsAcceptor::from(Arc::clone(tls.config())).accept(stream);
    let too_late = async {
        shared.shutdown.cancelled().await;
        sleep(LAST_WORD).await;
    };
    let stream = tokio::select! {
        biased;
        () = too_late => return,
        outcome = timeout(limits.handshake_timeout, handshake) => match outcome {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%remote, %error, "the TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(%remote, "the TLS handshake took too long");
                return;
            }
        },
    };

    let (_, session) = stream.get_ref();
    let http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    // Cancelled by the listener's shutdown, or by the service that ends this connection alone.
    let end = shared.shutdown.child_token();
    if !http2 {
        activity.ends_with(&end);
    }
    let client = Client::new(remote, certificates, http2, shared.tls.clone(), &tls, end.clone());
    drop(tls);
    let front_proxy = client.is_front_proxy();
    let service = RequestService::new(service, client, Arc::clone(&activity));
    let stream = TargetGuard::new(stream, http2, Arc::clone(&activity));
    let stream = HeadTimeout::new(stream, http2, limits.header_read_timeout, Arc::clone(&activity));
    let stream = TokioIo::new(shared.streams.track(stream, Arc::clone(&activity), permit));
    let outcome = if http2 {
        let connection = http2_builder(limits, front_proxy).serve_connection(stream, service);
        drive(connection, true, &activity, &shared.limits, &end).await
    } else {
        let connection = http1_builder(limits).serve_connection(stream, service);
        drive(connection.with_upgrades(), false, &activity, &shared.limits, &end).await
    };
    if let Err(error) = outcome {
        tracing::debug!(%remote, error = &error as &dyn Error, "the connection failed");
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&TCP_KEEPALIVE)
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper's would also close connections that merely rest: see `HeadTimeout`.
        .header_read_timeout(None)
        .max_buf_size(limits.http1_buffer())
        .max_header_size(limits.http1_buffer())
        .max_headers(limits.max_headers);
    // `half_close` stays off, as in Go: the end of the client's stream is how the end of a watch
    // is noticed.
    builder
}

fn http2_builder(limits: &Limits, front_proxy: bool) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .initial_stream_window_size(limits.stream_window())
        .initial_connection_window_size(limits.connection_window())
        .max_send_buf_size(limits.max_send_buffer)
        .max_header_list_size(limits.head_bytes())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    if front_proxy {
        // Many users' resets arrive on it: none of them may end it. A client's own resets end its
        // own connection, by the defaults.
        // h2 also ends a connection with many small unread frames; how many depends on the window.
        builder
            .initial_connection_window_size(FRONT_PROXY_WINDOW)
            .max_pending_accept_reset_streams(FRONT_PROXY_RESETS)
            .max_local_error_reset_streams(None);
    }
    builder
}

/// Polls `connection` to its end, which comes early by a drain or by long idleness.
///
/// A drain tells an HTTP/2 client by GOAWAY, which leaves nothing open. HTTP/1.1 has but the header
/// of a response for it, and a connection that is closed between two requests may be closed on a
/// request that is on its way: so a client may come with one more.
async fn drive<C: Graceful>(
    connection: C,
    http2: bool,
    activity: &Activity,
    limits: &Limits,
    end: &CancellationToken,
) -> Result<(), hyper::Error> {
    let Limits { idle_timeout, header_read_timeout, .. } = *limits;
    let mut connection = pin!(connection);
    let mut shutdown = pin!(end.cancelled());
    let mut timer = pin!(sleep(idle_timeout));
    let mut before = activity.counts();
    let (mut leaving, mut ending) = (false, false);
    loop {
        let idle = tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = shutdown.as_mut(), if !leaving => None,
            () = timer.as_mut() => Some(activity.counts() == before && activity.in_flight() == 0),
        };
        if ending && idle == Some(true) {
            // It was told to end and has nothing to do: the client does not answer, or never
            // sent a preface.
            return Ok(());
        }
        if idle.is_none() {
            leaving = true;
            if !http2 && !ending {
                timer.as_mut().reset(deadline(LAST_WORD));
                continue;
            }
        }
        if !ending && (leaving || idle != Some(false)) {
            connection.as_mut().graceful_shutdown();
            ending = true;
        }
        before = activity.counts();
        let pause = if ending { header_read_timeout.min(LAST_WORD) } else { idle_timeout };
        timer.as_mut().reset(deadline(pause));
    }
}

/// A connection that can be told to end after the requests it has.
trait Graceful: Future<Output = Result<(), hyper::Error>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<S, B> Graceful for http1::UpgradeableConnection<Stream, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        http1::UpgradeableConnection::graceful_shutdown(self);
    }
}

impl<S, B> Graceful for http2::Connection<Stream, S, TokioExecutor>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    TokioExecutor: Http2ServerConnExec<S::Future, B>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        http2::Connection::graceful_shutdown(self);
    }
}
