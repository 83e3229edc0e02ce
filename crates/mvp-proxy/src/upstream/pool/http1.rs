//! A pool of HTTP/1.1 connections. Each carries one request at a time, so callers do not share one.
//! Their number is bounded. Entry item: [`Http1Pool::send`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{IDLE_TIMEOUT, Opened, PoolError, exchange_error, lock, outcome};
use crate::body::Body;
use crate::gateway;
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
    /// How long a connection is used on which no gateway answers; `None` for any time.
    bare_for: Option<Duration>,
}

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Body>,
    task: JoinHandle<()>,
    opened: Instant,
    /// Whether a gateway has answered on it.
    is_of_gateway: bool,
}

/// An idle connection, and since when it is idle.
type Idle = (Connection, Instant);

impl Http1Pool {
    pub(crate) fn new(endpoint: Endpoint, max: usize) -> Http1Pool {
        let (idle, permits) = (Arc::default(), Arc::new(Semaphore::new(max)));
        Http1Pool { endpoint, idle, permits, max, reads_ahead: false, bare_for: None }
    }

    /// Replaces a connection after this time if no gateway answers on it.
    pub(crate) fn replacing_bare(self, bare_for: Option<Duration>) -> Http1Pool {
        Http1Pool { bare_for, ..self }
    }

    /// Reads small responses ahead.
    pub(crate) fn reading_ahead(self) -> Http1Pool {
        Http1Pool { reads_ahead: true, ..self }
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let permit = self.permit().await?;
        let (connection, response) = match self.take_idle() {
            None => self.send_on_new(request).await?,
            Some(connection) => match self.send_on(connection, request).await {
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
        let Some(mut connection) = connection else { return Ok(response) };
        // The connection is idle again when the response was read to its end.
        let idle = Arc::clone(&self.idle);
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok() {
                lock(&idle).push((connection, Instant::now()));
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
        let began = std::time::Instant::now();
        let connection = self.connect().await?;
        let opened = Opened::since(began);
        let (connection, mut response) = self.send_on(connection, request).await?;
        response.extensions_mut().insert(opened);
        Ok((connection, response))
    }

    async fn send_on(
        &self,
        Connection { mut sender, mut task, opened, is_of_gateway }: Connection,
        request: Request<Body>,
    ) -> Result<Sent, PoolError> {
        let sent = sender.try_send_request(request);
        let (sender, response) = tokio::select! {
            // A response that is there counts, whatever a probe finds.
            biased;
            outcome = outcome(sender, sent, &mut task) => outcome,
            error = self.endpoint.hangs() => return Err(PoolError::Hang(error)),
        };
        let response = response.map_err(exchange_error)?;
        let is_of_gateway = is_of_gateway || gateway::is_of_gateway(response.headers());
        let lasting = sender.map(|sender| Connection { sender, task, opened, is_of_gateway });
        Ok((lasting, response))
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        self.retain_fresh(&mut idle);
        idle.pop().map(|(connection, _)| connection)
    }

    pub(super) fn prune(&self) {
        self.retain_fresh(&mut lock(&self.idle));
    }

    fn retain_fresh(&self, idle: &mut Vec<Idle>) {
        let is_outdated = |Connection { opened, is_of_gateway, .. }: &Connection| {
            !is_of_gateway && self.bare_for.is_some_and(|limit| opened.elapsed() >= limit)
        };
        idle.retain(|(connection, since)| {
            let is_recent = since.elapsed() < IDLE_TIMEOUT;
            connection.sender.is_ready() && is_recent && !is_outdated(connection)
        });
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        let stream = self.endpoint.connect().await?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(stream)
            .await
            .map_err(std::io::Error::other)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(Connection { sender, task, opened: Instant::now(), is_of_gateway: false })
    }
}

/// A response, with its connection unless that has ended.
type Sent = (Option<Connection>, Response<Incoming>);
