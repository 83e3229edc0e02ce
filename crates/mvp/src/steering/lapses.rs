//! Times in which new connections reached the server itself because a thread of this process was late.
//! Entry: [`Lapses`].
//!
//! A thread that gets no CPU cannot tell before it runs again. So a lapse is noted when it is over.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mvp_steer::BEAT_LIMIT;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;

/// How long a host counts as short of CPU time after a thread was late.
const SHORTAGE: Duration = Duration::from_secs(60);
/// A thread that did not run for longer than this does not lack CPU time: it hung, or was stopped.
const HUNG: Duration = Duration::from_millis(1_250);

/// The shortest time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// All lapses since the start. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lapses(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    count: u64,
    time: Duration,
    /// The end of the last lapse.
    end: Option<Instant>,
    /// The last time that a thread ran late for want of CPU time, whether a beat expired or not.
    starved: Option<Instant>,
    /// When the last log line was written.
    logged: Option<Instant>,
    /// Late threads since then without a line.
    suppressed: u64,
}

impl Lapses {
    /// Notes that a thread was late by this much until now. Threads that are late at the same time are
    /// one lapse.
    pub(super) fn note(&self, thread: &str, late: Duration, now: Instant) {
        let suppressed = {
            let mut noted = self.noted();
            noted.add(late, now);
            noted.may_log(now)
        };
        let Some(suppressed) = suppressed else { return };
        let suppressed = (suppressed > 0).then_some(suppressed);
        tracing::warn!(thread, seconds = late.as_secs_f64(), suppressed, "steering lapsed");
    }

    /// The number of lapses since the start.
    pub(super) fn count(&self) -> u64 {
        self.noted().count
    }

    /// The time since the last lapse.
    pub(super) fn last(&self, now: Instant) -> Option<Duration> {
        self.noted().end.map(|end| now.saturating_duration_since(end))
    }

    /// Notes that a thread beats again, so long after it beat before.
    pub(super) fn note_gap(&self, gap: Duration, now: Instant) {
        if gap > BEAT_LIMIT && gap < HUNG {
            let mut noted = self.noted();
            noted.starved = noted.starved.max(Some(now));
        }
    }

    /// Whether threads lacked CPU time lately, so that they must be expected to be late again.
    pub(super) fn are_likely(&self, now: Instant) -> bool {
        let starved = self.noted().starved;
        starved.is_some_and(|end| now.saturating_duration_since(end) < SHORTAGE)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn add(&mut self, late: Duration, now: Instant) {
        let since_last = self.end.map(|end| now.saturating_duration_since(end));
        match since_last {
            Some(since_last) if since_last <= late => self.time += since_last,
            _ => {
                self.count += 1;
                self.time += late;
            }
        }
        self.end = self.end.max(Some(now));
    }

    /// Whether a line may be written now: then with the number of those that were not.
    fn may_log(&mut self, now: Instant) -> Option<u64> {
        let lately = |logged: Instant| now.saturating_duration_since(logged) < LOG_INTERVAL;
        if self.logged.is_some_and(lately) {
            self.suppressed += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Collector for Lapses {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (count, time) = {
            let noted = self.noted();
            (noted.count, noted.time)
        };
        let (name, help) = (
            "mvp_steering_lapses",
            "Times in which new connections reached the server itself because a thread was late",
        );
        let count = ConstCounter::new(count);
        count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        let (name, help) = ("mvp_steering_lapse_seconds", "Duration of these times, in seconds");
        let time = ConstCounter::new(time.as_secs_f64());
        time.encode(encoder.encode_descriptor(name, help, None, time.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(lapses: &Lapses) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(lapses.clone()));
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn threads_that_are_late_together_are_one_lapse() {
        let (lapses, start) = (Lapses::default(), Instant::now());
        assert_eq!(lapses.last(start), None);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let note = |thread: &str, late, now| {
            lapses.note(thread, Duration::from_millis(late), at(now));
        };
        // From 1.0 to 2.0 s, from 1.2 to 2.5 s, from 1.1 to 1.9 s.
        note("worker-0", 1_000, 2_000);
        note("worker-1", 1_300, 2_500);
        note("control", 800, 1_900);
        assert_eq!(lapses.count(), 1);
        // From 3.0 to 3.5 s.
        note("control", 500, 3_500);
        let text = text(&lapses);
        assert!(text.contains("\nmvp_steering_lapses_total 2\n"), "{text}");
        assert!(text.contains("\nmvp_steering_lapse_seconds_total 2.0\n"), "{text}");
        assert_eq!(lapses.last(at(4_000)), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_thread_that_runs_late_makes_lapses_likely_for_a_minute() {
        let (lapses, start) = (Lapses::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!lapses.are_likely(start));
        lapses.note_gap(Duration::from_secs(5), at(10));
        assert!(!lapses.are_likely(at(10)), "it was stopped");
        lapses.note_gap(BEAT_LIMIT, at(15));
        assert!(!lapses.are_likely(at(15)), "in time");
        lapses.note_gap(Duration::from_millis(300), at(20));
        assert!(lapses.are_likely(at(20)) && lapses.are_likely(at(79)));
        assert!(!lapses.are_likely(at(80)));
    }

    #[test]
    fn the_log_has_a_line_every_ten_seconds_at_most() {
        let (mut noted, start) = (Noted::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let lines = [0, 1, 9, 10, 11, 30].map(|second| noted.may_log(at(second)));
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
