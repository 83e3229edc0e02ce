//! Pools of connections to one server with the same credentials, over HTTP/2 or HTTP/1.1. Entry
//! item: [`Pool::send`].

mod http1;
mod http2;

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::client::conn::TrySendError;
use thiserror::Error;

pub(crate) use self::http1::Http1Pool;
pub(crate) use self::http2::{Http2Pool, MAX_STREAMS};
use super::connect_error::ConnectError;
use super::tunnel::SingleUse;
use crate::body::Body;
use crate::upstream::client::Blame;

/// How long a connection may be idle. kube-apiserver closes idle connections after 90 s; we close
/// them before it does.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for connections that are checked only when pools are pruned, every ten seconds.
const IDLE_ROUNDS: usize = 3;

/// How long a connection to a peer is used if no gateway answers on it. A gateway that takes over the
/// address of a running server gets new connections only.
pub(crate) const BARE_FOR: Duration = Duration::from_secs(10);
/// The same for connections of watches. They last: a short time would leave each watch with a
/// connection of its own.
pub(crate) const BARE_WATCHES_FOR: Duration = Duration::from_secs(300);

/// Why a request got no response.
#[derive(Debug, Error)]
pub(crate) enum PoolError {
    /// No connection could be opened.
    #[error("{0}")]
    Connect(ConnectError),
    /// The exchange over HTTP/1.1 failed. The request is returned if nothing of it was sent.
    #[error("{0}")]
    Exchange(hyper::Error, Option<Box<Request<Body>>>),
    /// The exchange over HTTP/2 failed.
    #[error("{0}")]
    Stream(h2::Error),
    /// Nothing of the request was sent over HTTP/2: the connections closed.
    #[error("{}", .0.as_ref().map_or_else(|| "the server closes its connections".to_owned(), h2::Error::to_string))]
    Unsent(Option<h2::Error>),
    /// The connection is open, but the server hangs.
    #[error("the server hangs: {0}")]
    Hang(ConnectError),
    /// All connections of the pool are in use.
    #[error("all {0} connections of this kind are in use; try again, or authenticate")]
    Full(usize),
}

impl From<ConnectError> for PoolError {
    fn from(error: ConnectError) -> PoolError {
        PoolError::Connect(error)
    }
}

/// An extension of responses whose request waited for a new connection. Their latency says little
/// about the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    began: Instant,
    ended: Instant,
}

impl Opened {
    /// A connection that was waited for since `began`, until now.
    pub(in crate::upstream) fn since(began: Instant) -> Opened {
        Opened { began, ended: Instant::now() }
    }

    /// From when to when a request waited for a new connection, if it did.
    pub(crate) fn of<E>(sent: &Result<Response<Body>, E>) -> Option<(Instant, Instant)> {
        let Opened { began, ended } = sent.as_ref().ok()?.extensions().get()?;
        Some((*began, *ended))
    }
}

/// A pool of connections to one server with the same credentials.
#[derive(Debug)]
pub(crate) enum Pool {
    Http1(Http1Pool),
    Http2(Http2Pool),
    /// Each request has its own connection.
    SingleUse(SingleUse),
}

impl Pool {
    /// Sends a request. `blame` is the client connection responsible for resets on shared
    /// connections.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        blame: Blame,
    ) -> Result<Response<Body>, PoolError> {
        match self {
            Pool::Http2(pool) => pool.send(request, blame).await,
            // Boxed: they are rare, and would make the future of every request larger.
            Pool::Http1(pool) => Box::pin(pool.send(request)).await,
            Pool::SingleUse(connections) => Box::pin(connections.send(request)).await,
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Pool::Http2(_))
    }

    /// Closes idle connections.
    pub(crate) fn prune(&self) {
        match self {
            Pool::Http1(pool) => pool.prune(),
            Pool::Http2(pool) => pool.prune(),
            Pool::SingleUse(_) => {}
        }
    }
}

/// Waits for the outcome of a request that `sender` sent, and returns the sender if its connection
/// lasts. `ended` completes when the connection's task has ended.
///
/// hyper hands requests to the connection's task through a channel of tokio. If the task ends just
/// when a request is put in, the request can be left in the channel, with its caller waiting. The
/// channel gives it back when no sender is left.
pub(crate) async fn outcome<S, F: Future>(
    sender: S,
    sent: F,
    ended: impl Future,
) -> (Option<S>, F::Output) {
    let mut sent = pin!(sent);
    tokio::select! {
        biased;
        outcome = &mut sent => return (Some(sender), outcome),
        _ = ended => drop(sender),
    }
    (None, sent.await)
}

/// An error of hyper, with the request if nothing of it was sent.
pub(crate) fn exchange_error(mut error: TrySendError<Request<Body>>) -> PoolError {
    let request = error.take_message().map(Box::new);
    PoolError::Exchange(error.into_error(), request)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_lasts_keeps_its_sender() {
        let (sender, outcome) = outcome((), async { 1 }, std::future::pending::<()>()).await;
        assert_eq!((sender, outcome), (Some(()), 1));
    }

    /// The request stays in the channel until no sender is left.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_its_connection_did_not_take_is_given_back() {
        let (sender, left) = oneshot::channel::<()>();
        let outcome = outcome(sender, left, std::future::ready(()));
        let (sender, outcome) =
            tokio::time::timeout(Duration::from_secs(5), outcome).await.expect("given back");
        assert!(sender.is_none() && outcome.is_err());
    }
}
