//! Accepts connections, serves each on a task of its own, and drains. Entry: [`serve`].
//!
//! Beneath it: `connection` takes one socket from handshake to end, `request` hands each request
//! to the service, `head` bounds how long a request may take to arrive, `target` refuses request
//! targets that would be cut off, `tracked` knows who still has a connection.

mod accept;
mod connection;
mod head;
mod request;
mod target;
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
pub(crate) use self::request::Activity;
#[cfg(test)]
pub(crate) use self::request::Guard;
use self::tracked::Streams;
use crate::{Limits, ReloadableTls};

/// How long a connection whose first packet came may take to stand: some round trips.
const LAST_CALL: Duration = Duration::from_millis(200);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when the grace was over, upgraded ones too, and were cut.
    pub cut: usize,
}

/// Serves `listener` until `shutdown`, then drains and returns.
///
/// ALPN chooses between HTTP/2 and HTTP/1.1 (also without ALPN). Every request carries a
/// [`ConnectionInfo`](crate::ConnectionInfo). A failure of one connection ends that one alone.
/// Draining: nobody new comes, who is half way in is let in, the listener is closed; connections
/// are told to end (GOAWAY, `Connection: close`) and end after the requests they have, and what is
/// left after `limits.grace` is cut. An upgraded connection belongs to the service, whose tasks end
/// it; but the drain waits for it as for others, and when the grace is over, its reads and writes
/// fail. Nobody has to register anything for that.
pub async fn serve<S, B>(
    listener: TcpListener,
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
    // A token of our own: every wake-up of a connection looks at it, and workers must not meet
    // at one lock.
    let cut = CancellationToken::new();
    let streams = Streams::new(cut.clone());
    // However this ends, no stream outlives it.
    let _cut = cut.drop_guard();
    let shared = Arc::new(Shared { tls, limits, shutdown: CancellationToken::new(), streams });
    let mut acceptor = Acceptor::new(listener, shared.limits.connections.clone());
    let mut connections = JoinSet::new();
    let begin = {
        let shared = Arc::clone(&shared);
        move |connections: &mut JoinSet<()>, (stream, remote): (TcpStream, SocketAddr)| {
            let limit = &shared.limits.connections;
            let activity = Arc::new(Activity::default());
            let Some(permit) = limit.admit(remote.ip(), &activity) else {
                tracing::debug!(%remote, "connection refused: too many are open");
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
    let mut last_call = pin!(sleep(LAST_CALL));
    loop {
        tokio::select! {
            accepted = acceptor.accept() => begin(&mut connections, accepted),
            () = last_call.as_mut() => break,
        }
    }
    for accepted in acceptor.last() {
        begin(&mut connections, accepted);
    }
    // Only now: whoever is told to end comes back at once, and must not come to this listener.
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
    // Those that are left were upgraded: they fail when `serve` ends.
    let tunnels = shared.streams.open();
    tracing::warn!(connections = busy, tunnels, "the grace is over: cut what was still busy");
    Drained { cut: busy + tunnels }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "the task of a connection panicked");
    }
}
