//! One HTTP/2 connection to a server. Entry item: [`Connection::start`].
//!
//! It uses h2 itself, not hyper's client, which hands each request to a task of its own through a
//! channel, and its response back through another one. h2 takes requests from any task.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::super::lock;
use super::MAX_STREAMS;
use super::hang::end_if_hung;
use crate::incoming::{CountsStreams, Guard};
use crate::upstream::pulse::Beat;

/// A stream window times the streams of a connection stays below the connection's window, so that
/// slow readers of some streams cannot stall the others. h2 also ends a connection on which small
/// unread frames add up to half of the connection's window.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The bytes of a request body that may wait for the server.
const SEND_BUFFER: usize = 1 << 20;
const MAX_HEADER_BYTES: u32 = 1 << 20;

/// A connection that many requests share.
#[derive(Debug)]
pub(super) struct Connection {
    /// `None` once the connection takes no more requests. It ends after those in flight.
    sender: Mutex<Option<SendRequest<Bytes>>>,
    streams: AtomicUsize,
    max_streams: AtomicUsize,
    pub(super) resets: AtomicUsize,
    opened: Instant,
    /// Whether a gateway has answered on it.
    pub(super) is_of_gateway: AtomicBool,
    /// How often [`Http2Pool::prune`](super::Http2Pool::prune) found it idle since it was last used.
    pub(super) idle_rounds: AtomicUsize,
}

/// Why a request was not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The connection takes no more requests.
    Closed(Box<Request<()>>),
    Failed(h2::Error),
}

impl Connection {
    /// Starts HTTP/2 on a new stream. The connection ends when it takes no more requests, or its
    /// server at `address` hangs.
    pub(super) async fn start<T>(
        stream: T,
        address: Arc<str>,
        beat: Beat,
    ) -> Result<Arc<Connection>, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, mut connection) = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buffer_size(SEND_BUFFER)
            // h2 counts frames that arrive after our own resets as errors of the server. They are
            // no sign of an attack by a server that we trust.
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake(stream)
            .await?;
        let opened = Arc::new(Connection {
            sender: Mutex::new(Some(sender)),
            streams: AtomicUsize::new(0),
            max_streams: AtomicUsize::new(connection.max_concurrent_send_streams()),
            resets: AtomicUsize::new(0),
            opened: Instant::now(),
            is_of_gateway: AtomicBool::new(false),
            idle_rounds: AtomicUsize::new(0),
        });
        let pings = connection.ping_pong();
        let pooled = Arc::downgrade(&opened);
        let task = tokio::spawn(Driver { connection, pooled: Weak::clone(&pooled) });
        if let Some(pings) = pings {
            tokio::spawn(end_if_hung(task.abort_handle(), pings, address, beat, pooled));
        }
        Ok(opened)
    }

    /// Sends the head of a request; `ends` if it has no body.
    pub(super) fn send(
        &self,
        head: Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Unsent> {
        let mut sender = lock(&self.sender);
        // A clone does not wait for the request before it, if that waits for a stream.
        let Some(mut clone) = sender.clone() else {
            return Err(Unsent::Closed(Box::new(head)));
        };
        let ready = clone.poll_ready(&mut Context::from_waker(Waker::noop()));
        if !matches!(ready, Poll::Ready(Ok(()))) {
            *sender = None;
            return Err(Unsent::Closed(Box::new(head)));
        }
        // A head that h2 refuses says nothing of the connection.
        clone.send_request(head, ends).map_err(Unsent::Failed)
    }

    /// The number of requests whose response has not ended.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.streams() < limit.min(self.max_streams.load(Ordering::Relaxed))
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.sender).is_none()
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.is_closed() && self.resets.load(Ordering::Relaxed) < self.max_resets()
    }

    /// Whether a new connection may reach a gateway, which this one does not.
    pub(super) fn is_outdated(&self, bare_for: Option<Duration>) -> bool {
        let is_old = |limit| self.opened.elapsed() >= limit;
        !self.is_of_gateway.load(Ordering::Relaxed) && bare_for.is_some_and(is_old)
    }

    /// The number of requests reset before their response began, after which the connection is
    /// retired. Go ends a connection on which four times its stream limit of requests wait for a
    /// handler, and open requests may wait, too.
    pub(super) fn max_resets(&self) -> usize {
        self.max_streams.load(Ordering::Relaxed).min(MAX_STREAMS) * 5 / 2
    }
}

impl CountsStreams for Connection {
    fn stream_began(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.idle_rounds.store(0, Ordering::Relaxed);
    }

    fn stream_ended(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream of a connection, until its response begins.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: Arc<Connection>,
    guard: Guard,
}

impl Stream {
    pub(super) fn of(connection: &Arc<Connection>) -> Stream {
        let connection = Arc::clone(connection);
        Stream { guard: Guard::of(Arc::clone(&connection) as _), connection }
    }

    /// Counts the stream until its response ends.
    pub(super) fn guard(self) -> Guard {
        self.guard
    }
}

/// Reads and writes a connection until it ends.
struct Driver<T: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::client::Connection<T, Bytes>,
    pooled: Weak<Connection>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Driver<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let outcome = Pin::new(&mut self.connection).poll(cx);
        if let Some(pooled) = self.pooled.upgrade() {
            let streams = self.connection.max_concurrent_send_streams();
            pooled.max_streams.store(streams, Ordering::Relaxed);
        }
        outcome.map(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "upstream connection ended");
            }
        })
    }
}

/// Also if the task is aborted.
impl<T: AsyncRead + AsyncWrite + Unpin> Drop for Driver<T> {
    fn drop(&mut self) {
        if let Some(pooled) = self.pooled.upgrade() {
            lock(&pooled.sender).take();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::upstream::pulse::Pulses;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ended_takes_no_requests() {
        let (client, server) = tokio::io::duplex(1024);
        let address: Arc<str> = "server:1".into();
        let beat = Pulses::default().beat(&address);
        let connection = Connection::start(client, address, beat).await.unwrap();
        assert!(!connection.is_closed());
        drop(server);
        let ended = async {
            while !connection.is_closed() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(5), ended).await.expect("it takes no requests");
        let request = Request::new(());
        assert!(matches!(connection.send(request, true), Err(Unsent::Closed(_))));
    }
}
