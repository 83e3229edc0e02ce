//! The retry budget: when much fails, trying again must not be the load that breaks the rest. Entry
//! item: [`Budget`].

use std::sync::atomic::{AtomicU64, Ordering};

use mvp_core::Timestamp;

/// In thousandths of a failover: what each request adds, what each millisecond adds, what a
/// failover costs, what there is at first, and the most that there can be.
const A_REQUEST: u64 = 200;
const A_MILLISECOND: u64 = 10;
const A_FAILOVER: u64 = 1000;
const FIRST: u64 = 100 * A_FAILOVER;
const MOST: u64 = 500 * A_FAILOVER;

/// A bucket of failovers: a fifth of all requests fills it, and ten a second do, so that where
/// there is little traffic nothing is refused. One for each worker.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    /// Until when time was counted, in milliseconds.
    counted: AtomicU64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: AtomicU64::new(FIRST), counted: AtomicU64::new(0) }
    }
}

impl Budget {
    /// A request came, whoever will serve it. Mostly the bucket is full, and nothing is written.
    pub(crate) fn request(&self) {
        if self.left.load(Ordering::Relaxed) < MOST {
            self.left.fetch_add(A_REQUEST, Ordering::Relaxed);
        }
    }

    /// Takes a failover out, if there is one.
    pub(crate) fn take(&self, now: Timestamp) -> bool {
        let now = u64::try_from(now.since(Timestamp::default()).as_millis()).unwrap_or(u64::MAX);
        let since = now.saturating_sub(self.counted.fetch_max(now, Ordering::Relaxed));
        let earned = since.saturating_mul(A_MILLISECOND);
        let take = |left: u64| left.saturating_add(earned).min(MOST).checked_sub(A_FAILOVER);
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
    fn a_fifth_of_the_requests_may_fail_over() {
        let budget = Budget::default();
        taken(&budget, at(0), 10_000);
        for _ in 0..1000 {
            budget.request();
        }
        assert_eq!(taken(&budget, at(0), 10_000), 200);
    }

    #[test]
    fn ten_a_second_may_fail_over_whatever_the_traffic() {
        let budget = Budget::default();
        taken(&budget, at(0), 10_000);
        assert!(!budget.take(at(0)));
        // Time counts also where it comes in pieces that are not enough by themselves.
        let got: u64 = (1..=1000).map(|now| taken(&budget, at(now), 10)).sum();
        assert_eq!(got, 10);
        assert_eq!(taken(&budget, at(2000), 10_000), 10);
    }

    #[test]
    fn what_was_saved_up_is_bounded() {
        let budget = Budget::default();
        for _ in 0..1_000_000 {
            budget.request();
        }
        assert_eq!(taken(&budget, at(1_000_000), 10_000), 500);
    }
}
