//! Connections to one server under one identity, HTTP/2 or HTTP/1.1, opened as they are needed.
//!
//! hyper has no accounting of HTTP/2 streams: a request beyond the server's limit would wait behind
//! watches that never end. So each connection counts its streams, and the next one is opened below
//! the limit.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use super::connect::Endpoint;
use super::tunnel::SingleUse;
use crate::body::Body;

/// A stream window times a hundred streams stays below the connection's window, so that slow
/// readers of some streams cannot stall the others.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 16 << 20;
const MAX_STREAMS: usize = 100;
/// How many connections that end a request may meet in a row.
const MAX_RESENT: usize = 3;
/// A server that does not answer a PING for so long hangs.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// kube-apiserver closes idle connections after 90 s; we are well before it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEADER_BYTES: u32 = 1 << 20;

/// Why a request got no response.
#[derive(Debug, Error)]
pub(crate) enum PoolError {
    /// No connection came about.
    #[error("{0}")]
    Connect(io::Error),
    /// The connection was there; the request is given back if nothing of it was sent.
    #[error("{0}")]
    Exchange(hyper::Error, Option<Box<Request<Body>>>),
    /// The connection is there, but nobody behind it.
    #[error("it hangs: {0}")]
    Hang(io::Error),
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
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        match self {
            Pool::Http1(pool) => pool.send(request).await,
            Pool::Http2(pool) => pool.send(request).await,
            Pool::SingleUse(connections) => connections.send(request).await,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Http2Pool {
    endpoint: Endpoint,
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// Held by whoever connects; the last failure is for all who waited for it.
    connecting: tokio::sync::Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Failure {
    at: Instant,
    kind: io::ErrorKind,
    cause: String,
}

#[derive(Debug)]
struct Http2Connection {
    sender: http2::SendRequest<Body>,
    streams: AtomicUsize,
    max_streams: Arc<AtomicUsize>,
}

/// A stream of a connection, for as long as its response lasts.
#[derive(Debug)]
struct Stream(Arc<Http2Connection>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Pool {
    pub(crate) fn new(endpoint: Endpoint) -> Http2Pool {
        Http2Pool {
            endpoint,
            connections: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let mut resent = 0;
        loop {
            let (stream, opened) = match self.free() {
                Some(stream) => (stream, None),
                None => (self.open().await.map_err(PoolError::Connect)?, Some(Opened)),
            };
            let mut sender = stream.0.sender.clone();
            match sender.try_send_request(request).await.map_err(given_back) {
                Ok(mut response) => {
                    opened.map(|opened| response.extensions_mut().insert(opened));
                    return Ok(response.map(|body| Body::new(body).keeping(stream)));
                }
                // The server is ending this connection; what it gave back goes over another.
                Err(PoolError::Exchange(_, Some(unsent))) if resent < MAX_RESENT => {
                    lock(&self.connections).retain(|other| !Arc::ptr_eq(other, &stream.0));
                    resent += 1;
                    request = *unsent;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A stream of a new connection.
    async fn open(&self) -> io::Result<Stream> {
        let came = Instant::now();
        let mut failed = self.connecting.lock().await;
        // Whoever connected before us may have left room, or failed for us too.
        if let Some(stream) = self.free() {
            return Ok(stream);
        }
        if let Some(failure) = failed.as_ref().filter(|failure| failure.at >= came) {
            return Err(io::Error::new(failure.kind, failure.cause.clone()));
        }
        let connection = match self.connect().await {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                let (kind, cause) = (error.kind(), error.to_string());
                *failed = Some(Failure { at: Instant::now(), kind, cause });
                return Err(error);
            }
        };
        *failed = None;
        connection.streams.fetch_add(1, Ordering::Relaxed);
        lock(&self.connections).push(Arc::clone(&connection));
        Ok(Stream(connection))
    }

    /// A stream of a connection that has room.
    fn free(&self) -> Option<Stream> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.sender.is_closed());
        connections.iter().find_map(|connection| {
            let room = connection.streams.load(Ordering::Relaxed)
                < connection.max_streams.load(Ordering::Relaxed).min(MAX_STREAMS);
            room.then(|| {
                connection.streams.fetch_add(1, Ordering::Relaxed);
                Stream(Arc::clone(connection))
            })
        })
    }

    async fn connect(&self) -> io::Result<Http2Connection> {
        let stream = self.endpoint.connect().await?;
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(stream)
            .await
            .map_err(io::Error::other)?;
        let max_streams = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let published = Arc::clone(&max_streams);
        tokio::spawn(std::future::poll_fn(move |cx| {
            let outcome = Pin::new(&mut connection).poll(cx);
            published.store(connection.current_max_send_streams(), Ordering::Relaxed);
            outcome.map(|outcome| {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a connection ended");
                }
            })
        }));
        Ok(Http2Connection { sender, streams: AtomicUsize::new(0), max_streams })
    }
}

#[derive(Debug)]
pub(crate) struct Http1Pool {
    endpoint: Endpoint,
    idle: Arc<Mutex<Vec<Idle>>>,
}

/// A connection that rests, and since when.
type Idle = (http1::SendRequest<Body>, Instant);

impl Http1Pool {
    pub(crate) fn new(endpoint: Endpoint) -> Http1Pool {
        Http1Pool { endpoint, idle: Arc::default() }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, PoolError> {
        let (mut sender, response) = match self.take_idle() {
            None => self.send_anew(request).await?,
            Some(sender) => match self.send_on(sender, request).await {
                // It was closed while it rested; what it gave back goes over a new one.
                Err(PoolError::Exchange(_, Some(unsent))) => self.send_anew(*unsent).await?,
                outcome => outcome?,
            },
        };
        // It can be used again when the response was read to its end.
        let idle = Arc::clone(&self.idle);
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                lock(&idle).push((sender, Instant::now()));
            }
        });
        Ok(response.map(Body::new))
    }

    async fn send_anew(&self, request: Request<Body>) -> Result<Sent, PoolError> {
        let sender = self.connect().await.map_err(PoolError::Connect)?;
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
                Ok((sender, response.map_err(given_back)?))
            }
            error = self.endpoint.hangs() => Err(PoolError::Hang(error)),
        }
    }

    fn take_idle(&self) -> Option<http1::SendRequest<Body>> {
        let mut idle = lock(&self.idle);
        idle.retain(|(sender, since)| sender.is_ready() && since.elapsed() < IDLE_TIMEOUT);
        idle.pop().map(|(sender, _)| sender)
    }

    async fn connect(&self) -> io::Result<http1::SendRequest<Body>> {
        let stream = self.endpoint.connect().await?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(1000)
            .handshake(stream)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok(sender)
    }
}

type Sent = (http1::SendRequest<Body>, Response<Incoming>);

pub(crate) fn given_back(mut error: TrySendError<Request<Body>>) -> PoolError {
    let request = error.take_message().map(Box::new);
    PoolError::Exchange(error.into_error(), request)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
