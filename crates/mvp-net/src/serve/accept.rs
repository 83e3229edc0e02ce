//! Accepts without end: no error of the system stops it or makes it spin. Entry:
//! [`Acceptor::accept`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where connections come from; a test has another source than a socket.
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

/// A source, and how long it must rest.
pub(crate) struct Acceptor<L> {
    source: L,
    pause: Duration,
    /// Kept here and not in the future: `accept` may be dropped and called again at any time.
    resume: Option<Instant>,
}

impl<L: Source> Acceptor<L> {
    pub(crate) fn new(source: L) -> Self {
        Self { source, pause: FIRST_PAUSE, resume: None }
    }

    /// The next connection. Can be dropped without loss.
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
                    // No descriptors or no memory: it will fail again at once, until some
                    // connection ends.
                    tracing::warn!(%error, pause = ?self.pause, "cannot accept connections");
                    self.resume = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

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
    use std::sync::Mutex;

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
        Acceptor::new(Failing(Mutex::new((0..number).map(|_| error()).collect())))
    }

    #[tokio::test(start_paused = true)]
    async fn exhaustion_is_waited_out_ever_longer() {
        let no_descriptors = || io::Error::from_raw_os_error(24);
        let mut acceptor = failing(10, no_descriptors);
        let start = Instant::now();
        acceptor.accept().await;
        // 5 ms doubled: 5+10+20+40+80+160+320+640, then twice the longest.
        let expected = Duration::from_millis(5 * 255 + 2 * 1000);
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
    async fn a_client_that_gave_up_costs_no_time() {
        let mut acceptor = failing(100, || io::ErrorKind::ConnectionAborted.into());
        let start = Instant::now();
        acceptor.accept().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
