//! The retry budget: when many requests fail, their retries must not overload the servers that are
//! left. Entry item: [`Budget`].

use std::sync::atomic::{AtomicU64, Ordering};

use mvp_core::Timestamp;

/// The cost of a retry. The budget is counted in thousandths of a retry.
const RETRY: u64 = 1000;
const PER_REQUEST: u64 = 200;
const PER_MILLISECOND: u64 = 10;
const INITIAL: u64 = 100 * RETRY;
const MAX: u64 = 500 * RETRY;

/// A token bucket of retries, one for each worker. Each request adds a fifth of a retry. Time adds
/// ten retries a second, so that low traffic is never refused a retry.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    /// The time up to which retries were added, in milliseconds.
    refilled: AtomicU64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: AtomicU64::new(INITIAL), refilled: AtomicU64::new(0) }
    }
}

impl Budget {
    /// Notes a request of any kind. Usually the bucket is full, and this writes nothing.
    pub(crate) fn request(&self) {
        if self.left.load(Ordering::Relaxed) < MAX {
            self.left.fetch_add(PER_REQUEST, Ordering::Relaxed);
        }
    }

    /// Takes a retry, if there is one.
    pub(crate) fn take(&self, now: Timestamp) -> bool {
        let now = u64::try_from(now.since(Timestamp::default()).as_millis()).unwrap_or(u64::MAX);
        let since = now.saturating_sub(self.refilled.fetch_max(now, Ordering::Relaxed));
        let earned = since.saturating_mul(PER_MILLISECOND);
        let take = |left: u64| left.saturating_add(earned).min(MAX).checked_sub(RETRY);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.left.fetch_add(earned, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_millis(milliseconds))
    }

    fn taken(budget: &Budget, now: Timestamp, of: u64) -> u64 {
        (0..of).filter(|_| budget.take(now)).count() as u64
    }

    #[test]
    fn a_fifth_of_the_requests_may_be_retried() {
        let budget = Budget::default();
        taken(&budget, at(0), 10_000);
        for _ in 0..1000 {
            budget.request();
        }
        assert_eq!(taken(&budget, at(0), 10_000), 200);
    }

    #[test]
    fn ten_retries_a_second_are_allowed_at_any_traffic() {
        let budget = Budget::default();
        taken(&budget, at(0), 10_000);
        assert!(!budget.take(at(0)));
        // Intervals that are too short for a whole retry add up.
        let got: u64 = (1..=1000).map(|now| taken(&budget, at(now), 10)).sum();
        assert_eq!(got, 10);
        assert_eq!(taken(&budget, at(2000), 10_000), 10);
    }

    #[test]
    fn unused_budget_is_bounded() {
        let budget = Budget::default();
        for _ in 0..1_000_000 {
            budget.request();
        }
        assert_eq!(taken(&budget, at(1_000_000), 10_000), 500);
    }
}
