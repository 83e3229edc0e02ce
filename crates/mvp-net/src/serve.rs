//! Accepts connections, serves each on its own task, and drains. Entry: [`serve`].
//!
//! Submodules: `connection` takes one socket from the handshake to its end, `request` passes each
//! request to the service, `head` limits the time for a request head to arrive, `target` refuses
//! request targets with a `#`, `tracked` counts the streams that are open, `pass_through` leaves
//! connections of the server to itself alone, `tcp` accepts connections that are forwarded without being
//! read.

mod accept;
mod connection;
mod delegate;
mod fault;
mod gather;
mod head;
mod pass_through;
mod request;
mod target;
mod tcp;
mod tracked;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use self::accept::Acceptor;
use self::connection::{Shared, serve_connection};
pub use self::pass_through::PassThrough;
pub(crate) use self::request::Activity;
#[cfg(any(test, fuzzing))]
pub(crate) use self::request::Guard;
#[cfg(fuzzing)]
pub(crate) use self::target::{LENGTHS, TargetGuard};
pub use self::tcp::serve_tcp;
use self::tracked::Streams;
use crate::{Limits, ReloadableTls};

/// The time for a connection whose first packet has arrived to be established: some round trips.
const LAST_CALL: Duration = Duration::from_millis(200);
/// The same where new connections go elsewhere already, so that nobody waits: for clients far away, and
/// lost packets.
const LAST_CALL_HANDED_OVER: Duration = Duration::from_secs(2);

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy at the end of the grace period, upgraded ones included, and
    /// were cut.
    pub cut: usize,
}

/// A listening socket, and what is special about its connections.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Connections that are not for us.
    pub pass_through: Option<PassThrough>,
    /// Whether connections come from the port of another process, and stop coming before `shutdown`.
    pub handed_over: bool,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self { socket, pass_through: None, handed_over: false }
    }
}

/// Serves `listener` until `shutdown`, then drains and returns.
///
/// ALPN chooses between HTTP/2 and HTTP/1.1; without ALPN it is HTTP/1.1. Every request has a
/// [`ConnectionInfo`](crate::ConnectionInfo) in its extensions. The failure of one connection ends
/// that connection only.
///
/// The drain accepts connections whose handshake has begun, then closes the listener. Connections are
/// told to end (GOAWAY, `Connection: close`) and end after their requests in flight; those that are
/// left after `limits.grace` are cut. An upgraded connection belongs to the service, but the drain
/// waits for it, too: at the end of the grace period its reads and writes fail. The service need not
/// register anything for that.
pub async fn serve<S, B>(
    listener: impl Into<Listener>,
    tls: ReloadableTls,
    limits: Limits,
    service: S,
    shutdown: CancellationToken,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // A separate token for each listener: every wake-up of a connection checks it, and workers must
    // not contend for one lock.
    let cut = CancellationToken::new();
    let streams = Streams::new(cut.clone(), limits.waits.clone());
    // However this function ends, no stream outlives it.
    let _cut = cut.drop_guard();
    let Listener { socket, pass_through, handed_over } = listener.into();
    let token = CancellationToken::new();
    let shared = Arc::new(Shared { tls, limits, shutdown: token, streams, pass_through });
    let mut acceptor = Acceptor::new(socket, shared.limits.connections.clone());
    let mut connections = JoinSet::new();
    let begin = {
        let shared = Arc::clone(&shared);
        move |connections: &mut JoinSet<()>, (stream, remote): (TcpStream, SocketAddr)| {
            let limit = &shared.limits.connections;
            let activity = Arc::new(Activity::default());
            let Some(permit) = limit.admit(remote.ip(), &activity) else {
                tracing::debug!(client = %remote, reason = "connection-limit", "connection refused");
                return;
            };
            let number = permit.number();
            let (service, shared) = (service.clone(), Arc::clone(&shared));
            let serving = serve_connection(stream, remote, service, shared, (activity, permit));
            limit.is_served_by(number, connections.spawn(serving));
        }
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
            accepted = acceptor.accept() => begin(&mut connections, accepted),
        }
    }
    acceptor.turn_away();
    let last_call = if handed_over { LAST_CALL_HANDED_OVER } else { LAST_CALL };
    let mut last_call = pin!(sleep(last_call));
    loop {
        tokio::select! {
            accepted = acceptor.accept() => begin(&mut connections, accepted),
            () = last_call.as_mut() => break,
        }
    }
    for accepted in acceptor.last() {
        begin(&mut connections, accepted);
    }
    // Only now: clients that are told to end reconnect at once, and must not reach this listener.
    shared.shutdown.cancel();
    drain(connections, &shared).await
}

async fn drain(mut connections: JoinSet<()>, shared: &Shared) -> Drained {
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
        shared.streams.all_ended().await;
    };
    if timeout(shared.limits.grace, all_ended).await.is_ok() {
        return Drained { cut: 0 };
    }
    let busy = connections.len();
    connections.shutdown().await;
    // The streams that are left were upgraded: they fail when `serve` returns.
    let tunnels = shared.streams.open();
    tracing::warn!(connections = busy, tunnels, "grace period over, busy connections cut");
    Drained { cut: busy + tunnels }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "connection task panicked");
    }
}
