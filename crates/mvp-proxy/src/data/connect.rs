//! Connections to servers: TCP and TLS, within a bounded time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pulse::{Beat, Counted};

/// A server that is silent for this long on every connection while one is being opened is dead:
/// where a process was stopped, the kernel still accepts for it.
const SILENCE: Duration = Duration::from_secs(2);
/// A server that is heard on other connections is busy, and may take this long.
const BUSY: Duration = Duration::from_secs(6);
/// Without PINGs, a server that is silent for this long is probed with a new connection; checked at
/// this interval. With [`SILENCE`] that is three seconds.
const PROBE_AFTER: Duration = Duration::from_millis(750);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// Why there is no connection.
#[derive(Debug, Clone, Error)]
pub(crate) enum ConnectError {
    /// The server refuses, cannot be reached, is silent, or is not whom we trust.
    #[error("{0}")]
    Server(Arc<io::Error>),
    /// The server is heard, but has no time for another connection.
    #[error("no connection within {} s to a busy server", BUSY.as_secs())]
    Busy,
    /// This process has no descriptors or no memory: it says nothing about the server.
    #[error("this gateway cannot open connections: {0}")]
    Ours(Arc<io::Error>),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        match is_ours(&error) {
            true => ConnectError::Ours(Arc::new(error)),
            false => ConnectError::Server(Arc::new(error)),
        }
    }
}

impl ConnectError {
    fn is_silence(&self) -> bool {
        matches!(self, ConnectError::Server(error) if error.kind() == io::ErrorKind::TimedOut)
    }
}

/// Whether an error of the system is about this process or host and not about the server: no
/// descriptors, no memory, no buffers, no ports.
fn is_ours(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::AddrNotAvailable)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
}

/// Where and how to connect.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// `HOST:PORT`
    pub(crate) address: Arc<str>,
    /// The name that its certificate must be for.
    pub(crate) server_name: ServerName<'static>,
    /// Whom we trust, what we present, and which protocol we speak.
    pub(crate) tls: Arc<ClientConfig>,
    /// Counts what is heard from the server.
    pub(crate) beat: Beat,
}

pub(crate) type Connected = TokioIo<TlsStream<Counted<TcpStream>>>;

impl Endpoint {
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        self.unless_silent(async {
            let stream = TcpStream::connect(&*self.address).await?;
            stream.set_nodelay(true)?;
            // A server that vanishes without a word is noticed also where there are no PINGs.
            SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
            let stream = Counted::new(stream, self.beat.clone());
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            Ok(TokioIo::new(connector.connect(self.server_name.clone(), stream).await?))
        })
        .await
    }

    /// The outcome of `step`, unless the server is silent for too long meanwhile.
    async fn unless_silent<T>(
        &self,
        step: impl Future<Output = io::Result<T>>,
    ) -> Result<T, ConnectError> {
        let mut step = std::pin::pin!(step);
        let began = Instant::now();
        let mut heard = self.beat.heard();
        loop {
            if let Ok(outcome) = timeout(SILENCE, step.as_mut()).await {
                return outcome.map_err(ConnectError::from);
            }
            let now = self.beat.heard();
            if now == heard {
                let message = format!("no connection within {} s", SILENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message).into());
            }
            if began.elapsed() >= BUSY {
                return Err(ConnectError::Busy);
            }
            heard = now;
        }
    }

    /// Ends when the server hangs: it may think for as long as it likes, but something is heard from
    /// it, or it shakes hands. One that refuses does not hang: it may take no more connections and
    /// still finish what it has.
    pub(crate) async fn hangs(&self) -> ConnectError {
        let (mut heard, mut since) = (self.beat.heard(), Instant::now());
        loop {
            sleep(LOOK_INTERVAL).await;
            let now = self.beat.heard();
            if now == heard && since.elapsed() < PROBE_AFTER {
                continue;
            }
            if now == heard
                && let Err(error) = self.beat.probing().run(|| self.connect()).await
                && error.is_silence()
            {
                return error;
            }
            (heard, since) = (self.beat.heard(), Instant::now());
        }
    }
}

/// Something that one at a time does; a failure counts for all who waited for it.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(tokio::sync::Mutex<Option<(Instant, ConnectError)>>);

impl SingleFlight {
    /// Runs `step`, unless it failed for somebody else while this one waited.
    pub(crate) async fn run<T, F>(&self, step: impl FnOnce() -> F) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        let came = Instant::now();
        let mut failed = self.0.lock().await;
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= came) {
            return Err(error.clone());
        }
        let outcome = step().await;
        *failed = outcome.as_ref().err().map(|error| (Instant::now(), error.clone()));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::pulse::Pulses;

    fn endpoint(beat: Beat) -> Endpoint {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Endpoint {
            address: "127.0.0.1:1".into(),
            server_name: crate::data::server_name(),
            tls: Arc::new(tls),
            beat,
        }
    }

    /// Reads a byte from the server every so often, on another connection.
    fn heard_elsewhere(beat: Beat, every: Duration) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut server, client) = tokio::io::duplex(64);
        let mut client = Counted::new(client, beat);
        tokio::spawn(async move {
            loop {
                sleep(every).await;
                server.write_all(b"x").await.unwrap();
                client.read_exact(&mut [0]).await.unwrap();
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_dead_and_a_busy_one_is_waited_for() {
        let pulses = Pulses::default();
        let silent = endpoint(pulses.beat(&"silent:1".into()));
        let began = Instant::now();
        let never = std::future::pending::<io::Result<()>>;
        assert!(silent.unless_silent(never()).await.unwrap_err().is_silence());
        assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());

        let busy = endpoint(pulses.beat(&"busy:1".into()));
        heard_elsewhere(pulses.beat(&"busy:1".into()), Duration::from_millis(700));
        let late = async {
            sleep(Duration::from_secs(5)).await;
            Ok(())
        };
        assert!(busy.unless_silent(late).await.is_ok(), "it shook hands in the end");
        let began = Instant::now();
        assert!(matches!(busy.unless_silent(never()).await, Err(ConnectError::Busy)));
        assert_eq!(began.elapsed().as_secs(), BUSY.as_secs());
    }

    #[test]
    fn our_own_limits_say_nothing_about_a_server() {
        for number in [12, 23, 24, 99, 105] {
            let error = io::Error::from_raw_os_error(number);
            assert!(matches!(ConnectError::from(error), ConnectError::Ours(_)), "{number}");
        }
        let refused = io::Error::from_raw_os_error(111);
        assert!(matches!(ConnectError::from(refused), ConnectError::Server(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_for_all_who_waited_for_it() {
        let flight = Arc::new(SingleFlight::default());
        let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let all = (0..5).map(|_| {
            let (flight, runs) = (Arc::clone(&flight), Arc::clone(&runs));
            async move {
                flight
                    .run(|| async {
                        runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        sleep(Duration::from_secs(1)).await;
                        Err::<(), _>(ConnectError::Busy)
                    })
                    .await
            }
        });
        let outcomes = futures_util::future::join_all(all).await;
        assert!(outcomes.iter().all(Result::is_err));
        assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
