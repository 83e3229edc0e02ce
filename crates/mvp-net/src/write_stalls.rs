//! How often clients take no more data. Entry: [`WriteStalls`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts how often the connection of a client was full: what follows waits, and its server is not read
/// any further. Clones share the count: use one for all listeners of a process.
#[derive(Clone, Debug, Default)]
pub struct WriteStalls(Arc<AtomicU64>);

impl WriteStalls {
    /// The number so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
