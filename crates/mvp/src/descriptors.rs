//! File descriptors: their limit, the share of clients, and a reserve for the admin endpoint.
//! Entries: [`raise_limit`], [`max_client_connections`], [`AdminListener`].

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::mistake::Mistake;

/// Descriptors that are not used for client connections and their upstream connections, but for the
/// admin endpoint, listeners, files, peers and reload. A quarter of the limit if that is less.
const RESERVE: u64 = 128;
/// The smallest default of `--max-client-connections`.
const LEAST_CONNECTIONS: u64 = 16;
/// Descriptors that are reserved for the admin endpoint.
const ADMIN_RESERVE: usize = 8;
/// The delay of the admin endpoint while even those are in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Raises the soft limit of open files to the hard limit. Returns the limit in force.
///
/// The usual soft limit is meant for programs that use `select`, and is too low for many clients.
pub(crate) fn raise_limit() -> u64 {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    match rlimit::Resource::NOFILE.get() {
        Ok((soft, _)) => soft,
        Err(error) => {
            tracing::warn!(%error, "cannot read the limit of open files");
            u64::MAX
        }
    }
}

/// The limit of client connections with this many descriptors. Each client connection may need a
/// second descriptor, for its connection to a server.
pub(crate) fn max_client_connections(limit: u64, asked: Option<usize>) -> Result<usize, Mistake> {
    let reserve = RESERVE.min(limit / 4);
    let most = ((limit - reserve) / 2).max(LEAST_CONNECTIONS);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match asked {
        Some(asked) if asked > most => {
            let sentence = format!(
                "{asked} needs {} file descriptors, two for each connection and {reserve} more, but \
                 the limit is {limit}; raise the limit (ulimit -n, LimitNOFILE=), or give at most \
                 {most}",
                asked
                    .saturating_mul(2)
                    .saturating_add(usize::try_from(reserve).unwrap_or_default())
            );
            Err(Mistake::trouble("--max-client-connections", sentence))
        }
        Some(asked) => Ok(asked),
        None => Ok(most),
    }
}

/// A listener that can accept when the process has no descriptors left: it holds a reserve open, and
/// closes one of it to make room for a connection.
pub(crate) struct AdminListener {
    listener: TcpListener,
    reserve: Reserve,
}

impl AdminListener {
    pub(crate) fn new(listener: TcpListener) -> AdminListener {
        let reserve = Reserve::default();
        reserve.refill();
        AdminListener { listener, reserve }
    }
}

impl Listener for AdminListener {
    type Io = AdminStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, remote)) => {
                    let refills = Refills(self.reserve.clone());
                    return (AdminStream { stream, _refills: refills }, remote);
                }
                Err(error) if is_exhaustion(&error) && self.reserve.release() => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot accept admin connection");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    self.reserve.refill();
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether the error is EMFILE or ENFILE.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}

/// Open descriptors of `/dev/null`.
#[derive(Clone, Default)]
struct Reserve(Arc<Mutex<Vec<File>>>);

impl Reserve {
    fn refill(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() < ADMIN_RESERVE
            && let Ok(file) = File::open("/dev/null")
        {
            held.push(file);
        }
    }

    /// Closes one. Returns whether one was left.
    fn release(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().is_some()
    }
}

/// Refills the reserve when it is dropped.
struct Refills(Reserve);

impl Drop for Refills {
    fn drop(&mut self) {
        self.0.refill();
    }
}

/// A connection to the admin endpoint; its descriptor may come from the reserve.
pub(crate) struct AdminStream {
    stream: TcpStream,
    // After the stream: fields are dropped in this order.
    _refills: Refills,
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AdminStream {
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
    use super::*;

    #[test]
    fn client_connections_leave_a_reserve_of_descriptors() {
        for (limit, most) in
            [(1024, 448), (4096, 1984), (1 << 20, 524_224), (256, 96), (64, 24), (8, 16), (0, 16)]
        {
            assert_eq!(max_client_connections(limit, None), Ok(most), "{limit}");
            assert_eq!(max_client_connections(limit, Some(most)), Ok(most), "{limit}");
            assert_eq!(max_client_connections(limit, Some(1)), Ok(1), "{limit}");
            assert!(max_client_connections(limit, Some(most + 1)).is_err(), "{limit}");
        }
        assert!(max_client_connections(u64::MAX, Some(usize::MAX / 2 - 200)).is_ok());
        assert_eq!(
            max_client_connections(4096, Some(5000)).unwrap_err().to_string(),
            "--max-client-connections: 5000 needs 10128 file descriptors, two for each connection \
             and 128 more, but the limit is 4096; raise the limit (ulimit -n, LimitNOFILE=), or \
             give at most 1984"
        );
    }

    #[tokio::test]
    async fn a_closed_admin_connection_refills_the_reserve() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = AdminListener::new(listener);
        let held = |listener: &AdminListener| listener.reserve.0.lock().unwrap().len();
        assert_eq!(held(&listener), ADMIN_RESERVE);
        let _client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await;
        assert!(listener.reserve.release() && listener.reserve.release());
        drop(stream);
        assert_eq!(held(&listener), ADMIN_RESERVE);
        for _ in 0..ADMIN_RESERVE {
            assert!(listener.reserve.release());
        }
        assert!(!listener.reserve.release());
    }
}
