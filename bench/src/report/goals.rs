//! The performance goals of `mvp`, compared with the measurements. Entry item: [`goals`].

use crate::load::Protocol;
use crate::plan::{WatchCase, large_case, main_case, small_case};
use crate::results::{Ratio, Results, median};
use crate::scenarios::{
    AT_REST, CHANGING, DISCOVERY, EMBEDDED, EMBEDDED_CASE, FULL, HANDSHAKES, KNOWN, KUBE, LATENCY,
    MEMBERS, MEMBERS_CASE, MERGED, NATIVE, PASSED_ON, REQUESTS, RESUMED, WATCHES,
};

/// The floor of our stack.
const BARE: &str = "bare forwarder";

/// One goal.
pub(crate) struct Goal {
    pub(crate) what: String,
    /// The two targets of the ratio, such as `mvp / haproxy`.
    pub(crate) of: String,
    pub(crate) bound: Bound,
    /// None if it was not measured. A goal without a second target has its figure here.
    pub(crate) ratio: Option<Ratio>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// `met`, or by how much it was missed.
    pub(crate) fn verdict(&self) -> String {
        let Some(Ratio { median, .. }) = self.ratio else {
            return "not measured".to_owned();
        };
        // Compared as it is printed: the second decimal is noise.
        let shown = (median * 100.0).round() / 100.0;
        match self.bound {
            Bound::AtMost(most) if shown > most => {
                format!("missed by {:.0} %", (median / most - 1.0) * 100.0)
            }
            Bound::AtLeast(least) if shown < least => {
                format!("missed by {:.0} %", (1.0 - median / least) * 100.0)
            }
            _ => "met".to_owned(),
        }
    }

    pub(crate) fn target(&self) -> String {
        match self.bound {
            Bound::AtMost(most) => format!("≤ {most}"),
            Bound::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// All goals, the most important first.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |what: String, of: &str, bound, ratio| {
        goals.push(Goal { what, of: of.to_owned(), bound, ratio });
    };
    let haproxy = "mvp / haproxy";
    let (peer, local) = (["mvp, peer", "haproxy"], ["mvp, local", "haproxy"]);
    for (kind, targets) in [("proxied", peer), ("local", local)] {
        for protocol in [Protocol::Http2, Protocol::Http1] {
            let case = main_case(protocol).name();
            let ratio = results.ratio(REQUESTS, &case, targets, "cpu_us_per_request");
            let what = format!("CPU a {kind} request, {}", protocol.name());
            add(what.clone(), haproxy, Bound::AtMost(1.0), ratio);
            let bare = [targets[0], BARE];
            let ratio = results.ratio(REQUESTS, &case, bare, "cpu_us_per_request");
            add(what, "mvp / bare forwarder", Bound::AtMost(1.15), ratio);
        }
    }
    for (connections, most) in [(1, 1.1), (1_000, 0.9)] {
        for protocol in [Protocol::Http2, Protocol::Http1] {
            let case = small_case(protocol, connections);
            let ratio = results.ratio(REQUESTS, &case.name(), peer, "cpu_us_per_request");
            // One connection of HTTP/1.1 has no streams to compare.
            if ratio.is_some() && (connections > 1 || case.streams > 1) {
                let what = format!("CPU a proxied request, {}", case.name());
                add(what, haproxy, Bound::AtMost(most), ratio);
            }
        }
    }
    if let Some(case) = results.cases(KUBE).first() {
        let cpu = results.ratio(KUBE, case, ["mvp, peer", NATIVE], "cpu_us_per_request");
        let what = "CPU a proxied request, real kube-apiservers".to_owned();
        add(what, "mvp / Kubernetes' own", Bound::AtMost(0.12), cpu);
        let ratio = results.ratio(KUBE, case, ["mvp, peer", "direct"], "requests_per_second");
        let what = "proxied requests/s, real kube-apiservers".to_owned();
        add(what, "mvp / direct", Bound::AtLeast(0.9), ratio);
    }
    for case in results.cases(LATENCY) {
        let what = format!("added p99 at half load, {case}");
        add(what, haproxy, Bound::AtMost(1.0), added_p99(results, case, peer));
    }
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let case = large_case(protocol).name();
        let ratio = results.ratio(REQUESTS, &case, peer, "body_bytes_per_second");
        if ratio.is_some() {
            let what = format!("100 MB answers, bytes/s, {}", protocol.name());
            add(what, haproxy, Bound::AtLeast(1.0), ratio);
        }
    }
    for case in [FULL, RESUMED] {
        let ratio = results.ratio(HANDSHAKES, case, peer, "connections_per_second");
        let what = format!("new TLS connections/s, {case}");
        add(what, haproxy, Bound::AtLeast(1.5), ratio);
    }
    for (connections, streams, most) in [(1_000, 1, 1.77), (10, 100, 1.0), (100, 100, 1.0)] {
        let case = WatchCase { connections, streams }.name();
        let ratio = results.ratio(WATCHES, &case, peer, "idle_bytes_per_watch");
        if ratio.is_some() {
            let what = format!("memory of an idle watch, {case}");
            add(what, haproxy, Bound::AtMost(most), ratio);
        }
    }
    let known = results.ratio(DISCOVERY, KNOWN, [MERGED, PASSED_ON], "cpu_us_per_request");
    if known.is_some() {
        let what = format!("CPU of merged discovery, {KNOWN}");
        add(what, "merged / passed on", Bound::AtMost(1.3), known);
    }
    let control = results.spread(MEMBERS, MEMBERS_CASE, CHANGING, "control_cpu_percent");
    if control.is_some() {
        let what = format!("% of a core for the control loop, {CHANGING}");
        add(what, "mvp", Bound::AtMost(5.0), control);
    }
    let memory = results.spread(EMBEDDED, EMBEDDED_CASE, AT_REST, "rss_mib");
    if memory.is_some() {
        let what = format!("MiB of memory, {EMBEDDED_CASE}, {AT_REST}");
        add(what, "mvp demo", Bound::AtMost(40.0), memory);
    }
    goals
}

