//! How often clients wait for themselves. Entry: [`ClientWaits`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts how often a client connection reached one of its own limits. Clones share the counts: use
/// one for all listeners of a process.
#[derive(Clone, Debug, Default)]
pub struct ClientWaits(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    stalls: AtomicU64,
    full: AtomicU64,
}

impl ClientWaits {
    /// How often a connection took no more data: what follows waits, and its server is not read any
    /// further.
    pub fn stalls(&self) -> u64 {
        self.0.stalls.load(Ordering::Relaxed)
    }

    /// How often an HTTP/2 connection came to have as many streams as it may have: its next request
    /// waits at the client.
    pub fn full(&self) -> u64 {
        self.0.full.load(Ordering::Relaxed)
    }

    pub(crate) fn note_stall(&self) {
        self.0.stalls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_full(&self) {
        self.0.full.fetch_add(1, Ordering::Relaxed);
    }
}
