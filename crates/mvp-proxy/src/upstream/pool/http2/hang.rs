//! Ends an HTTP/2 connection whose server hangs. Entry item: [`end_if_hung`].
//!
//! A PING is sent while requests are in flight. An unanswered one says little: a server that is slow
//! because it is busy, or a gateway that did not run for a moment, would end every watch. So a server
//! counts as hung only if it sends nothing on any connection of this process. A connection alone
//! ends after a longer time: the server may have forgotten it.

use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::connection::Connection;
use crate::upstream::connect_error::BUSY;
use crate::upstream::pulse::Beat;

/// How often a connection is checked.
const INTERVAL: Duration = Duration::from_millis(500);
/// So many checks in a row find a hung server silent: for three seconds, of which it had two to answer
/// a PING. Checks are counted and not seconds: a pause of this process is not the server's silence.
const SILENT_CHECKS: usize = 6;
/// A PING is sent at every second check.
const PING_CHECKS: usize = 2;
/// So many checks in a row find a PING unanswered.
const UNANSWERED_CHECKS: usize = (BUSY.as_millis() / INTERVAL.as_millis()) as usize;

/// Checks a connection until it has ended. Ends it if its server hangs while it has streams.
pub(super) async fn end_if_hung(
    task: AbortHandle,
    mut pings: PingPong,
    address: Arc<str>,
    beat: Beat,
    connection: Weak<Connection>,
) {
    let (mut heard, mut silent, mut unanswered) = (beat.heard(), 0, None);
    let mut since_ping = PING_CHECKS;
    while silent < SILENT_CHECKS && unanswered.unwrap_or(0) < UNANSWERED_CHECKS {
        sleep(INTERVAL).await;
        let Some(connection) = connection.upgrade() else { return };
        if task.is_finished() {
            return;
        }
        if pings.poll_pong(&mut Context::from_waker(Waker::noop())).is_ready() {
            unanswered = None;
        }
        let now = beat.heard();
        let has_streams = connection.streams() > 0;
        silent = if now == heard && has_streams { silent + 1 } else { 0 };
        heard = now;
        since_ping += 1;
        unanswered = match unanswered {
            Some(checks) => Some(checks + 1),
            None if has_streams && since_ping >= PING_CHECKS => {
                since_ping = 0;
                pings.send_ping(Ping::opaque()).ok().map(|()| 0)
            }
            None => None,
        };
    }
    tracing::debug!(%address, "server is silent; its connection ends");
    task.abort();
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::super::connection::Stream;
    use super::*;
    use crate::upstream::pulse::Pulses;

    /// A connection that is checked, with this many streams.
    async fn checked(
        pulses: &Pulses,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        streams: usize,
    ) -> (Vec<Stream>, Arc<Connection>) {
        let address: Arc<str> = "server:1".into();
        let beat = pulses.beat(&address);
        let connection = Connection::start(stream, address, beat).await.unwrap();
        ((0..streams).map(|_| Stream::of(&connection)).collect(), connection)
    }

    /// How long the connection lasts.
    async fn lasts(connection: &Connection) -> Duration {
        let began = Instant::now();
        while !connection.is_closed() {
            sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    /// Something is read from the server now and then, on another connection.
    fn heard_elsewhere(pulses: &Pulses) {
        let (mut server, client) = duplex(64);
        let mut client = pulses.beat(&"server:1".into()).count(client);
        tokio::spawn(async move {
            loop {
                server.write_all(b"x").await.unwrap();
                client.read_exact(&mut [0]).await.unwrap();
                sleep(Duration::from_secs(2)).await;
            }
        });
    }

    /// A server that answers PINGs.
    fn answering(stream: DuplexStream) {
        tokio::spawn(async move {
            let mut server = h2::server::handshake(stream).await.unwrap();
            while server.accept().await.is_some() {}
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_loses_connections_with_streams_after_three_seconds() {
        let pulses = Pulses::default();
        let ((one, _server), (other, _other_server)) = (duplex(1 << 10), duplex(1 << 10));
        let (_streams, with_streams) = checked(&pulses, one, 1).await;
        let (_none, idle) = checked(&pulses, other, 0).await;
        assert_eq!(lasts(&with_streams).await.as_secs(), 3);
        sleep(Duration::from_secs(60)).await;
        assert!(!idle.is_closed(), "no PING was sent there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_responds_elsewhere_is_busy_for_a_while() {
        let pulses = Pulses::default();
        heard_elsewhere(&pulses);
        let (stream, _server) = duplex(1 << 10);
        let (_streams, connection) = checked(&pulses, stream, 1).await;
        let lasted = lasts(&connection).await;
        assert!((BUSY..BUSY * 2).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_pings_keeps_its_connection() {
        let pulses = Pulses::default();
        let (stream, server) = duplex(1 << 10);
        answering(server);
        let stream = pulses.beat(&"server:1".into()).count(stream);
        let (_streams, connection) = checked(&pulses, stream, 1).await;
        sleep(Duration::from_secs(600)).await;
        assert!(!connection.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_this_process_ends_no_connection() {
        let pulses = Pulses::default();
        let (stream, _server) = duplex(1 << 10);
        let (_streams, connection) = checked(&pulses, stream, 1).await;
        let mut pauses = 0;
        while !connection.is_closed() {
            pauses += 1;
            assert!(pauses < 100, "it is never checked");
            tokio::time::advance(Duration::from_secs(60)).await;
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        assert!(pauses >= SILENT_CHECKS, "ended after {pauses} pauses");
    }
}
