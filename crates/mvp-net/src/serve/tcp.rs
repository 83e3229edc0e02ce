//! Accepts connections without looking into them, and drains. Entry: [`serve_tcp`].

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::accept::Acceptor;
use super::{Drained, LAST_CALL, report};
use crate::ConnectionLimit;

/// Accepts connections until `shutdown`, and runs each on its own task; then drains and returns.
///
/// `begin` returns the future that serves a connection, or `None` to refuse it. No error of the system
/// stops the listener or makes it spin. The drain accepts connections whose handshake has begun, closes
/// the listener, and waits for the connections that are open. Those that are left after `grace` are
/// cut: their futures are dropped.
pub async fn serve_tcp<B, C>(
    listener: TcpListener,
    grace: Duration,
    shutdown: CancellationToken,
    begin: B,
) -> Drained
where
    B: Fn(TcpStream, SocketAddr) -> Option<C>,
    C: Future<Output = ()> + Send + 'static,
{
    let mut acceptor = Acceptor::new(listener, ConnectionLimit::default());
    let mut connections = JoinSet::new();
    let begin = |connections: &mut JoinSet<()>, (stream, remote): (TcpStream, SocketAddr)| {
        match begin(stream, remote) {
            Some(connection) => drop(connections.spawn(connection)),
            None => {
                tracing::debug!(client = %remote, reason = "connection-limit", "connection refused");
            }
        }
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
            accepted = acceptor.accept() => begin(&mut connections, accepted),
        }
    }
    acceptor.turn_away();
    let mut last_call = pin!(sleep(LAST_CALL));
    loop {
        tokio::select! {
            accepted = acceptor.accept() => begin(&mut connections, accepted),
            () = last_call.as_mut() => break,
        }
    }
    for accepted in acceptor.last() {
        begin(&mut connections, accepted);
    }
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(grace, all_ended).await.is_ok() {
        return Drained { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    tracing::warn!(connections = cut, "grace period over, busy connections cut");
    Drained { cut }
}
