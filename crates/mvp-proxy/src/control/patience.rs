//! How long all together who never answered may hold answers up. Entry item: [`Patience`].

use std::time::Duration;

use mvp_core::Timestamp;

/// What a single one may take, all of them may: who names a new member every minute gains nothing.
const LASTS: Duration = Duration::from_secs(300);
/// What was used comes back so many times more slowly.
const RECOVERY: u32 = 12;

/// What is left of our patience with strangers.
#[derive(Debug)]
pub(super) struct Patience {
    /// How long it lasts.
    pub(super) lasts: Duration,
    used: Duration,
    at: Timestamp,
    exhausted: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { lasts: LASTS, used: Duration::ZERO, at: Timestamp::default(), exhausted: false }
    }
}

impl Patience {
    /// Whether strangers are waited for, `any` of which are there. It is back when half of it is.
    pub(super) fn wait(&mut self, any: bool, now: Timestamp) -> bool {
        let passed = now.since(self.at);
        self.at = now;
        self.used = match any {
            true => self.used.saturating_add(passed).min(self.lasts),
            false => self.used.saturating_sub(passed / RECOVERY),
        };
        if !self.exhausted && self.used >= self.lasts {
            self.exhausted = true;
            tracing::warn!(
                seconds = self.lasts.as_secs(),
                "members that never answered were waited for long enough: whatever no other member \
                 serves is 404 from now on; see who makes Leases in kube-system"
            );
        } else if self.exhausted && self.used <= self.lasts / 2 {
            self.exhausted = false;
        }
        !self.exhausted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up_by_all_together_and_comes_back_slowly() {
        let at = |seconds| Timestamp::after_start(Duration::from_secs(seconds));
        let mut patience = Patience::default();
        for second in 0..300 {
            assert!(patience.wait(true, at(second)), "{second}");
        }
        for second in 300..9000 {
            assert!(!patience.wait(true, at(second)), "{second}");
        }
        // Half of it is back after half an hour without any.
        for second in 9000..10_799 {
            assert!(!patience.wait(false, at(second)), "{second}");
        }
        assert!(patience.wait(false, at(10_800)));
        for second in 10_801..10_950 {
            assert!(patience.wait(true, at(second)), "{second}");
        }
        assert!(!patience.wait(true, at(10_951)));
    }
}
