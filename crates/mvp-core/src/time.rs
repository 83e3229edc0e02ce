//! Time as an argument: the core has no clock.

use std::time::Duration;

/// A moment on the caller's monotonic clock, as the time since some fixed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The moment that long after the clock's start.
    pub const fn after_start(elapsed: Duration) -> Timestamp {
        Timestamp(elapsed)
    }

    /// The moment that long after this one.
    #[must_use]
    pub fn after(self, wait: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(wait))
    }

    /// The time from an earlier moment to this one; nothing where that moment is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