/// Above this share of time, other processes used the proxy's core while it was ready to run.
const MOST_TAKEN: f64 = 0.05;

/// The ratio of the latency that two proxies add to the 99th percentile of a direct request: of the
/// medians, since the tail of a single round is mostly chance, with the range of the rounds. Rounds
/// in which one of the three fell behind, or lost its core to others, are left out.
fn added_p99(results: &Results, case: &str, [one, other]: [&str; 2]) -> Option<Ratio> {
    let ratio = |[one, other, direct]: [f64; 3]| {
        (other > direct).then(|| (one - direct) / (other - direct))
    };
    let p99 = |target: &str, round: usize| {
        let samples = results.of(LATENCY, case, target);
        let figures = &samples.into_iter().find(|sample| sample.round == round)?.figures;
        let of = |name| figures.get(name).copied().unwrap_or_default();
        let undisturbed = of("unanswered") < 1.0 && of("waited_share") < MOST_TAKEN;
        figures.get("p99_us").copied().filter(|_| undisturbed)
    };
    let rounds: Vec<[f64; 3]> = (0..results.rounds)
        .filter_map(|round| Some([p99(one, round)?, p99(other, round)?, p99("direct", round)?]))
        .collect();
    let of = |side: usize| median(rounds.iter().filter_map(|all| all.get(side).copied()).collect());
    let middle = ratio([of(0)?, of(1)?, of(2)?])?;
    let each = || rounds.iter().copied().filter_map(ratio);
    Some(Ratio {
        median: middle,
        least: each().fold(middle, f64::min),
        most: each().fold(middle, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    fn goal(bound: Bound, median: f64) -> Goal {
        let ratio = Some(Ratio { median, least: median, most: median });
        Goal { what: String::new(), of: String::new(), bound, ratio }
    }

    #[test]
    fn a_missed_goal_says_by_how_much() {
        assert_eq!(goal(Bound::AtMost(1.0), 1.2).verdict(), "missed by 20 %");
        assert_eq!(goal(Bound::AtLeast(0.9), 0.45).verdict(), "missed by 50 %");
        assert_eq!(goal(Bound::AtMost(1.0), 1.004).verdict(), "met");
        assert_eq!(goal(Bound::AtLeast(1.0), 1.4).verdict(), "met");
    }

    #[test]
    fn what_the_load_itself_takes_is_not_the_proxies() {
        let sample = |target, p99| (LATENCY, "c", target, 0, p99);
        let results = results(&[
            sample("direct", &[("p99_us", 100.0)][..]),
            sample("mvp, peer", &[("p99_us", 300.0)][..]),
            sample("haproxy", &[("p99_us", 500.0)][..]),
            (LATENCY, "c", "direct", 1, &[("p99_us", 100.0)]),
            (LATENCY, "c", "mvp, peer", 1, &[("p99_us", 100.0)]),
            (LATENCY, "c", "haproxy", 1, &[("p99_us", 9e9), ("unanswered", 50.0)]),
        ]);
        let ratio = added_p99(&results, "c", ["mvp, peer", "haproxy"]);
        assert_eq!(ratio.map(|ratio| ratio.median), Some(0.5));
    }
}
