//! SIGTERM, SIGINT and SIGHUP. Entry: [`Signals`].

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handles signals from its creation on; before that, each of them ends the process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// The meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Shut down; the name of the signal.
    Shutdown(&'static str),
    /// Reload the files.
    Reload,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Shutdown("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Shutdown("SIGINT"),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
