//! One connection, from the TLS handshake to its end. Entry: [`serve_connection`].

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

use super::gather::{Gather, Gathered, gather};
use super::head::HeadTimeout;
use super::pass_through::PassThrough;
use super::request::{Activity, Client, RequestService};
use super::target::TargetGuard;
use super::tracked::{Streams, Tracked};
use crate::connection_limit::Permit;
use crate::limits::{Limits, deadline};
use crate::{ClientError, ReloadableTls, ServerTls, Socket};

/// Detects a client that vanished where HTTP sends nothing: an idle watch over HTTP/1.1, a quiet
/// tunnel.
const TCP_KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(15));

/// The time for a new client to send a request once the listener shuts down.
const LAST_WORD: Duration = Duration::from_secs(2);

/// The HTTP/2 connection window of a front proxy or a peer.
const FRONT_PROXY_WINDOW: u32 = 256 << 20;
/// The pending resets that a front proxy or a peer may have.
const FRONT_PROXY_RESETS: usize = 1000;

type Stream = Tracked<HeadTimeout<TargetGuard<TlsStream<Socket>>>>;

/// The state that all connections of a listener share.
pub(crate) struct Shared {
    pub(crate) tls: ReloadableTls,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    pub(crate) streams: Streams,
    pub(crate) pass_through: Option<PassThrough>,
}

/// Serves one connection until it ends. A drain ends it after its requests in flight.
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
    let stream = match prepare(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(client = %remote, %error, "cannot set socket options");
            return;
        }
    };
    if let Some(pass_through) = &shared.pass_through
        && pass_through.is_for_server(stream.tcp(), remote, limits.handshake_timeout).await
    {
        return pass_through.join(stream, remote, &activity, &shared.shutdown).await;
    }
    let make_room = || limits.connections.make_room_for_handshake();
    let Some(handshaking) = limits.handshakes.begin(make_room) else {
        let error = "too many handshakes in progress";
        tracing::debug!(client = %remote, error, "connection refused");
        return;
    };
    let tls = shared.tls.current();
    let Some(stream) = handshake(stream, remote, &tls, &shared).await else { return };
    drop(handshaking);
    let (socket, session) = stream.get_ref();
    let addresses = (remote, socket.tcp().local_addr().ok());
    let http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    // Cancelled when the listener shuts down, or by the service to end this connection only.
    let end = shared.shutdown.child_token();
    if !http2 {
        activity.ends_with(&end);
    }
    let client = Client::new(addresses, certificates, http2, shared.tls.clone(), &tls, end.clone());
    drop(tls);
    let front_proxy = client.is_front_proxy();
    let errors = limits.errors.clone();
    let service = RequestService::new(service, client, Arc::clone(&activity), errors);
    let service = if http2 { service.over_http2(limits) } else { service };
    let stream = TargetGuard::new(stream, http2, Arc::clone(&activity));
    let stream = HeadTimeout::new(stream, http2, limits.header_read_timeout, Arc::clone(&activity));
    let stream = shared.streams.track(stream, Arc::clone(&activity), permit);
    let outcome = if http2 {
        let (stream, outlet) = gather(stream);
        let builder = http2_builder(limits, front_proxy);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = Gathered::new(connection, outlet);
        drive(connection, true, &activity, &shared.limits, &end).await
    } else {
        let connection = http1_builder(limits).serve_connection(TokioIo::new(stream), service);
        drive(connection.with_upgrades(), false, &activity, &shared.limits, &end).await
    };
    if let Err(error) = outcome {
        ClientError::of(&error, http2).into_iter().for_each(|kind| limits.errors.note(kind));
        // Also a 400 or 431 that hyper answers by itself, to a head that it cannot parse.
        tracing::debug!(client = %remote, error = &error as &dyn Error, "connection failed");
    }
}

/// The TLS handshake; `None` if it fails, takes too long, or the listener shuts down meanwhile.
async fn handshake(
    stream: Socket,
    remote: SocketAddr,
    tls: &ServerTls,
    shared: &Shared,
) -> Option<TlsStream<Socket>> {
    let limits = &shared.limits;
    let config = tls.config_at(|| Some(stream.tcp().local_addr().ok()?.ip()));
    let handshake = TlsAcceptor::from(Arc::clone(config)).accept(stream);
    let too_late = async {
        shared.shutdown.cancelled().await;
        sleep(LAST_WORD).await;
    };
    let outcome = tokio::select! {
        biased;
        () = too_late => return None,
        outcome = timeout(limits.handshake_timeout, handshake) => outcome,
    };
    match outcome {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => {
            limits.errors.note(ClientError::Tls);
            tracing::debug!(client = %remote, %error, "TLS handshake failed");
        }
        Err(_) => {
            limits.errors.note(ClientError::TimedOut);
            let error = "timed out";
            tracing::debug!(client = %remote, error, "TLS handshake failed");
        }
    }
    None
}

fn prepare(stream: TcpStream) -> std::io::Result<Socket> {
    SockRef::from(&stream).set_tcp_keepalive(&TCP_KEEPALIVE)?;
    Socket::new(stream)
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper's own timeout would close idle connections, too: see `HeadTimeout`.
        .header_read_timeout(None)
        .max_buf_size(limits.http1_buffer())
        .max_header_size(limits.http1_buffer())
        .max_headers(limits.max_headers);
    // `half_close` stays off, as in Go: the end of the client's stream ends its watch.
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
        // It carries the resets of many users, none of whom may end it. With the defaults, the
        // resets of a client end the client's own connection.
        // h2 also ends a connection with many small unread frames; their number depends on the window.
        builder
            .initial_connection_window_size(FRONT_PROXY_WINDOW)
            .max_pending_accept_reset_streams(FRONT_PROXY_RESETS)
            .max_local_error_reset_streams(None);
    }
    builder
}

/// Polls `connection` to its end, or ends it early after a drain or the idle timeout.
///
/// An HTTP/2 client is told by GOAWAY. An HTTP/1.1 client can only be told in a response header, and
/// closing the connection between two requests could lose a request that is on its way. So the client
/// may send one more request.
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
            // It was told to end and has no requests: the client does not respond, or never sent a
            // preface.
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
            if !leaving {
                limits.connections.note_idle();
            }
            connection.as_mut().graceful_shutdown();
            ending = true;
        }
        before = activity.counts();
        let pause = if ending { header_read_timeout.min(LAST_WORD) } else { idle_timeout };
        timer.as_mut().reset(deadline(pause));
    }
}

/// A connection that can be told to end after its requests in flight.
trait Graceful: Future<Output = Result<(), hyper::Error>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<S, B> Graceful for http1::UpgradeableConnection<TokioIo<Stream>, S>
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

impl<S, B> Graceful
    for Gathered<http2::Connection<TokioIo<Gather<Stream>>, S, TokioExecutor>, Stream>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    TokioExecutor: Http2ServerConnExec<S::Future, B>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.connection().graceful_shutdown();
    }
}
