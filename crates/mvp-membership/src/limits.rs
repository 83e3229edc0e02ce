//! Time limits that several sources share, each defined once.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a member gives a sign of life.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A member without a heartbeat for this long may be gone.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(3 * HEARTBEAT.as_secs());
/// The lifetime of our etcd lease without a renewal, the same as kube-apiserver's own.
pub(crate) const ETCD_LEASE: Duration = Duration::from_secs(15);
/// The shortest time between two repairs of an announcement that somebody changes or deletes.
pub(crate) const REPAIR_INTERVAL: Duration = Duration::from_millis(500);
/// The time limit for withdrawing an announcement at shutdown.
pub(crate) const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

const SHORTEST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The delay between attempts: doubled each time, and short again after an attempt that lasted.
#[derive(Debug)]
pub(crate) struct Backoff {
    delay: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { delay: SHORTEST_DELAY }
    }
}

impl Backoff {
    /// Waits after an attempt that began at this time.
    pub(crate) async fn wait(&mut self, begun: Instant) {
        if begun.elapsed() > LONGEST_DELAY {
            self.delay = SHORTEST_DELAY;
        }
        sleep(self.delay).await;
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }
}
