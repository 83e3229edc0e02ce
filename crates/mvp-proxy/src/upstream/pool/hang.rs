//! Ends an HTTP/2 connection whose server hangs. Entry item: [`end_if_hung`].
//!
//! hyper can end a connection whose PING is unanswered. But it looks at one connection alone, and at
//! its timer before its socket: a server that is slow because it is busy, or a gateway that did not
//! run for a moment, would end every watch. So a server counts as hung only if it sends nothing on
//! any connection of this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::upstream::pulse::Beat;

/// How often a connection is checked.
const INTERVAL: Duration = Duration::from_millis(500);
/// So many checks in a row find a hung server silent: for three seconds, of which it had two to answer
/// a PING. Checks are counted and not seconds: a pause of this process is not the server's silence.
const SILENT_CHECKS: usize = 6;

/// Spawns hyper's tasks of one connection, and can end the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Spawn {
    /// The task that reads and writes. hyper spawns it first.
    connection: Arc<OnceLock<AbortHandle>>,
}

impl<F> Executor<F> for Spawn
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        let handle = tokio::spawn(task);
        self.connection.get_or_init(|| handle.abort_handle());
    }
}

/// Checks a connection until it has ended, and ends it if its server hangs while it has `streams`.
pub(super) fn end_if_hung(spawn: Spawn, address: Arc<str>, beat: Beat, streams: Weak<AtomicUsize>) {
    let Some(connection) = spawn.connection.get().cloned() else { return };
    tokio::spawn(async move {
        let (mut heard, mut silent_checks) = (beat.heard(), 0);
        while silent_checks < SILENT_CHECKS {
            sleep(INTERVAL).await;
            let Some(streams) = streams.upgrade() else { return };
            if connection.is_finished() {
                return;
            }
            let now = beat.heard();
            // Without streams there are no PINGs.
            let silent = now == heard && streams.load(Ordering::Relaxed) > 0;
            silent_checks = if silent { silent_checks + 1 } else { 0 };
            heard = now;
        }
        tracing::debug!(%address, "server is silent; its connection ends");
        connection.abort();
    });
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;
    use crate::upstream::pulse::Pulses;

    /// A connection that is checked, with this many streams.
    fn checked(pulses: &Pulses, streams: usize) -> (Arc<AtomicUsize>, AbortHandle) {
        let (spawn, streams) = (Spawn::default(), Arc::new(AtomicUsize::new(streams)));
        spawn.execute(std::future::pending::<()>());
        let connection = spawn.connection.get().cloned().unwrap();
        let (address, weak) = ("server:1".into(), Arc::downgrade(&streams));
        let beat = pulses.beat(&address);
        end_if_hung(spawn, address, beat, weak);
        (streams, connection)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_loses_connections_with_streams_after_three_seconds() {
        let pulses = Pulses::default();
        let (_streams, with_streams) = checked(&pulses, 1);
        let (_none, idle) = checked(&pulses, 0);
        let began = Instant::now();
        while !with_streams.is_finished() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(began.elapsed().as_secs(), 3);
        assert!(!idle.is_finished(), "no PING was sent there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_responds_elsewhere_is_busy_and_does_not_hang() {
        let pulses = Pulses::default();
        let (_streams, connection) = checked(&pulses, 1);
        let (mut server, client) = tokio::io::duplex(64);
        let mut client = pulses.beat(&"server:1".into()).count(client);
        for _ in 0..30 {
            sleep(Duration::from_secs(2)).await;
            server.write_all(b"x").await.unwrap();
            client.read_exact(&mut [0]).await.unwrap();
            assert!(!connection.is_finished());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_this_process_ends_no_connection() {
        let pulses = Pulses::default();
        let (_streams, connection) = checked(&pulses, 1);
        let mut pauses = 0;
        while !connection.is_finished() {
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
