//! The clock of the proxy. `mvp-core` takes time as an argument; this is where it comes from.

use mvp_core::Timestamp;
use tokio::time::Instant;

/// A monotonic clock. It is paused together with tokio's in tests.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a clock.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time since the start.
    pub fn now(&self) -> Timestamp {
        Timestamp::after_start(self.0.elapsed())
    }
}
