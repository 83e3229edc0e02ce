//! Bytes both ways between two streams. Entry item: [`copy_both_ways`].
//!
//! Most tunnels rest most of the time, so they hold no buffers: what is read is written at once, and
//! only what the other side does not take is kept, until it does. Nothing is read meanwhile.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read at a time: a TLS record has no more.
const PIECE: usize = 16 << 10;

/// Copies until both directions have ended. The end of one side is passed on to the other, which may
/// go on. A side that takes nothing any more may still have something to say, and is heard to its
/// end; one that can no longer be heard ends it all.
pub(crate) async fn copy_both_ways<A, B>(mut a: A, mut b: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (Way::default(), Way::default());
    let both = poll_fn(|cx| -> Poll<io::Result<()>> {
        let there = there.poll(cx, &mut a, &mut b)?;
        let back = back.poll(cx, &mut b, &mut a)?;
        if there.is_ready() && back.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    both.await?;
    there.broken.or(back.broken).map_or(Ok(()), Err)
}

/// One of the two directions.
#[derive(Default)]
struct Way {
    /// Read, and not yet written.
    kept: Bytes,
    state: State,
    /// Why the sink takes nothing any more.
    broken: Option<io::Error>,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    /// The source has ended; the sink has to be told.
    Ending,
    /// The source failed; what it said before is still for the sink.
    Failing(io::Error),
    Ended,
}

impl Way {
    /// Ready when it is done; an error is one of the source.
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let sink = ready!(self.fill(cx, from, to));
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Failing(error) => return Poll::Ready(Err(error)),
            _ => self.kept = Bytes::new(),
        }
        if let Err(error) = sink {
            self.broken = Some(error);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when nothing more goes into the sink; an error is one of the sink.
    fn fill<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            while self.kept.has_remaining() {
                let written = ready!(write(cx, to, &self.kept))?;
                self.kept.advance(written);
            }
            // Frees it.
            self.kept = Bytes::new();
            match self.state {
                State::Open => ready!(self.pass(cx, from, to))?,
                State::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    return Poll::Ready(Ok(()));
                }
                State::Failing(_) => return Pin::new(to).poll_flush(cx),
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads once, and writes as much of it as is taken.
    fn pass<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
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
                // TLS may hold back what was written. This also looks whether the sink was cut,
                // which a direction that is alone would not hear of otherwise.
                let _ = Pin::new(to).poll_flush(cx)?;
                return Poll::Pending;
            }
        }
        let mut rest = piece.filled();
        while !rest.is_empty() {
            match write(cx, to, rest)? {
                Poll::Ready(written) => rest = rest.get(written..).unwrap_or_default(),
                Poll::Pending => {
                    self.kept = Bytes::copy_from_slice(rest);
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

    /// What a pipe holds.
    const PIPE: usize = 1 << 10;

    fn joined() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (client, near) = duplex(PIPE);
        let (far, server) = duplex(PIPE);
        (client, server, tokio::spawn(copy_both_ways(near, far)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_takes_nothing_stops_the_source() {
        let (mut client, mut server, copying) = joined();
        let mut written = 0;
        // The clock moves only when nothing else does: nothing more is taken then.
        while let Ok(taken) = timeout(Duration::from_secs(1), client.write(&[7; 100])).await {
            written += taken.unwrap();
        }
        assert!(written <= 2 * PIPE + PIECE, "{written}");
        // The other direction goes on, and all of it arrives once somebody reads.
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
        client.write_all(b"last words").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
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
    async fn who_takes_nothing_any_more_is_heard_to_the_end() {
        let (mut client, mut server, copying) = joined();
        server.write_all(b"enough").await.unwrap();
        drop(server);
        // Into the void, until it is known to be one.
        let _ = client.write_all(&[7; 4 * PIPE]).await;
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"enough");
        drop(client);
        assert_eq!(copying.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn what_was_said_before_a_failure_arrives() {
        let last_words = vec![7; PIPE + 100];
        let failing = reset_after(&last_words);
        let (far, mut server) = duplex(PIPE);
        let copying = tokio::spawn(copy_both_ways(failing, far));
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, last_words);
        assert_eq!(copying.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    /// Says this, and is reset.
    fn reset_after(words: &[u8]) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
        let reads = tokio_util::io::StreamReader::new(futures_util::stream::iter([
            Ok(Bytes::copy_from_slice(words)),
            Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        ]));
        tokio::io::join(reads, tokio::io::sink())
    }
}
