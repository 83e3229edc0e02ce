//! For how long 404s wait for members that never answered, all of them together. Entry item:
//! [`WaitBudget`].

use std::time::Duration;

use mvp_core::Timestamp;

/// The budget recovers this many times more slowly than it is spent.
const RECOVERY: u32 = 12;

/// The time for which 404s may still wait for unverified members.
///
/// All of them share the budget of one: announcing a new member every minute gains nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitBudget {
    total: Duration,
    spent: Duration,
    updated: Timestamp,
    exhausted: bool,
}

impl WaitBudget {
    pub(super) fn new(total: Duration) -> WaitBudget {
        WaitBudget { total, spent: Duration::ZERO, updated: Timestamp::default(), exhausted: false }
    }

    /// The whole budget: also the longest wait for a single member.
    pub(super) fn total(&self) -> Duration {
        self.total
    }

    /// Spends the time since the last call if a wait is under way, else recovers. Returns whether
    /// the budget runs out in this call.
    pub(super) fn spend(&mut self, is_waiting: bool, now: Timestamp) -> bool {
        let passed = now.since(self.updated);
        self.updated = now;
        self.spent = match is_waiting {
            true => self.spent.saturating_add(passed).min(self.total),
            false => self.spent.saturating_sub(passed / RECOVERY),
        };
        if !self.exhausted && self.spent >= self.total {
            self.exhausted = true;
            return true;
        }
        // Half of it must be back, or waiting would start and stop all the time.
        if self.exhausted && self.spent <= self.total / 2 {
            self.exhausted = false;
        }
        false
    }

    /// The time that is spent, and when it was updated.
    #[cfg(test)]
    pub(super) fn spent(&self) -> (Duration, Timestamp) {
        (self.spent, self.updated)
    }

    /// Whether 404s wait no longer.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_recovers_slowly() {
        let at = |seconds| Timestamp::after_start(Duration::from_secs(seconds));
        let mut budget = WaitBudget::new(Duration::from_secs(300));
        let mut waits = |is_waiting, second| {
            budget.spend(is_waiting, at(second));
            !budget.is_exhausted()
        };
        for second in 0..300 {
            assert!(waits(true, second), "{second}");
        }
        for second in 300..9000 {
            assert!(!waits(true, second), "{second}");
        }
        // Half of it is back after half an hour without any.
        for second in 9000..10_799 {
            assert!(!waits(false, second), "{second}");
        }
        assert!(waits(false, 10_800));
        for second in 10_801..10_950 {
            assert!(waits(true, second), "{second}");
        }
        assert!(!waits(true, 10_951));
    }

    #[test]
    fn exhaustion_is_reported_once() {
        let at = |seconds| Timestamp::after_start(Duration::from_secs(seconds));
        let mut budget = WaitBudget::new(Duration::from_secs(10));
        let reported = (0..100).filter(|second| budget.spend(true, at(*second))).count();
        assert_eq!(reported, 1);
    }
}
