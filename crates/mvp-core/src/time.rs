//! Time as an argument: the core has no clock.

use std::time::Duration;

/// A point in time on the caller's monotonic clock, as the duration since a fixed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The time at this duration after the start of the clock.
    pub const fn after_start(elapsed: Duration) -> Timestamp {
        Timestamp(elapsed)
    }

    /// The time at this duration after this one.
    #[must_use]
    pub fn after(self, wait: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(wait))
    }

    /// The duration since an earlier time; zero if that time is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
