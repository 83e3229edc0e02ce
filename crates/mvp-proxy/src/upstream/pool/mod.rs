//! Pools of connections to one server with the same credentials, over HTTP/2 or HTTP/1.1. Entry
//! item: [`Pool::send`].

mod hang;
mod http1;
mod http2;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// The exchange failed. The request is returned if nothing of it was sent.
    #[error("{0}")]
    Exchange(hyper::Error, Option<Box<Request<Body>>>),
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
pub(crate) struct Opened;

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

/// An error of hyper, with the request if nothing of it was sent.
pub(crate) fn exchange_error(mut error: TrySendError<Request<Body>>) -> PoolError {
    let request = error.take_message().map(Box::new);
    PoolError::Exchange(error.into_error(), request)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
