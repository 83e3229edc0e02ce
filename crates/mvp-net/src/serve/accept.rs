//! Accepts connections; no system error stops it or makes it spin. Entry: [`Acceptor::accept`].
//!
//! Closing a listener resets the connections in its queue, even if another process shares the port:
//! the kernel assigned them to this listener when their first packet arrived. So the end is done in
//! three steps: [`Acceptor::turn_away`], then accept what is under way, then [`Acceptor::last`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::ConnectionLimit;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The number of idle connections that are cut at once when no descriptors are left.
const ROOM: usize = 8;

/// A source of connections: a listener, or a test double.
pub(crate) trait Source {
    type Stream;

    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }
}

/// A source of connections with a backoff after errors.
pub(crate) struct Acceptor<L> {
    source: L,
    limit: ConnectionLimit,
    pause: Duration,
    /// The end of the backoff. Not in the future: `accept` may be dropped and called again.
    resume: Option<Instant>,
}

impl<L: Source> Acceptor<L> {
    pub(crate) fn new(source: L, limit: ConnectionLimit) -> Self {
        Self { source, limit, pause: FIRST_PAUSE, resume: None }
    }

    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&mut self) -> (L::Stream, SocketAddr) {
        loop {
            if let Some(resume) = self.resume {
                sleep_until(resume).await;
                self.resume = None;
            }
            match self.source.next().await {
                Ok(accepted) => {
                    self.pause = FIRST_PAUSE;
                    return accepted;
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // No descriptors or no memory: it fails again at once, until some connection
                    // ends.
                    let pause_seconds = self.pause.as_secs_f64();
                    tracing::warn!(%error, pause_seconds, "cannot accept connections");
                    self.limit.note_shortage();
                    if self.limit.make_room(ROOM) {
                        self.pause = FIRST_PAUSE;
                    }
                    self.resume = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

impl Acceptor<TcpListener> {
    /// Turns new connections away. Those in the queue, or in their handshake, are still accepted.
    ///
    /// The kernel drops the first packet of a new connection. The client repeats it after a second
    /// and reaches the process that has the port by then, or is refused if there is none. (Accepted
    /// connections inherit the filter, which never matches their packets.)
    pub(crate) fn turn_away(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&self.source).attach_filter(&no_new_connection())
        {
            tracing::debug!(%error, "cannot turn new connections away before the listener closes");
        }
    }

    /// Closes the listener. Returns the connections that are left in its queue.
    pub(crate) fn last(self) -> Vec<(TcpStream, SocketAddr)> {
        let mut last = Vec::new();
        // Not through tokio, which calls the kernel only after a readiness event.
        if let Ok(listener) = self.source.into_std() {
            while let Ok((stream, remote)) = listener.accept() {
                let stream =
                    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                last.extend(stream.map(|stream| (stream, remote)));
            }
        }
        last
    }
}

/// A BPF filter that drops packets with SYN but without ACK, and passes all others.
#[cfg(target_os = "linux")]
fn no_new_connection() -> [socket2::SockFilter; 5] {
    use socket2::SockFilter;
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

/// Whether the error is about one connection, not about the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Fails with each of the errors in turn, then yields connections.
    struct Failing(Mutex<Vec<io::Error>>);

    impl Source for Failing {
        type Stream = ();

        async fn next(&self) -> io::Result<((), SocketAddr)> {
            match self.0.lock().unwrap().pop() {
                Some(error) => Err(error),
                None => Ok(((), SocketAddr::from(([127, 0, 0, 1], 1)))),
            }
        }
    }

    fn failing(number: usize, error: fn() -> io::Error) -> Acceptor<Failing> {
        let source = Failing(Mutex::new((0..number).map(|_| error()).collect()));
        Acceptor::new(source, ConnectionLimit::default())
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_doubles_while_descriptors_are_exhausted() {
        let no_descriptors = || io::Error::from_raw_os_error(24);
        let mut acceptor = failing(10, no_descriptors);
        let start = Instant::now();
        acceptor.accept().await;
        // 5 ms doubled: 5+10+20+40+80, then five times the longest.
        let expected = Duration::from_millis(5 * 31 + 5 * 100);
        assert!(start.elapsed() >= expected, "{:?}", start.elapsed());
        assert!(start.elapsed() < expected + Duration::from_millis(50), "{:?}", start.elapsed());
        assert_eq!(acceptor.pause, FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_accept_does_not_shorten_the_pause() {
        let mut acceptor = failing(1, || io::Error::from_raw_os_error(24));
        let start = Instant::now();
        for _ in 0..3 {
            let too_short = Duration::from_millis(1);
            assert!(tokio::time::timeout(too_short, acceptor.accept()).await.is_err());
        }
        acceptor.accept().await;
        assert!(start.elapsed() >= FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_connection_causes_no_pause() {
        let mut acceptor = failing(100, || io::ErrorKind::ConnectionAborted.into());
        let start = Instant::now();
        acceptor.accept().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    /// Has no descriptors until a connection is cut.
    struct Full(ConnectionLimit);

    impl Source for Full {
        type Stream = ();

        async fn next(&self) -> io::Result<((), SocketAddr)> {
            match self.0.evicted() {
                0 => Err(io::Error::from_raw_os_error(24)),
                _ => Ok(((), SocketAddr::from(([127, 0, 0, 1], 1)))),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_descriptors_an_unused_connection_makes_room() {
        let limit = ConnectionLimit::default();
        let permit = limit.admit([127, 0, 0, 1].into(), &Arc::default()).unwrap();
        let number = permit.number();
        let idle = tokio::spawn(async move {
            let _permit = permit;
            std::future::pending::<()>().await;
        });
        limit.is_served_by(number, idle.abort_handle());
        let mut acceptor = Acceptor::new(Full(limit.clone()), limit.clone());
        let accepted = tokio::time::timeout(Duration::from_secs(2), acceptor.accept()).await;
        assert!(accepted.is_ok());
        assert!(idle.await.unwrap_err().is_cancelled());
        assert_eq!((limit.open(), limit.evicted()), (0, 1));
    }
}
