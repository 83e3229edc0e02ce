//! Counts the streams of all connections, upgraded ones included. Entry: [`Tracked`].
//!
//! An upgrade ends HTTP on a connection and the task that served it; the stream then belongs to the
//! service. So the stream itself is counted, and fails at the end of the grace period. The service
//! need not know about drains.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::delegate::delegate_write;
use super::request::Activity;
use crate::ClientWaits;
use crate::connection_limit::Permit;

/// How long input is still read and discarded after the end of our output.
const LINGER: Duration = Duration::from_millis(500);
/// The largest input that is discarded.
const MAX_DISCARDED: usize = 256 << 10;

/// The streams of a listener.
pub(crate) struct Streams {
    open: TaskTracker,
    cut: CancellationToken,
    waits: ClientWaits,
}

impl Streams {
    /// Upgraded streams fail once `cut` is cancelled.
    pub(crate) fn new(cut: CancellationToken, waits: ClientWaits) -> Self {
        let open = TaskTracker::new();
        open.close();
        Self { open, cut, waits }
    }

    pub(crate) fn track<T>(
        &self,
        stream: T,
        activity: Arc<Activity>,
        permit: Permit,
    ) -> Tracked<T> {
        let cut = Cut { token: self.cut.clone(), cancelled: None };
        let (waits, stalled, lingering) = (self.waits.clone(), false, None);
        Tracked {
            stream,
            activity,
            cut,
            waits,
            stalled,
            lingering,
            _open: self.open.token(),
            _permit: permit,
        }
    }

    /// The number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) async fn all_ended(&self) {
        self.open.wait().await;
    }
}

/// A stream that is counted until it is dropped. After an upgrade it fails at the end of the grace
/// period.
pub(crate) struct Tracked<T> {
    stream: T,
    activity: Arc<Activity>,
    cut: Cut,
    waits: ClientWaits,
    /// Whether the last write had to wait.
    stalled: bool,
    lingering: Option<Lingering>,
    _open: TaskTrackerToken,
    /// Dropped after the stream, because it stands for the stream's descriptor.
    _permit: Permit,
}

/// The wait for a client to close its side.
struct Lingering {
    timer: Pin<Box<Sleep>>,
    discarded: usize,
}

struct Cut {
    token: CancellationToken,
    /// Created after an upgrade only: most connections have none.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<T> Tracked<T> {
    /// Fails once the stream is cut. Wakes the task then.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.activity.upgraded() {
            return Ok(());
        }
        let Cut { token, cancelled } = &mut self.cut;
        let cancelled = cancelled.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
        match cancelled.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                let message = "the server is shutting down and the grace period is over";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, message))
            }
        }
    }
}

impl<T> Tracked<T> {
    /// Counts a stall when it begins.
    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>) {
        if outcome.is_pending() != self.stalled {
            self.stalled = !self.stalled;
            if self.stalled {
                self.waits.note_stall();
            }
        }
    }
}

impl<T: AsyncRead + Unpin> Tracked<T> {
    /// Discards input until the client closes its side, for a short time. Closing a socket with unread
    /// input resets the connection, and a reset can overtake the last response, such as the 400 for
    /// a head that nobody read to its end.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of one direction of a tunnel: the other goes on.
        if self.activity.upgraded() {
            return Poll::Ready(Ok(()));
        }
        let begin = || Lingering { timer: Box::pin(sleep(LINGER)), discarded: 0 };
        let Lingering { timer, discarded } = self.lingering.get_or_insert_with(begin);
        let mut bytes = [0; 1024];
        // A client that never pauses is left, too: then nobody polls the timer.
        while *discarded < MAX_DISCARDED && Instant::now() < timer.deadline() {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *discarded += buffer.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(timer.as_mut().poll(context));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tracked<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

delegate_write!(Tracked, Tracked::check, Tracked::wrote, Tracked::linger);

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::ConnectionLimit;

    fn pair() -> (DuplexStream, Tracked<DuplexStream>) {
        let (client, server) = duplex(16);
        let activity = Arc::new(Activity::default());
        let limit = ConnectionLimit::new(1, None);
        let permit = limit.admit(IpAddr::V4(Ipv4Addr::LOCALHOST), &activity).unwrap();
        let streams = Streams::new(CancellationToken::new(), ClientWaits::default());
        (client, streams.track(server, activity, permit))
    }

    #[tokio::test(start_paused = true)]
    async fn input_is_discarded_until_the_client_closes() {
        let (mut client, mut server) = pair();
        let started = Instant::now();
        let client = tokio::spawn(async move {
            // More than fits: it would wait forever if nobody read it.
            client.write_all(&[b'x'; 4096]).await.unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).await.unwrap();
            response
        });
        server.write_all(b"400").await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(client.await.unwrap(), "400");
        assert!(started.elapsed() < LINGER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_close_is_left_after_a_short_time() {
        let (_client, mut server) = pair();
        let started = Instant::now();
        server.shutdown().await.unwrap();
        assert!((LINGER..LINGER * 2).contains(&started.elapsed()));
    }
}
