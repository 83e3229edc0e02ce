//! A pool of HTTP/2 connections that many requests share. Entry item: [`Http2Pool::send`].
//!
//! h2 queues requests above the server's limit of streams, where they would wait behind watches that
//! never end. So each connection counts its streams, and a new one is opened before the limit is
//! reached.
//!
//! A caller must not be able to end a connection that others use. Go ends a connection on which too
//! many requests were reset before their handlers started, so a connection is retired before that:
//! it gets no new requests.
//!
//! A connection to a peer on which no gateway answers is replaced after a while: the peer may have got a
//! gateway that takes over new connections of its address. Requests in flight stay where they are.

mod connection;
mod hang;
#[cfg(test)]
mod tests;
mod upload;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as _;

use self::connection::{Connection, Stream, Unsent};
use self::upload::upload;
use super::{IDLE_ROUNDS, Opened, PoolError, lock};
use crate::body::Body;
use crate::gateway::is_of_gateway;
use crate::incoming::{Incoming, Upload};
use crate::metrics::Isolation;
use crate::upstream::client::Blame;
use crate::upstream::connect::Endpoint;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::single_flight::SingleFlight;

/// The largest number of streams on one connection.
pub(crate) const MAX_STREAMS: usize = 100;
/// How many new connections a request may find closed again.
const MAX_RESENT: usize = 3;

#[derive(Debug)]
pub(crate) struct Http2Pool {
    endpoint: Endpoint,
    connections: Mutex<Vec<Arc<Connection>>>,
    connecting: SingleFlight,
    /// The number of streams from which another connection is opened.
    spread: usize,
    /// How long a connection is used on which no gateway answers; `None` for any time.
    bare_for: Option<Duration>,
    counts: Isolation,
}

/// A guard for a request whose response has not begun. Dropping such a request resets its stream.
struct Pending<'a> {
    connection: &'a Connection,
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
        request: Request<Body>,
        blame: Blame,
    ) -> Result<Response<Body>, PoolError> {
        let (mut head, body) = split(request);
        let ends = body.is_end_stream();
        let mut resent = 0;
        let (stream, opened, (response, sending)) = loop {
            let (stream, opened) = self.stream().await?;
            match stream.connection.send(head, ends) {
                Ok(sent) => break (stream, opened, sent),
                // The server is closing this connection. Another one is used.
                Err(Unsent::Closed(unsent)) if resent < MAX_RESENT => {
                    lock(&self.connections).retain(|other| !Arc::ptr_eq(other, &stream.connection));
                    // Each of the connections from before is closed at most once.
                    resent += usize::from(opened.is_some());
                    head = *unsent;
                }
                Err(Unsent::Closed(_)) => return Err(PoolError::Unsent(None)),
                Err(Unsent::Failed(error)) => return Err(PoolError::Unsent(Some(error))),
            }
        };
        let (connection, counts) = (&stream.connection, &self.counts);
        let pending = Pending { connection, blame: Some(&blame), counts };
        let (response, upload) = exchange(response, ends, body, sending).await;
        // A stream that failed on an open connection was reset by either side.
        pending.ended(response.as_ref().is_err_and(h2::Error::is_reset) && !connection.is_closed());
        let mut response = response.map_err(PoolError::Stream)?;
        opened.map(|opened| response.extensions_mut().insert(opened));
        if self.bare_for.is_some() && is_of_gateway(response.headers()) {
            connection.is_of_gateway.store(true, Ordering::Relaxed);
        }
        let (head, body) = response.into_parts();
        let body = Body::from(Incoming::new(body, &head.headers, stream.guard(), upload));
        Ok(Response::from_parts(head, body))
    }

    /// A stream of an existing or a new connection.
    async fn stream(&self) -> Result<(Stream, Option<Opened>), ConnectError> {
        if let Some(stream) = self.free(self.spread, self.bare_for) {
            return Ok((stream, None));
        }
        let began = Instant::now();
        // Boxed: it is rare, and would make the future of every request larger.
        match Box::pin(self.connecting.run(|| self.open())).await {
            Ok(stream) => Ok((stream, Some(Opened::since(began)))),
            // A connection above its usual load or age is better than none.
            Err(error) => {
                let free = self.free(MAX_STREAMS, None);
                free.map(|stream| (stream, None)).ok_or(error)
            }
        }
    }

    /// A stream of a new connection, or of one that another request has opened meanwhile.
    async fn open(&self) -> Result<Stream, ConnectError> {
        if let Some(free) = self.free(self.spread, self.bare_for) {
            return Ok(free);
        }
        let stream = self.endpoint.connect().await?.into_inner();
        let Endpoint { address, beat, .. } = &self.endpoint;
        let opened = Connection::start(stream, Arc::clone(address), beat.clone()).await;
        let connection = opened.map_err(std::io::Error::other)?;
        let stream = Stream::of(&connection);
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.is_outdated(self.bare_for));
        connections.push(connection);
        Ok(stream)
    }

    /// A stream of the first connection that has fewer than `limit` and is not outdated.
    fn free(&self, limit: usize, bare_for: Option<Duration>) -> Option<Stream> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| connection.is_usable());
        let is_free = |connection: &&Arc<Connection>| {
            connection.has_room(limit) && !connection.is_outdated(bare_for)
        };
        connections.iter().find(is_free).map(Stream::of)
    }

    pub(super) fn prune(&self) {
        lock(&self.connections).retain(|connection| {
            let busy = connection.streams() > 0;
            let rounds = connection.idle_rounds.fetch_add(1, Ordering::Relaxed);
            connection.is_usable() && (busy || rounds < IDLE_ROUNDS)
        });
    }
}

/// The head and the body of a request. A body of known length is announced.
fn split(request: Request<Body>) -> (Request<()>, Body) {
    let (mut head, body) = request.into_parts();
    if let Some(length) = body.size_hint().exact() {
        let has_none = matches!(head.method, Method::GET | Method::HEAD | Method::DELETE);
        if (length != 0 || !has_none) && !head.headers.contains_key(CONTENT_LENGTH) {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    (Request::from_parts(head, ()), body)
}

/// Waits for the response while the body is sent. If the response begins before the end of the body,
/// the rest is sent until the response has ended.
async fn exchange(
    mut response: ResponseFuture,
    ends: bool,
    body: Body,
    sending: SendStream<Bytes>,
) -> (Result<Response<RecvStream>, h2::Error>, Option<Upload>) {
    if ends {
        return (response.await, None);
    }
    let mut rest = Some(Box::pin(upload(body, sending)));
    let response = poll_fn(|cx| {
        if rest.as_mut().is_some_and(|rest| rest.as_mut().poll(cx).is_ready()) {
            rest = None;
        }
        Pin::new(&mut response).poll(cx)
    });
    let response = response.await;
    let rest = rest.filter(|_| response.is_ok());
    (response, rest.map(Upload::spawn))
}
