//! The signals that ask something of us, heard from the moment this is made.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears signals; without it, each would end the process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end; the name of the signal.
    End(&'static str),
    /// To look at the files again.
    Reload,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Signals> {
        let heard = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            terminate: heard(SignalKind::terminate())?,
            interrupt: heard(SignalKind::interrupt())?,
            hangup: heard(SignalKind::hangup())?,
        })
    }

    /// What the next one asks for.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End("SIGTERM"),
            _ = self.interrupt.recv() => Asked::End("SIGINT"),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
