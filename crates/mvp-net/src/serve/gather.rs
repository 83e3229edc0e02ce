//! Collects what HTTP/2 writes in one turn of its connection. Entry: [`gather`].
//!
//! h2 writes and flushes each DATA frame by itself. On a connection with many streams, each response
//! would cost a TLS record and a system call. So frames are collected while the connection is polled, and
//! written at the end of the poll, or when [`MOST`] bytes wait.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The payload of a TLS record.
const MOST: usize = 16 << 10;

/// A stream that collects what is written to it, and the handle that writes it out. A task that polls the
/// connection on the stream must call [`Outlet::write_out`] after each poll.
pub(crate) fn gather<T>(stream: T) -> (Gather<T>, Outlet<T>) {
    let state = State { stream, waiting: Vec::new(), unflushed: false, failed: None };
    let state = Arc::new(Mutex::new(state));
    (Gather(Arc::clone(&state)), Outlet(state))
}

/// The stream that HTTP/2 reads and writes.
pub(crate) struct Gather<T>(Arc<Mutex<State<T>>>);

/// Writes out what was collected.
pub(crate) struct Outlet<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    stream: T,
    /// Not written yet.
    waiting: Vec<u8>,
    unflushed: bool,
    /// Why writing failed. The next operation of the connection fails with it.
    failed: Option<io::Error>,
}

impl<T: AsyncWrite + Unpin> Outlet<T> {
    /// Writes as much as possible. The task is woken when more can be written.
    ///
    /// Returns whether writing failed: the connection must be polled again, and fails then.
    pub(crate) fn write_out(&self, context: &mut Context<'_>) -> bool {
        let mut state = lock(&self.0);
        if !state.unflushed {
            return false;
        }
        match state.poll_flush(context) {
            Poll::Ready(Err(error)) => {
                state.unflushed = false;
                state.failed = Some(error);
                true
            }
            Poll::Ready(Ok(())) | Poll::Pending => false,
        }
    }
}

impl<T: AsyncWrite + Unpin> State<T> {
    fn poll_write_waiting(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = 0;
        let outcome = loop {
            let rest = self.waiting.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.stream).poll_write(context, rest) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => written += bytes,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if written == self.waiting.len() {
            // An idle connection keeps no memory.
            self.waiting = Vec::new();
        } else {
            self.waiting.drain(..written);
        }
        outcome
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_waiting(context))?;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gather<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0);
        if let Some(error) = state.failed.take() {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut state.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gather<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0);
        state.check()?;
        state.unflushed = true;
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if state.waiting.len() + bytes > MOST {
            ready!(state.poll_write_waiting(context))?;
        }
        if bytes > MOST {
            // Large frames fill records of their own.
            return Pin::new(&mut state.stream).poll_write_vectored(context, slices);
        }
        state.waiting.reserve(bytes);
        for slice in slices {
            state.waiting.extend_from_slice(slice);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).stream.is_write_vectored()
    }

    /// The [`Outlet`] flushes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(lock(&self.0).check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0);
        state.check()?;
        ready!(state.poll_flush(context))?;
        Pin::new(&mut state.stream).poll_shutdown(context)
    }
}

/// The lock is never contended: the task of the connection has both halves.
fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pin_project! {
    /// A connection on a gathering stream.
    pub(crate) struct Gathered<C, T> {
        #[pin]
        connection: C,
        outlet: Outlet<T>,
    }
}

impl<C, T> Gathered<C, T> {
    pub(crate) fn new(connection: C, outlet: Outlet<T>) -> Self {
        Gathered { connection, outlet }
    }

    pub(crate) fn connection(self: Pin<&mut Self>) -> Pin<&mut C> {
        self.project().connection
    }
}

