//! Counts over the last hour, and recent refusals, from the counters of reports. Entry: [`History`].
//!
//! Nothing is recorded on the request path: this compares counters at different times. Everything is
//! bounded.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use crate::report::Status;
use crate::report::advice;

/// The seconds of one bar, and the number of bars.
const BAR: u64 = 60;
const BARS: u64 = 60;
/// The most recent refusals that are kept. Those of one reason within ten seconds are one.
const RECENT: usize = 20;
const TOGETHER: u64 = 10;

/// What happened in the last hour.
#[derive(Debug, Default)]
pub(super) struct History {
    averted: Series,
    refused: Series,
    /// The counters of the last report; none before the first.
    last: Option<Totals>,
    recent: VecDeque<Refusals>,
}

#[derive(Debug)]
struct Totals {
    averted: u64,
    refusals: BTreeMap<String, u64>,
}

/// Refusals for one reason at nearly the same time.
#[derive(Debug)]
struct Refusals {
    /// Unix time in seconds.
    at: u64,
    reason: String,
    count: u64,
}

impl History {
    /// Notes the counters of a report. `now` is Unix time in seconds.
    pub(super) fn observe(&mut self, now: u64, status: &Status) {
        let counts = status.refusals.iter().map(|count| (count.name.clone(), count.count));
        let totals = Totals {
            averted: status.averted.total.unwrap_or_default(),
            refusals: counts.collect(),
        };
        let Some(last) = self.last.replace(totals) else { return };
        let Some(totals) = &self.last else { return };
        // A counter that began again, as in a demo whose server restarts, is no event.
        self.averted.add(now, totals.averted.saturating_sub(last.averted));
        for (reason, count) in &totals.refusals {
            let more = count.saturating_sub(last.refusals.get(reason).copied().unwrap_or_default());
            if more == 0 {
                continue;
            }
            self.refused.add(now, more);
            let known = self
                .recent
                .iter_mut()
                .find(|one| one.reason == *reason && now.saturating_sub(one.at) < TOGETHER);
            match known {
                Some(known) => known.count = known.count.saturating_add(more),
                None => {
                    self.recent.push_front(Refusals {
                        at: now,
                        reason: reason.clone(),
                        count: more,
                    });
                    self.recent.truncate(RECENT);
                }
            }
        }
    }

    /// False 404s that were averted in the last hour, minute by minute.
    pub(super) fn averted(&self, now: u64) -> Value {
        self.averted.json(now)
    }

    /// Refusals in the last hour, minute by minute, and the recent ones.
    pub(super) fn refused(&self, now: u64) -> (Value, Value) {
        let recent = self.recent.iter().map(|one| {
            let Refusals { at, reason, count } = one;
            json!({ "at": at, "reason": reason, "count": count, "advice": advice::named(reason) })
        });
        (self.refused.json(now), recent.collect())
    }
}

/// Counts by minute.
#[derive(Debug, Default)]
struct Series(BTreeMap<u64, u64>);

impl Series {
    fn add(&mut self, now: u64, count: u64) {
        if count > 0 {
            let bar = self.0.entry(now / BAR).or_default();
            *bar = bar.saturating_add(count);
        }
        let first = (now / BAR).saturating_sub(BARS);
        self.0.retain(|bar, _| *bar > first);
    }

    /// The bars of the last hour, the newest last; empty if nothing happened, so that an idle page gets
    /// no new bars.
    fn json(&self, now: u64) -> Value {
        let now = now / BAR;
        let first = now.saturating_sub(BARS - 1);
        if self.0.range(first..).next().is_none() {
            return json!([]);
        }
        (first..=now).map(|bar| self.0.get(&bar).copied().unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Averted, Count};

    fn report(averted: u64, refused: &[(&str, u64)]) -> Status {
        let count = |(name, count): &(&str, u64)| Count { name: (*name).to_owned(), count: *count };
        Status {
            averted: Averted { total: Some(averted), apis: Vec::new() },
            refusals: refused.iter().map(count).collect(),
            ..Status::default()
        }
    }

    #[test]
    fn what_was_counted_before_the_first_report_is_no_event() {
        let mut history = History::default();
        history.observe(6000, &report(7, &[("unconfirmed", 3)]));
        assert_eq!(history.averted(6000), json!([]));
        assert_eq!(history.refused(6000), (json!([]), json!([])));
    }

    #[test]
    fn events_have_a_minute_a_reason_and_advice() {
        let mut history = History::default();
        history.observe(6000, &report(0, &[]));
        history.observe(6001, &report(2, &[("unconfirmed", 3)]));
        history.observe(6005, &report(2, &[("unconfirmed", 4)]));
        history.observe(6060, &report(5, &[("unconfirmed", 4), ("starting", 1)]));
        // The process began again.
        history.observe(6061, &report(0, &[]));
        let bars = history.averted(6061);
        let last: Vec<u64> = bars.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!((last.len(), &last[58..]), (60, &[2, 3][..]));
        let (bars, recent) = history.refused(6061);
        assert_eq!(bars.as_array().unwrap()[58..], [json!(4), json!(1)]);
        let found: Vec<_> = recent.as_array().unwrap().iter().map(|one| &one["reason"]).collect();
        assert_eq!(found, ["starting", "unconfirmed"]);
        assert_eq!(recent[1]["count"], 4);
        assert!(recent[1]["advice"].as_str().unwrap().contains("/readyz?verbose"), "{recent}");
        assert_eq!(history.averted(6061 + 3600 + 60), json!([]), "an hour later");
    }

    #[test]
    fn it_does_not_grow() {
        let mut history = History::default();
        for second in 0..20_000 {
            history.observe(second * 11, &report(second, &[("unconfirmed", second)]));
        }
        assert_eq!((history.averted.0.len(), history.recent.len()), (60, RECENT));
    }
}
