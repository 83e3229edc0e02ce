//! A pool of HTTP/2 connections that many requests share. Entry item: [`Http2Pool::send`].
//!
//! hyper does not account for HTTP/2 streams: a request above the server's limit would wait behind
//! watches that never end. So each connection counts its streams, and a new one is opened before
//! the limit is reached.
//!
//! A caller must not be able to end a connection that others use. Go ends a connection on which too
//! many requests were reset before their handlers started, so a connection is retired before that:
//! it gets no new requests.
//!
//! A connection to a peer on which no gateway answers is replaced after a while: the peer may have got a
//! gateway that takes over new connections of its address. Requests in flight stay where they are.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use hyper::client::conn::http2;
use hyper_util::rt::TokioTimer;
use tokio::time::Instant;

use super::hang::{Spawn, end_if_hung};
use super::{IDLE_ROUNDS, Opened, PoolError, exchange_error, lock};
use crate::body::Body;
use crate::gateway::is_of_gateway;
use crate::metrics::Isolation;
use crate::upstream::client::Blame;
use crate::upstream::connect::Endpoint;
use crate::upstream::connect_error::{BUSY, ConnectError};
use crate::upstream::single_flight::SingleFlight;

/// A stream window times the streams of a connection stays below the connection's window, so that
/// slow readers of some streams cannot stall the others. h2 also ends a connection on which small
/// unread frames add up to half of the connection's window.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The largest number of streams on one connection.
pub(crate) const MAX_STREAMS: usize = 100;
/// How often a request is sent again because its connection was closing.
const MAX_RESENT: usize = 3;
/// While a connection has streams, a server that is alive sends something at least this often.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const MAX_HEADER_BYTES: u32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Http2Pool {
    endpoint: Endpoint,
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    connecting: SingleFlight,
    /// The number of streams from which another connection is opened.
    spread: usize,
    /// How long a connection is used on which no gateway answers; `None` for any time.
    bare_for: Option<Duration>,
    counts: Isolation,
}

#[derive(Debug)]
struct Http2Connection {
    /// Dropped when the connection ends: see [`outcome`](super::outcome).
    sender: Mutex<Option<Sender>>,
    streams: Arc<AtomicUsize>,
    max_streams: AtomicUsize,
    resets: AtomicUsize,
    opened: Instant,
    /// Whether a gateway has answered on it.
    is_of_gateway: AtomicBool,
    /// How often [`Http2Pool::prune`] found it idle since it was last used.
    idle_rounds: AtomicUsize,
}

impl Http2Connection {
    /// Starts HTTP/2 on a new stream. The connection ends when nobody can send on it any more.
    async fn start<T>(stream: T, spawn: Spawn) -> hyper::Result<(Arc<Http2Connection>, Sender)>
    where
        T: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let (sender, mut connection) = http2::Builder::new(spawn)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES)
            // h2 counts frames that arrive after our own resets as errors of the server. They are
            // no sign of an attack by a server that we trust.
            .max_local_error_reset_streams(None)
            .keep_alive_interval(PING_INTERVAL)
            // A silent server is detected earlier, by `end_if_hung`.
            .keep_alive_timeout(BUSY)
            .handshake(stream)
            .await?;
        let opened = Arc::new(Http2Connection {
            sender: Mutex::new(Some(sender.clone())),
            streams: Arc::default(),
            max_streams: AtomicUsize::new(connection.current_max_send_streams()),
            resets: AtomicUsize::new(0),
            opened: Instant::now(),
            is_of_gateway: AtomicBool::new(false),
            idle_rounds: AtomicUsize::new(0),
        });
        let pooled = Arc::downgrade(&opened);
        tokio::spawn(std::future::poll_fn(move |cx| {
            let outcome = Pin::new(&mut connection).poll(cx);
            let pooled = pooled.upgrade();
            if let Some(pooled) = &pooled {
                pooled.max_streams.store(connection.current_max_send_streams(), Ordering::Relaxed);
            }
            outcome.map(|outcome| {
                pooled.map(|pooled| lock(&pooled.sender).take());
                if let Err(error) = outcome {
                    tracing::debug!(%error, "upstream connection ended");
                }
            })
        }));
        Ok((opened, sender))
    }

    fn has_room(&self, limit: usize) -> bool {
        let limit = limit.min(self.max_streams.load(Ordering::Relaxed));
        self.streams.load(Ordering::Relaxed) < limit
    }

    /// A sender of requests, unless the connection is closed. It must be dropped before the response
    /// is awaited.
    fn sender(&self) -> Option<Sender> {
        lock(&self.sender).clone().filter(|sender| !sender.is_closed())
    }

    fn is_closed(&self) -> bool {
        lock(&self.sender).as_ref().is_none_or(http2::SendRequest::is_closed)
    }

    fn is_usable(&self) -> bool {
        !self.is_closed() && self.resets.load(Ordering::Relaxed) < self.max_resets()
    }

    /// Whether a new connection may reach a gateway, which this one does not.
    fn is_outdated(&self, bare_for: Option<Duration>) -> bool {
        let is_old = |limit| self.opened.elapsed() >= limit;
        !self.is_of_gateway.load(Ordering::Relaxed) && bare_for.is_some_and(is_old)
    }

    /// The number of requests reset before their response began, after which the connection is
    /// retired. Go ends a connection on which four times its stream limit of requests wait for a
    /// handler, and open requests may wait, too.
    fn max_resets(&self) -> usize {
        self.max_streams.load(Ordering::Relaxed).min(MAX_STREAMS) * 5 / 2
    }
}

type Sender = http2::SendRequest<Body>;