impl<C: Future, T: AsyncWrite + Unpin> Future for Gathered<C, T> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let mut this = self.project();
        loop {
            let outcome = this.connection.as_mut().poll(context);
            let failed = this.outlet.write_out(context);
            if outcome.is_ready() || !failed {
                return outcome;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Counts writes. Accepts `room` bytes in total, then waits; fails if `broken`.
    #[derive(Default)]
    struct Socket {
        written: Vec<u8>,
        writes: usize,
        flushes: usize,
        room: usize,
        broken: bool,
    }

    impl AsyncRead for Socket {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Socket {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let taken = bytes.len().min(self.room - self.written.len());
            if taken == 0 {
                return Poll::Pending;
            }
            self.writes += 1;
            self.written.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn with_room(room: usize) -> (Gather<Socket>, Outlet<Socket>) {
        gather(Socket { room, ..Socket::default() })
    }

    async fn write_out(outlet: &Outlet<Socket>) -> bool {
        poll_fn(|context| Poll::Ready(outlet.write_out(context))).await
    }

    #[tokio::test]
    async fn frames_of_one_turn_are_one_write() {
        let (mut stream, outlet) = with_room(1 << 20);
        for frame in [[1; 2_000], [2; 2_000], [3; 2_000]] {
            stream.write_all(&frame).await.unwrap();
            stream.flush().await.unwrap();
        }
        assert_eq!(lock(&outlet.0).stream.writes, 0);
        assert!(!write_out(&outlet).await);
        let state = lock(&outlet.0);
        assert_eq!((state.stream.writes, state.stream.flushes), (1, 1));
        assert_eq!(state.stream.written, [[1; 2_000], [2; 2_000], [3; 2_000]].concat());
        assert_eq!(state.waiting.capacity(), 0, "an idle connection keeps no memory");
    }

    #[tokio::test]
    async fn a_large_frame_follows_the_small_ones_before_it() {
        let (mut stream, outlet) = with_room(1 << 20);
        stream.write_all(&[1; 10]).await.unwrap();
        stream.write_all(&[2; MOST + 1]).await.unwrap();
        stream.write_all(&[3; 10]).await.unwrap();
        assert!(!write_out(&outlet).await);
        let expected = [&[1; 10][..], &[2; MOST + 1], &[3; 10]].concat();
        let state = lock(&outlet.0);
        assert!(state.stream.written == expected);
        assert_eq!(state.stream.writes, 3);
    }

    #[tokio::test]
    async fn a_slow_reader_is_waited_for() {
        let (mut stream, outlet) = with_room(100);
        stream.write_all(&[1; MOST]).await.unwrap();
        assert!(!write_out(&outlet).await, "it waits");
        let pending = poll_fn(|context| {
            Poll::Ready(Pin::new(&mut stream).poll_write(context, &[2; 1_000]).is_pending())
        });
        assert!(pending.await, "no more is collected");
        lock(&outlet.0).stream.room = 1 << 20;
        stream.write_all(&[2; 1_000]).await.unwrap();
        assert!(!write_out(&outlet).await);
        let expected = [&[1; MOST][..], &[2; 1_000]].concat();
        assert!(lock(&outlet.0).stream.written == expected);
    }

    #[tokio::test]
    async fn a_write_that_fails_ends_the_connection() {
        let (mut stream, outlet) = with_room(100);
        lock(&outlet.0).stream.broken = true;
        let connection = async move {
            stream.write_all(&[1; 10]).await?;
            stream.flush().await?;
            stream.read_u8().await
        };
        let outcome = Gathered::new(Box::pin(connection), outlet).await;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn the_last_words_are_written() {
        let (mut stream, outlet) = with_room(100);
        let connection = async move { stream.write_all(&[1; 10]).await };
        let state = Arc::clone(&outlet.0);
        Gathered::new(Box::pin(connection), outlet).await.unwrap();
        assert_eq!(lock(&state).stream.written, [1; 10]);
    }

    #[tokio::test]
    async fn a_shutdown_writes_what_waits() {
        let (mut stream, outlet) = with_room(100);
        stream.write_all(&[1; 10]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(lock(&outlet.0).stream.written, [1; 10]);
    }
}
