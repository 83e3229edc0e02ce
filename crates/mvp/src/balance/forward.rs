//! One connection of a client, from accept to its end: connected to the first member that takes it,
//! then copied both ways untouched. Entry item: [`forward`].
//!
//! Nothing is read from the client before a member is connected, so any other member may be tried
//! until then, and never after.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use mvp_net::is_own_failure;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::members::{Member, Members, Outcome};

/// The time limit for connecting to one member. The kernel repeats the first packet after a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A member that has sent nothing for this long after a connection began is probed: a process that
/// hangs still has its connections accepted, by the kernel.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Idle connections are kept alive, so that the end of a host is noticed. There is no time limit for
/// idle connections.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Forwards a connection until it ends.
pub(super) async fn forward(client: TcpStream, members: Arc<Members>) {
    prepare(&client);
    let mut own = None;
    for member in members.in_order() {
        match members.connect(&member.address).await {
            Ok(server) => {
                members.note_shortage(None);
                return copy(client, server, &member).await;
            }
            Err(error) => own = failed(&member, error).or(own),
        }
    }
    if own.is_some() {
        members.note_shortage(own.as_ref());
    }
    members.count_unserved();
    tracing::debug!("connection refused, no member can be reached");
}

/// Counts a failed attempt against the member, unless the failure is our own: then it is returned.
fn failed(member: &Member, error: io::Error) -> Option<io::Error> {
    if is_ours(&error) {
        return Some(error);
    }
    member.count(Outcome::ConnectFailed);
    member.failed(&error.to_string());
    member.suspect.notify_one();
    None
}

/// Whether an error is about this process. An address that cannot be used is about the member: another
/// one may have a better address.
pub(super) fn is_ours(error: &io::Error) -> bool {
    is_own_failure(error) && error.kind() != io::ErrorKind::AddrNotAvailable
}

impl Members {
    /// Connects to a member. Its name may have several addresses. Our own listener is no member:
    /// connections to it would multiply without end.
    pub(super) async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if self.is_ours(stream.local_addr()?, stream.peer_addr()?) => {
                Err(io::Error::other("it is the listener of mvp itself"))
            }
            Ok(connected) => connected,
            Err(_) => {
                let sentence = format!("connect timed out after {} s", CONNECT_TIMEOUT.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
            }
        }
    }
}

/// Copies both ways until both sides have closed. The end of one direction is passed on, and the other
/// goes on. A side that does not read stops the reading of the other.
async fn copy(mut client: TcpStream, server: TcpStream, member: &Arc<Member>) {
    prepare(&server);
    let open = member.begin();
    let answered = AtomicBool::new(false);
    let mut server = Watched { server, answered: &answered };
    let ended = {
        let mut copying = pin!(copy_bidirectional(&mut client, &mut server));
        tokio::select! {
            ended = copying.as_mut() => ended,
            () = sleep(SILENT_AFTER) => {
                if !answered.load(Ordering::Relaxed) {
                    member.suspect.notify_one();
                }
                copying.await
            }
        }
    };
    if ended.is_err() && !answered.load(Ordering::Relaxed) {
        member.suspect.notify_one();
    }
    open.end(if ended.is_ok() { Outcome::Closed } else { Outcome::Reset });
}

/// Options of both sockets. Without them the connection works, too.
fn prepare(stream: &TcpStream) {
    let keep_alive =
        TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_INTERVAL);
    let kept = SockRef::from(stream).set_tcp_keepalive(&keep_alive);
    if let Err(error) = stream.set_nodelay(true).and(kept) {
        tracing::debug!(%error, "cannot set socket options");
    }
}

/// The connection of a member, which notes whether the member has sent anything.
struct Watched<'a> {
    server: TcpStream,
    answered: &'a AtomicBool,
}

impl AsyncRead for Watched<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.server).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.answered.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.server).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
