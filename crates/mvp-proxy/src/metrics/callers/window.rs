//! The number of requests in the last hour, in slots of five minutes. Entry item: [`Window`].

use std::time::Duration;

use mvp_core::Timestamp;

/// How long a caller is recorded after its last request.
pub(crate) const RECORDED_FOR: Duration = Duration::from_secs(3600);

const SLOT: Duration = Duration::from_secs(300);
/// One more than fit into [`RECORDED_FOR`]: the current slot has only begun. So a sum covers 60 to
/// 65 minutes, and never lacks a request of a caller that is not expired.
const SLOTS: u64 = RECORDED_FOR.as_secs() / SLOT.as_secs() + 1;

/// The slot of a time.
pub(super) fn slot(at: Timestamp) -> u64 {
    at.since(Timestamp::default()).as_secs() / SLOT.as_secs()
}

/// Counts requests, and forgets those of past slots.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    latest: u64,
    counts: [u32; SLOTS as usize],
}

impl Window {
    /// Counts a request.
    pub(super) fn add(&mut self, at: Timestamp) {
        self.advance(slot(at));
        let place = (self.latest % SLOTS) as usize;
        if let Some(count) = self.counts.get_mut(place) {
            *count = count.saturating_add(1);
        }
    }

    /// The number of requests until now.
    pub(super) fn sum(mut self, now: Timestamp) -> u64 {
        self.advance(slot(now));
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Moves on to a slot. One that has just ended on another thread counts for the latest.
    fn advance(&mut self, slot: u64) {
        if slot <= self.latest {
            return;
        }
        for ended in self.latest.saturating_add(1).max(slot.saturating_sub(SLOTS - 1))..=slot {
            if let Some(count) = self.counts.get_mut((ended % SLOTS) as usize) {
                *count = 0;
            }
        }
        self.latest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn requests_count_for_an_hour() {
        let mut window = Window::default();
        window.add(at(1));
        window.add(at(4));
        window.add(at(31));
        assert_eq!(window.sum(at(31)), 3);
        assert_eq!(window.sum(at(61)), 3, "up to five minutes longer");
        assert_eq!(window.sum(at(65)), 1);
        assert_eq!(window.sum(at(94)), 1);
        assert_eq!(window.sum(at(96)), 0);
        assert_eq!(window.sum(at(100_000)), 0);
        window.add(at(100_000));
        assert_eq!(window.sum(at(100_000)), 1);
    }

    #[test]
    fn a_time_that_another_thread_has_passed_is_counted() {
        let mut window = Window::default();
        window.add(at(10));
        window.add(at(9));
        assert_eq!(window.sum(at(9)), 2);
        assert_eq!(window.sum(at(70)), 2);
    }
}
