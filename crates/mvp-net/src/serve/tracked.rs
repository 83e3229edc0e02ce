//! Knows of every connection for as long as anyone has it. Entry: [`Tracked`].
//!
//! HTTP on a connection ends with an upgrade, and the task that served it too; the stream lives on
//! with whoever took it. So it is the stream that is counted, and that the end of the grace ends:
//! whoever holds the other end of it need not know of drains.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::request::Activity;
use crate::connection_limit::Permit;

/// All streams of a listener.
pub(crate) struct Streams {
    open: TaskTracker,
    cut: CancellationToken,
}

impl Streams {
    /// Once `cut` is cancelled, streams that were upgraded fail.
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
        let cut = Cut { token: self.cut.clone(), heard: None };
        Tracked { stream, activity, cut, _open: self.open.token(), _permit: permit }
    }

    /// Those that someone still has.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) async fn all_ended(&self) {
        self.open.wait().await;
    }
}

/// A stream that is counted while it lives, and fails when it outlasts the grace after an upgrade.
pub(crate) struct Tracked<T> {
    stream: T,
    activity: Arc<Activity>,
    cut: Cut,
    _open: TaskTrackerToken,
    /// Dropped after the stream, whose descriptor it stands for.
    _permit: Permit,
}

struct Cut {
    token: CancellationToken,
    /// Made with the upgrade: most connections have none.
    heard: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<T> Tracked<T> {
    /// Fails once it is cut, and has the caller woken then.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.activity.upgraded() {
            return Ok(());
        }
        let Cut { token, heard } = &mut self.cut;
        let heard = heard.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
        match heard.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                let message = "the server ends, and the grace is over";
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

impl<T: AsyncWrite + Unpin> AsyncWrite for Tracked<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
