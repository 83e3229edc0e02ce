//! Refuses requests whose target has a `#` or is too long, and transfer codings that are not supported.
//! Entry: [`TargetGuard`].
//!
//! `http::Uri` silently truncates a target at `#`, for HTTP/1.1 and for HTTP/2, so that
//! `DELETE /secrets#one` would delete all secrets. hyper and h2 have no hook before that, so this
//! module parses the decrypted bytes: `http1` finds where heads begin, `http2` finds the value of
//! `:path`. The `#` is replaced by a byte that hyper and h2 refuse. Nothing is buffered, and all
//! other bytes pass unchanged. If the bytes cannot be parsed, the connection fails: a head that was
//! not checked is never passed.
//!
//! The heads of HTTP/1.1 requests with a [`HeadFault`](super::fault::HeadFault) are cut short, so that
//! their clients get a proper response. hyper itself would send one without a body.

mod chunked;
mod hpack;
mod http1;
mod http2;
mod huffman;
mod names;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(fuzzing)]
pub(crate) use self::huffman::LENGTHS;
use super::delegate::delegate_write;
use super::request::Activity;

/// The most bytes that are dropped after a malformed head, until its response is sent.
const MAX_DROPPED: usize = 1 << 20;

/// Why the bytes cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError(&'static str);

/// A stream whose reads never yield a request target with a `#`.
pub(crate) struct TargetGuard<T> {
    stream: T,
    follower: Follower,
    activity: Arc<Activity>,
    /// The number of bytes that were dropped after a malformed head.
    dropped: usize,
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
        Self { stream, follower, activity, dropped: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TargetGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let Self { stream, follower, activity, dropped } = &mut *self;
        loop {
            if let Follower::Http1(follower) = follower
                && let Some(completion) = follower.completion()
            {
                let (now, later) = completion.split_at(completion.len().min(buffer.remaining()));
                buffer.put_slice(now);
                *completion = later;
                return Poll::Ready(Ok(()));
            }
            ready!(Pin::new(&mut *stream).poll_read(context, buffer))?;
            let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
            let all = read.len();
            let passed = match follower {
                Follower::Http1(follower) => follower.follow(read, activity),
                Follower::Http2(follower) => follower.follow(read).map(|()| all),
            };
            // Pass no byte that was not checked.
            buffer.set_filled(before + *passed.as_ref().unwrap_or(&0));
            match passed {
                // All of it is dropped, which must not look like the end of the stream.
                Ok(0) if all > 0 => {
                    *dropped += all;
                    if *dropped > MAX_DROPPED {
                        let why = "too much follows a malformed head";
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                    }
                }
                Ok(_) => return Poll::Ready(Ok(())),
                Err(ParseError(why)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
            }
        }
    }
}

delegate_write!(TargetGuard);
