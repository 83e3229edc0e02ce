//! One end of a simulated connection. Entry item: [`End`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::network::{Network, Node};
use super::random::Random;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    /// The nodes of the writer and of the reader.
    pub(super) way: (Node, Node),
    /// What is under way, with the time of its arrival.
    pub(super) queue: VecDeque<(Instant, Item)>,
    pub(super) random: Random,
    pub(super) reader: Reader,
    /// Whether the writer has closed it.
    pub(super) finished: bool,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug, Clone)]
pub(super) enum Item {
    Data(Bytes),
    Fin,
    Reset,
}

/// What becomes of what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Reads,
    /// It has closed the connection: the kernel of its node answers with a reset.
    Gone,
    /// Its whole node has vanished: nothing answers.
    Vanished,
}

impl Pipe {
    pub(super) fn new(way: (Node, Node), random: Random) -> Pipe {
        let (queue, reader) = (VecDeque::new(), Reader::Reads);
        Pipe { way, queue, random, reader, finished: false, waker: None }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn is_reset(&self, now: Instant) -> bool {
        self.queue.iter().any(|(at, item)| *at <= now && matches!(item, Item::Reset))
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    network: Network,
    incoming: usize,
    outgoing: usize,
    timer: Pin<Box<Sleep>>,
}

impl End {
    pub(super) fn new(network: Network, incoming: usize, outgoing: usize) -> End {
        End { network, incoming, outgoing, timer: Box::pin(sleep_until(Instant::now())) }
    }
}

fn reset() -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "connection reset by peer")
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let now = Instant::now();
            let at = {
                let mut state = self.network.state();
                let cut = state.is_cut(self.incoming);
                let pipe = state.pipe(self.incoming);
                if pipe.reader != Reader::Reads {
                    return Poll::Ready(Err(reset()));
                }
                pipe.waker = Some(cx.waker().clone());
                match pipe.queue.front_mut() {
                    None => return Poll::Pending,
                    Some(_) if cut => return Poll::Pending,
                    Some((at, _)) if *at > now => *at,
                    Some((_, Item::Fin)) => return Poll::Ready(Ok(())),
                    Some((_, Item::Reset)) => return Poll::Ready(Err(reset())),
                    Some((_, Item::Data(data))) => {
                        let length = data.len().min(buffer.remaining());
                        buffer.put_slice(&data[..length]);
                        data.advance(length);
                        if data.is_empty() {
                            pipe.queue.pop_front();
                        }
                        return Poll::Ready(Ok(()));
                    }
                }
            };
            self.timer.as_mut().reset(at);
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.network.state();
        let cut = state.is_cut(self.incoming);
        let incoming = state.pipe(self.incoming);
        if incoming.reader != Reader::Reads || (!cut && incoming.is_reset(Instant::now())) {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        match state.pipe(self.outgoing).reader {
            Reader::Reads => {
                state.send(self.outgoing, Item::Data(Bytes::copy_from_slice(bytes)));
            }
            Reader::Gone => state.send(self.incoming, Item::Reset),
            Reader::Vanished => {}
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.network.state().finish(self.outgoing);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.network.state();
        state.finish(self.outgoing);
        let incoming = state.pipe(self.incoming);
        if incoming.reader == Reader::Reads {
            incoming.reader = Reader::Gone;
        }
    }
}
