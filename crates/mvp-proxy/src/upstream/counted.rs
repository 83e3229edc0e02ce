//! A connection to a server whose reads are counted as signs of life. Entry item: [`Counted`].
//!
//! It reads ahead. rustls mostly takes 4 KiB at a time, so without this each response of more than that, and
//! each burst of small responses on a shared connection, would cost several system calls. The memory
//! is shared by all connections of a thread; a connection keeps some only while data waits in it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;
use tokio_util::io::poll_read_buf;

use super::pulse::Beat;

/// The bytes that one system call may read.
const AHEAD: usize = 32 << 10;

thread_local! {
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// A connection that counts its reads, and reads ahead.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    stream: T,
    beat: Beat,
    ahead: BytesMut,
}

impl<T> Counted<T> {
    pub(super) fn new(stream: T, beat: Beat) -> Counted<T> {
        Counted { stream, beat, ahead: BytesMut::new() }
    }

    fn take(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = buffer.remaining().min(self.ahead.len());
        if let Some(taken) = self.ahead.get(..length) {
            buffer.put_slice(taken);
        }
        if length == self.ahead.len() {
            self.ahead = BytesMut::new();
        } else {
            self.ahead.advance(length);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            let mut spare = SPARE.take();
            spare.reserve(AHEAD);
            let read = poll_read_buf(Pin::new(&mut this.stream), context, &mut spare);
            // An empty part would hold the memory, too.
            if matches!(read, Poll::Ready(Ok(1..))) {
                this.ahead = spare.split();
                this.beat.hear();
            }
            SPARE.set(spare);
            ready!(read)?;
        } else {
            // What was read ahead counts as work of the task, too: other tasks have their turn.
            ready!(poll_proceed(context)).made_progress();
        }
        this.take(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::upstream::pulse::Pulses;

    #[tokio::test]
    async fn what_is_read_ahead_arrives_in_order() {
        let pulses = Pulses::default();
        let beat = pulses.beat(&"one:1".into());
        let (mut server, client) = duplex(1 << 20);
        let mut client = Counted::new(client, beat.clone());
        let sent: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        server.write_all(&sent).await.unwrap();
        drop(server);
        let mut received = Vec::new();
        for length in (1..4_096).cycle() {
            let mut piece = vec![0; length];
            let read = client.read(&mut piece).await.unwrap();
            if read == 0 {
                break;
            }
            received.extend_from_slice(&piece[..read]);
        }
        assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        let most = sent.len().div_ceil(AHEAD) as u64;
        assert!((1..=most).contains(&beat.heard()), "{} reads", beat.heard());
    }

    /// Connections take turns in the shared memory. What waits in one must not reach another.
    #[tokio::test]
    async fn connections_do_not_mix_their_data() {
        let pulses = Pulses::default();
        let mut pairs: Vec<_> = (0..8_u8)
            .map(|number| {
                let (server, client) = duplex(1 << 16);
                let beat = pulses.beat(&"one:1".into());
                (number, server, Counted::new(client, beat))
            })
            .collect();
        for (number, server, _) in &mut pairs {
            server.write_all(&[*number; 5_000]).await.unwrap();
        }
        for _ in 0..50 {
            for (number, _, client) in &mut pairs {
                let mut piece = [0xff; 100];
                client.read_exact(&mut piece).await.unwrap();
                assert_eq!(piece, [*number; 100]);
            }
        }
    }

    /// Idle connections keep no memory: those of a thread use the same again.
    #[tokio::test]
    async fn connections_share_their_memory() {
        let address = || {
            let spare = SPARE.take();
            let address = spare.as_ptr();
            SPARE.set(spare);
            address
        };
        let pulses = Pulses::default();
        let connect = || {
            let (server, client) = duplex(1 << 16);
            (server, Counted::new(client, pulses.beat(&"one:1".into())))
        };
        let mut pairs = [connect(), connect(), connect()];
        let mut piece = [0; 5_000];
        let mut used = Vec::new();
        for _ in 0..3 {
            for (server, client) in &mut pairs {
                server.write_all(&piece).await.unwrap();
                client.read_exact(&mut piece).await.unwrap();
                let idle = poll_fn(|context| {
                    let mut buffer = ReadBuf::new(&mut piece);
                    Poll::Ready(Pin::new(&mut *client).poll_read(context, &mut buffer).is_pending())
                });
                assert!(idle.await);
                used.push(address());
            }
        }
        used.dedup();
        assert_eq!(used.len(), 1, "{used:?}");
    }
}
