//! Requests in a second between members, from counts at different times. Entry: [`Rates`].

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::report::{FlowEdge, MAX_EDGES};

/// The time over which rates are averaged.
const WINDOW: Duration = Duration::from_secs(5);
/// The most edges that are shown: those with the most requests.
const SHOWN: usize = 60;

type Key = (String, String, String, String);
type Counts = HashMap<Key, (u64, u64)>;

/// The counts of one gateway at the last few moments.
#[derive(Debug, Default)]
pub(super) struct Rates(VecDeque<(Instant, Counts)>);

impl Rates {
    /// Notes the counts now.
    pub(super) fn observe(&mut self, now: Instant, edges: &[FlowEdge]) {
        // The oldest that is kept is at least as old as the window.
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.0.pop_front();
        }
        let counts = edges.iter().map(|edge| (edge.key(), (edge.requests, edge.errors)));
        self.0.push_back((now, counts.collect()));
    }

    /// The edges from this gateway with requests in the window, the busiest first.
    pub(super) fn edges(&self, from: &str) -> Vec<Value> {
        let (Some((begin, before)), Some((end, after))) = (self.0.front(), self.0.back()) else {
            return Vec::new();
        };
        let seconds = end.duration_since(*begin).as_secs_f64();
        if seconds < 0.1 {
            return Vec::new();
        }
        let mut edges: Vec<(&Key, f64, f64)> = after
            .iter()
            .filter_map(|(key, (requests, errors))| {
                // One that was cut off from a full list had requests before, too: nobody knows how many.
                let unknown = if before.len() < MAX_EDGES { (0, 0) } else { (*requests, *errors) };
                let (old, old_errors) = before.get(key).copied().unwrap_or(unknown);
                let requests = requests.saturating_sub(old);
                let rate = |count: u64| rounded(count, seconds);
                let errors = errors.saturating_sub(old_errors);
                (requests > 0).then(|| (key, rate(requests), rate(errors)))
            })
            .collect();
        edges.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        edges.truncate(SHOWN);
        let edge = |((member, group, version, resource), rate, errors): (&Key, f64, f64)| {
            json!({
                "from": from, "to": member, "group": group, "version": version,
                "resource": resource, "rate": rate, "errors": errors,
            })
        };
        edges.into_iter().map(edge).collect()
    }
}

/// Two significant digits: a rate that hardly changes is not sent again.
#[allow(clippy::cast_precision_loss, reason = "it is shown with two digits")]
fn rounded(count: u64, seconds: f64) -> f64 {
    let rate = count as f64 / seconds;
    if rate <= 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powf(rate.log10().floor() - 1.0);
    let rounded = (rate / unit).round() * unit;
    (rounded * 100.0).round() / 100.0
}

impl FlowEdge {
    fn key(&self) -> Key {
        let FlowEdge { member, group, version, resource, .. } = self;
        (member.clone(), group.clone(), version.clone(), resource.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(member: &str, requests: u64, errors: u64) -> FlowEdge {
        let text = str::to_owned;
        FlowEdge {
            member: text(member),
            group: text("batch"),
            version: text("v1"),
            resource: text("jobs"),
            requests,
            errors,
        }
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rates = Rates::default();
        rates.observe(at(0), &[edge("b", 1000, 0)]);
        assert!(rates.edges("a").is_empty());
        for second in 1..=20 {
            rates.observe(at(second), &[edge("b", 1000 + 7 * second, second), edge("c", 5, 0)]);
        }
        let edges = rates.edges("a");
        assert_eq!(edges.len(), 1, "c had its requests long ago: {edges:?}");
        assert_eq!((&edges[0]["from"], &edges[0]["to"]), (&json!("a"), &json!("b")));
        assert_eq!((&edges[0]["rate"], &edges[0]["errors"]), (&json!(7.0), &json!(1.0)));
        assert!(rates.0.len() <= 7, "{}", rates.0.len());
    }

    #[test]
    fn what_enters_a_full_list_does_not_count_its_whole_life() {
        for (length, shown) in [(MAX_EDGES - 1, 1), (MAX_EDGES, 0)] {
            let start = Instant::now();
            let others = (0..length).map(|number| edge(&format!("m-{number}"), 1000, 0));
            let mut edges: Vec<FlowEdge> = others.collect();
            let mut rates = Rates::default();
            rates.observe(start, &edges);
            edges.truncate(MAX_EDGES - 1);
            edges.push(edge("new", 1001, 0));
            rates.observe(start + Duration::from_secs(1), &edges);
            assert_eq!(rates.edges("a").len(), shown, "{length}");
        }
    }

    #[test]
    fn two_digits_are_told() {
        assert_eq!(rounded(1234, 1.0), 1200.0);
        assert_eq!(rounded(1, 3.0), 0.33);
        assert_eq!(rounded(0, 1.0), 0.0);
    }
}