/// A guard that counts a stream of a connection until its response ends.
#[derive(Debug)]
struct Stream(Arc<Http2Connection>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A guard for a request whose response has not begun. Dropping such a request resets its stream.
struct Pending<'a> {
    connection: &'a Http2Connection,
    blame: Option<&'a Blame>,
    counts: &'a Isolation,
}

impl Pending<'_> {
    /// Ends the wait for a response. Only a reset is counted.
    fn ended(mut self, reset: bool) {
        self.blame = self.blame.filter(|_| reset);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(blame) = self.blame {
            let resets = self.connection.resets.fetch_add(1, Ordering::Relaxed) + 1;
            if resets == self.connection.max_resets() {
                self.counts.retired.inc();
            }
            if blame.reset() {
                self.counts.clients_ended.inc();
            }
        }
    }
}

impl Http2Pool {
    pub(crate) fn new(endpoint: Endpoint, spread: usize, counts: Isolation) -> Http2Pool {
        Http2Pool {
            endpoint,
            connections: Mutex::default(),
            connecting: SingleFlight::default(),
            spread,
            bare_for: None,
            counts,
        }
    }

    /// Replaces a connection after this time if no gateway answers on it. Its requests complete.
    pub(crate) fn replacing_bare(self, bare_for: Option<Duration>) -> Http2Pool {
        Http2Pool { bare_for, ..self }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        blame: Blame,
    ) -> Result<Response<Body>, PoolError> {
        let mut resent = 0;
        loop {
            let (stream, mut sender, opened) = self.stream().await?;
            let (connection, counts) = (&stream.0, &self.counts);
            let pending = Pending { connection, blame: Some(&blame), counts };
            let sent = sender.try_send_request(request);
            drop(sender);
            let sent = sent.await.map_err(exchange_error);
            // A stream that failed on an open connection was reset by either side.
            let reset =
                matches!(sent, Err(PoolError::Exchange(_, None))) && !connection.is_closed();
            pending.ended(reset);
            match sent {
                Ok(mut response) => {
                    opened.map(|opened| response.extensions_mut().insert(opened));
                    if self.bare_for.is_some() && is_of_gateway(response.headers()) {
                        stream.0.is_of_gateway.store(true, Ordering::Relaxed);
                    }
                    return Ok(response.map(|body| Body::new(body).with_guard(stream)));
                }
                // The server is closing this connection. Nothing was sent, so another one is used.
                Err(PoolError::Exchange(_, Some(unsent))) if resent < MAX_RESENT => {
                    lock(&self.connections).retain(|other| !Arc::ptr_eq(other, &stream.0));
                    resent += 1;
                    request = *unsent;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A stream of an existing or a new connection.
    async fn stream(&self) -> Result<(Stream, Sender, Option<Opened>), ConnectError> {
        if let Some((stream, sender)) = self.free(self.spread, self.bare_for) {
            return Ok((stream, sender, None));
        }
        // Boxed: it is rare, and would make the future of every request larger.
        match Box::pin(self.connecting.run(|| self.open())).await {
            Ok((stream, sender)) => Ok((stream, sender, Some(Opened))),
            // A connection above its usual load or age is better than none.
            Err(error) => {
                let free = self.free(MAX_STREAMS, None);
                free.map(|(stream, sender)| (stream, sender, None)).ok_or(error)
            }
        }
    }

    /// A stream of a new connection, or of one that another request has opened meanwhile.
    async fn open(&self) -> Result<(Stream, Sender), ConnectError> {
        if let Some(free) = self.free(self.spread, self.bare_for) {
            return Ok(free);
        }
        let (connection, sender) = self.connect().await?;
        connection.streams.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.is_outdated(self.bare_for));
        connections.push(Arc::clone(&connection));
        Ok((Stream(connection), sender))
    }

    /// A stream of the first connection that has fewer than `limit` and is not outdated.
    fn free(&self, limit: usize, bare_for: Option<Duration>) -> Option<(Stream, Sender)> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| connection.is_usable());
        let is_free = |connection: &&Arc<Http2Connection>| {
            connection.has_room(limit) && !connection.is_outdated(bare_for)
        };
        let (found, sender) = (connections.iter().filter(is_free))
            .find_map(|connection| Some((connection, connection.sender()?)))?;
        found.streams.fetch_add(1, Ordering::Relaxed);
        found.idle_rounds.store(0, Ordering::Relaxed);
        Some((Stream(Arc::clone(found)), sender))
    }

    pub(super) fn prune(&self) {
        lock(&self.connections).retain(|connection| {
            let busy = connection.streams.load(Ordering::Relaxed) > 0;
            let rounds = connection.idle_rounds.fetch_add(1, Ordering::Relaxed);
            connection.is_usable() && (busy || rounds < IDLE_ROUNDS)
        });
    }

    async fn connect(&self) -> Result<(Arc<Http2Connection>, Sender), ConnectError> {
        let stream = self.endpoint.connect().await?;
        let spawn = Spawn::default();
        let opened = Http2Connection::start(stream, spawn.clone()).await;
        let (connection, sender) = opened.map_err(std::io::Error::other)?;
        let Endpoint { address, beat, .. } = &self.endpoint;
        let streams = Arc::downgrade(&connection.streams);
        end_if_hung(spawn, Arc::clone(address), beat.clone(), streams);
        Ok((connection, sender))
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ended_has_no_sender() {
        let (client, server) = tokio::io::duplex(1024);
        let opened = Http2Connection::start(TokioIo::new(client), Spawn::default()).await;
        let (connection, sender) = opened.unwrap();
        drop(sender);
        assert!(!connection.is_closed() && connection.sender().is_some());
        drop(server);
        let ended = async {
            while lock(&connection.sender).is_some() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(5), ended).await.expect("its sender is dropped");
        assert!(connection.is_closed() && connection.sender().is_none());
    }
}
