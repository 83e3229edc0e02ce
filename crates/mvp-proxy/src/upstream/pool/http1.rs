//! A pool of HTTP/1.1 connections. Each carries one request at a time, so callers do not share one.
//! Their number is bounded. Entry item: [`Http1Pool::send`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::{IDLE_TIMEOUT, Opened, PoolError, exchange_error, lock};
use crate::body::Body;
use crate::upstream::connect::Endpoint;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::inspect::read_ahead;

/// How long a request waits for a free connection.
const QUEUE_WAIT: Duration = Duration::from_secs(1);
const MAX_HEADERS: usize = 1024;
/// The largest response that is read ahead.
const SMALL: u64 = 16 << 10;

#[derive(Debug)]
pub(crate) struct Http1Pool {
    endpoint: Endpoint,
    idle: Arc<Mutex<Vec<Idle>>>,
    /// One permit for each connection.
    permits: Arc<Semaphore>,
    max: usize,
    /// Whether small responses are read ahead: a slow reader must not block a connection.
    reads_ahead: bool,
}

/// An idle connection, and since when it is idle.
type Idle = (http1::SendRequest<Body>, Instant);

impl Http1Pool {
    pub(crate) fn new(endpoint: Endpoint, max: usize) -> Http1Pool {
        let (idle, permits) = (Arc::default(), Arc::new(Semaphore::new(max)));
        Http1Pool { endpoint, idle, permits, max, reads_ahead: false }
    }

    /// Reads small responses ahead.
    pub(crate) fn reading_ahead(self) -> Http1Pool {
        Http1Pool { reads_ahead: true, ..self }
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let permit = self.permit().await?;
        let (mut sender, response) = match self.take_idle() {
            None => self.send_on_new(request).await?,
            Some(sender) => match self.send_on(sender, request).await {
                // The server closed the idle connection. Nothing was sent, so a new one is used.
                Err(PoolError::Exchange(_, Some(unsent))) => self.send_on_new(*unsent).await?,
                outcome => outcome?,
            },
        };
        // HTTP/2 refuses such trailers when it receives them; hyper's HTTP/1.1 does not.
        let mut response = response.map(Body::without_forbidden_trailers);
        let small = response.body().size_hint().exact().is_some_and(|length| length <= SMALL);
        if self.reads_ahead && small {
            response = read_ahead(response).await;
        }
        // The connection is idle again when the response was read to its end.
        let idle = Arc::clone(&self.idle);
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                lock(&idle).push((sender, Instant::now()));
            }
            drop(permit);
        });
        Ok(response)
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, PoolError> {
        let waiting = timeout(QUEUE_WAIT, Arc::clone(&self.permits).acquire_owned());
        match waiting.await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed, so this is a timeout.
            Ok(Err(_)) | Err(_) => Err(PoolError::Full(self.max)),
        }
    }

    async fn send_on_new(&self, request: Request<Body>) -> Result<Sent, PoolError> {
        let sender = self.connect().await?;
        let (sender, mut response) = self.send_on(sender, request).await?;
        response.extensions_mut().insert(Opened);
        Ok((sender, response))
    }

    async fn send_on(
        &self,
        mut sender: http1::SendRequest<Body>,
        request: Request<Body>,
    ) -> Result<Sent, PoolError> {
        tokio::select! {
            response = sender.try_send_request(request) => {
                Ok((sender, response.map_err(exchange_error)?))
            }
            error = self.endpoint.hangs() => Err(PoolError::Hang(error)),
        }
    }

    fn take_idle(&self) -> Option<http1::SendRequest<Body>> {
        let mut idle = lock(&self.idle);
        retain_fresh(&mut idle);
        idle.pop().map(|(sender, _)| sender)
    }

    pub(super) fn prune(&self) {
        retain_fresh(&mut lock(&self.idle));
    }

    async fn connect(&self) -> Result<http1::SendRequest<Body>, ConnectError> {
        let stream = self.endpoint.connect().await?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(stream)
            .await
            .map_err(std::io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(sender)
    }
}

fn retain_fresh(idle: &mut Vec<Idle>) {
    idle.retain(|(sender, since)| sender.is_ready() && since.elapsed() < IDLE_TIMEOUT);
}

type Sent = (http1::SendRequest<Body>, Response<Incoming>);
