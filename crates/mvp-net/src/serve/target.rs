//! Refuses requests whose target has a `#`. Entry: [`TargetGuard`].
//!
//! `http::Uri` cuts a target off at `#` without a word, for HTTP/1.1 and for HTTP/2 alike, so that
//! `DELETE /secrets#one` would delete all secrets. hyper and h2 have no hook before that, so the
//! decrypted bytes are followed here: `http1` knows where heads begin, `http2` where the value of
//! `:path` is. The `#` is replaced by a byte that hyper and h2 refuse. Nothing is buffered, and all
//! other bytes pass as they are. Where the bytes cannot be followed, the connection fails: a head
//! that was not looked at is never passed.

mod chunked;
mod hpack;
mod http1;
mod http2;
mod huffman;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request::Activity;

/// The bytes cannot be followed: what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost(&'static str);

/// A stream whose reads never yield a request target with a `#`.
pub(crate) struct TargetGuard<T> {
    stream: T,
    follower: Follower,
    activity: Arc<Activity>,
}

enum Follower {
    Http1(http1::Follower),
    Http2(http2::Follower),
}

impl<T> TargetGuard<T> {
    pub(crate) fn new(stream: T, http2: bool, activity: Arc<Activity>) -> Self {
        let follower = if http2 {
            Follower::Http2(http2::Follower::default())
        } else {
            Follower::Http1(http1::Follower::default())
        };
        Self { stream, follower, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TargetGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let Self { follower, activity, .. } = &mut *self;
        let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        let followed = match follower {
            Follower::Http1(follower) => follower.follow(read, activity),
            Follower::Http2(follower) => follower.follow(read),
        };
        Poll::Ready(followed.map_err(|Lost(why)| {
            // Not a byte of what was not followed.
            buffer.set_filled(before);
            io::Error::new(io::ErrorKind::InvalidData, why)
        }))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TargetGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
