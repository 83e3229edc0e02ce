//! Counts the streams of all connections, upgraded ones included. Entry: [`Tracked`].
//!
//! An upgrade ends HTTP on a connection and the task that served it; the stream then belongs to the
//! service. So the stream itself is counted, and fails at the end of the grace period. The service
//! need not know about drains.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::delegate::delegate_write;
use super::request::Activity;
use crate::connection_limit::Permit;

/// The streams of a listener.
pub(crate) struct Streams {
    open: TaskTracker,
    cut: CancellationToken,
}

impl Streams {
    /// Upgraded streams fail once `cut` is cancelled.
    pub(crate) fn new(cut: CancellationToken) -> Self {
        let open = TaskTracker::new();
        open.close();
        Self { open, cut }
    }

    pub(crate) fn track<T>(
        &self,
        stream: T,
        activity: Arc<Activity>,
        permit: Permit,
    ) -> Tracked<T> {
        let cut = Cut { token: self.cut.clone(), cancelled: None };
        Tracked { stream, activity, cut, _open: self.open.token(), _permit: permit }
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
    _open: TaskTrackerToken,
    /// Dropped after the stream, because it stands for the stream's descriptor.
    _permit: Permit,
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

delegate_write!(Tracked, Tracked::check);
