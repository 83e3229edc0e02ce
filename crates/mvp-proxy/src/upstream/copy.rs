//! Copies bytes in both directions between two streams. Entry item: [`copy_both_ways`].
//!
//! Most tunnels are idle most of the time, so an idle one holds no buffer. What is read is written
//! at once. Only what the sink does not accept is kept, and nothing more is read until it does.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of a read: that of the largest TLS record.
const PIECE: usize = 16 << 10;

/// Copies until both directions have ended. The end of one direction is forwarded, and the other
/// direction continues. A stream that accepts no more writes is still read to its end. A read error
/// ends both directions.
pub(crate) async fn copy_both_ways<A, B>(mut a: A, mut b: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (Direction::default(), Direction::default());
    let both = poll_fn(|cx| -> Poll<io::Result<()>> {
        let there = there.poll(cx, &mut a, &mut b)?;
        let back = back.poll(cx, &mut b, &mut a)?;
        if there.is_ready() && back.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    both.await?;
    there.sink_error.or(back.sink_error).map_or(Ok(()), Err)
}

/// One of the two directions.
#[derive(Default)]
struct Direction {
    /// Bytes that were read and not yet written.
    unwritten: Bytes,
    state: State,
    /// Why the sink accepts no more writes.
    sink_error: Option<io::Error>,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    /// The source has ended. The sink must be shut down.
    Ending,
    /// The source failed. What was read before is still written.
    Failing(io::Error),
    Ended,
}

impl Direction {
    /// Ready when the direction has ended. An error is one of the source.
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let sink = ready!(self.fill(cx, from, to));
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Failing(error) => return Poll::Ready(Err(error)),
            _ => self.unwritten = Bytes::new(),
        }
        if let Err(error) = sink {
            self.sink_error = Some(error);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when nothing more is written to the sink. An error is one of the sink.
    fn fill<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            while self.unwritten.has_remaining() {
                let written = ready!(write(cx, to, &self.unwritten))?;
                self.unwritten.advance(written);
            }
            // Frees the buffer.
            self.unwritten = Bytes::new();
            match self.state {
                State::Open => ready!(self.copy_once(cx, from, to))?,
                State::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    return Poll::Ready(Ok(()));
                }
                State::Failing(_) => return Pin::new(to).poll_flush(cx),
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads once, and writes as much as the sink accepts.
    fn copy_once<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut space = [MaybeUninit::<u8>::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut space);
        match Pin::new(from).poll_read(cx, &mut piece) {
            Poll::Ready(Ok(())) if piece.filled().is_empty() => self.state = State::Ending,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => self.state = State::Failing(error),
            Poll::Pending => {
                // TLS may buffer what was written. The flush also detects a closed sink, which
                // nothing else does once the other direction has ended.
                let _ = Pin::new(to).poll_flush(cx)?;
                return Poll::Pending;
            }
        }
        let mut rest = piece.filled();
        while !rest.is_empty() {
            match write(cx, to, rest)? {
                Poll::Ready(written) => rest = rest.get(written..).unwrap_or_default(),
                Poll::Pending => {
                    self.unwritten = Bytes::copy_from_slice(rest);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn write<W>(cx: &mut Context<'_>, to: &mut W, bytes: &[u8]) -> Poll<io::Result<usize>>
where
    W: AsyncWrite + Unpin,
{
    match ready!(Pin::new(to).poll_write(cx, bytes))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        written => Poll::Ready(Ok(written)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// The capacity of a pipe.
    const PIPE: usize = 1 << 10;

    fn joined() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (client, near) = duplex(PIPE);
        let (far, server) = duplex(PIPE);
        (client, server, tokio::spawn(copy_both_ways(near, far)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_sink_stops_the_source() {
        let (mut client, mut server, copying) = joined();
        let mut written = 0;
        // The paused clock advances only when all tasks are idle: then nothing more is accepted.
        while let Ok(taken) = timeout(Duration::from_secs(1), client.write(&[7; 100])).await {
            written += taken.unwrap();
        }
        assert!(written <= 2 * PIPE + PIECE, "{written}");
        // The other direction continues, and all bytes arrive once the sink is read.
        server.write_all(b"back").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        drop(client);
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, vec![7; written]);
        drop(server);
        copying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_end_of_one_side_leaves_the_other_open() {
        let (mut client, mut server, copying) = joined();
        client.write_all(b"the end").await.unwrap();
        client.shutdown().await.unwrap();
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"the end");
        for _ in 0..3 {
            server.write_all(b"still").await.unwrap();
            client.read_exact(&mut [0; 5]).await.unwrap();
        }
        assert!(!copying.is_finished());
        server.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        copying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_stream_that_accepts_no_writes_is_read_to_its_end() {
        let (mut client, mut server, copying) = joined();
        server.write_all(b"enough").await.unwrap();
        drop(server);
        // The first writes succeed, until the copy notices the closed sink.
        let _ = client.write_all(&[7; 4 * PIPE]).await;
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"enough");
        drop(client);
        assert_eq!(copying.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn bytes_read_before_a_failure_arrive() {
        let sent = vec![7; PIPE + 100];
        let failing = reset_after(&sent);
        let (far, mut server) = duplex(PIPE);
        let copying = tokio::spawn(copy_both_ways(failing, far));
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, sent);
        assert_eq!(copying.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    /// A stream that yields these bytes and is then reset.
    fn reset_after(bytes: &[u8]) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
        let reads = tokio_util::io::StreamReader::new(futures_util::stream::iter([
            Ok(Bytes::copy_from_slice(bytes)),
            Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        ]));
        tokio::io::join(reads, tokio::io::sink())
    }
}
