//! Connections to one server under one identity, HTTP/2 or HTTP/1.1, opened as they are needed.

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

/// kube-apiserver closes idle connections after 90 s; we are well before it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for connections that are only looked at when pools are pruned, every ten seconds.
const IDLE_ROUNDS: usize = 3;

/// Why a request got no response.
#[derive(Debug, Error)]
pub(crate) enum PoolError {
    /// No connection came about.
    #[error("{0}")]
    Connect(ConnectError),
    /// The connection was there; the request is given back if nothing of it was sent.
    #[error("{0}")]
    Exchange(hyper::Error, Option<Box<Request<Body>>>),
    /// The connection is there, but nobody behind it.
    #[error("it hangs: {0}")]
    Hang(ConnectError),
    /// All connections that there may be are in use.
    #[error("all {0} connections of this kind are in use; try again, or authenticate")]
    Full(usize),
}

impl From<ConnectError> for PoolError {
    fn from(error: ConnectError) -> PoolError {
        PoolError::Connect(error)
    }
}

/// Left in the extensions of a response: its request waited for a connection to be opened, so that
/// its time says little about the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened;

/// Connections to one server under one identity.
#[derive(Debug)]
pub(crate) enum Pool {
    Http1(Http1Pool),
    Http2(Http2Pool),
    /// None of them: each request has a connection of its own.
    SingleUse(SingleUse),
}

impl Pool {
    /// Sends a request. Who causes trouble on a connection that others use is told to `blame`.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        blame: Blame,
    ) -> Result<Response<Body>, PoolError> {
        match self {
            Pool::Http2(pool) => pool.send(request, blame).await,
            // In boxes: they are rare, and would make every request larger.
            Pool::Http1(pool) => Box::pin(pool.send(request)).await,
            Pool::SingleUse(connections) => Box::pin(connections.send(request)).await,
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Pool::Http2(_))
    }

    /// Closes connections that nobody has used for a while.
    pub(crate) fn prune(&self) {
        match self {
            Pool::Http1(pool) => pool.prune(),
            Pool::Http2(pool) => pool.prune(),
            Pool::SingleUse(_) => {}
        }
    }
}

pub(crate) fn given_back(mut error: TrySendError<Request<Body>>) -> PoolError {
    let request = error.take_message().map(Box::new);
    PoolError::Exchange(error.into_error(), request)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
