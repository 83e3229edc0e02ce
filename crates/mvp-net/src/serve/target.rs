//! Refuses requests whose target has a `#`. Entry: [`TargetGuard`].
//!
//! `http::Uri` silently truncates a target at `#`, for HTTP/1.1 and for HTTP/2, so that
//! `DELETE /secrets#one` would delete all secrets. hyper and h2 have no hook before that, so this
//! module parses the decrypted bytes: `http1` finds where heads begin, `http2` finds the value of
//! `:path`. The `#` is replaced by a byte that hyper and h2 refuse. Nothing is buffered, and all
//! other bytes pass unchanged. If the bytes cannot be parsed, the connection fails: a head that was
//! not checked is never passed.

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

use super::delegate::delegate_write;
use super::request::Activity;

/// Why the bytes cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError(&'static str);

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
        Poll::Ready(followed.map_err(|ParseError(why)| {
            // Pass no byte that was not checked.
            buffer.set_filled(before);
            io::Error::new(io::ErrorKind::InvalidData, why)
        }))
    }
}

delegate_write!(TargetGuard);
