//! The performance goals of `mvp`, compared with the measurements. Entry item: [`goals`].

use crate::load::Protocol;
use crate::plan::{WatchCase, large_case, main_case, small_case};
use crate::results::{Ratio, Results, median};
use crate::scenarios::{
    ALONE, AT_REST, BESIDE, CHANGING, DISCOVERY, EMBEDDED, EMBEDDED_CASE, FAIRNESS, FAIRNESS_CASE,
    FULL, HANDSHAKES, KNOWN, KUBE, LATENCY, MEMBERS, MEMBERS_CASE, MERGED, MOST, NATIVE, PACED,
    PASSED_ON, REQUESTS, RESUMED, WATCHES,
};
use crate::targets::Target;

const PEER: &str = "mvp, peer";
const LOCAL: &str = "mvp, local";
/// Most goals compare with haproxy of Debian's package.
const HAPROXY: &str = "haproxy";
const OF_HAPROXY: &str = "mvp / haproxy";
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
    let mut goals = requests(results);
    goals.extend(kube(results));
    goals.extend(latency(results));
    goals.extend(throughput(results));
    goals.extend(memory(results));
    goals.extend(mvp_alone(results));
    goals
}

fn goal(what: String, of: &str, bound: Bound, ratio: Option<Ratio>) -> Goal {
    Goal { what, of: of.to_owned(), bound, ratio }
}

/// The CPU of a request.
fn requests(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let cpu = |case: &str, targets| results.ratio(REQUESTS, case, targets, "cpu_us_per_request");
    for (kind, target) in [("proxied", PEER), ("local", LOCAL)] {
        for protocol in [Protocol::Http2, Protocol::Http1] {
            let case = main_case(protocol).name();
            let what = format!("CPU a {kind} request, {}", protocol.name());
            let ratio = cpu(&case, [target, HAPROXY]);
            goals.push(goal(what.clone(), OF_HAPROXY, Bound::AtMost(1.0), ratio));
            let of = format!("mvp / {BARE}");
            goals.push(goal(what, &of, Bound::AtMost(1.15), cpu(&case, [target, BARE])));
        }
    }
    for (connections, most) in [(1, 1.1), (1_000, 0.9)] {
        for protocol in [Protocol::Http2, Protocol::Http1] {
            let case = small_case(protocol, connections);
            let ratio = cpu(&case.name(), [PEER, HAPROXY]);
            // One connection of HTTP/1.1 has no streams to compare.
            if ratio.is_some() && (connections > 1 || case.streams > 1) {
                let what = format!("CPU a proxied request, {}", case.name());
                goals.push(goal(what, OF_HAPROXY, Bound::AtMost(most), ratio));
            }
        }
    }
    goals
}

/// In front of real kube-apiservers.
fn kube(results: &Results) -> Vec<Goal> {
    if results.cases(KUBE).is_empty() {
        return Vec::new();
    }
    let cpu = |base| results.ratio(KUBE, PACED, [PEER, base], "cpu_us_per_request");
    let what = "CPU of the hop, real kube-apiservers, 1,000 GETs/s".to_owned();
    let most = results.ratio(KUBE, MOST, [PEER, "direct"], "requests_per_second");
    let gets = "proxied GETs/s, real kube-apiservers".to_owned();
    vec![
        goal(what.clone(), OF_HAPROXY, Bound::AtMost(1.0), cpu(HAPROXY)),
        goal(what, &format!("mvp / {NATIVE}"), Bound::AtMost(0.12), cpu(NATIVE)),
        goal(gets, "mvp / direct", Bound::AtLeast(0.9), most),
    ]
}

fn latency(results: &Results) -> Vec<Goal> {
    let of_case = |case: &str| {
        let ratio = added_p99(results, case, [PEER, HAPROXY]);
        goal(format!("added p99 at half load, {case}"), OF_HAPROXY, Bound::AtMost(1.0), ratio)
    };
    results.cases(LATENCY).into_iter().map(of_case).collect()
}

/// Bytes and new connections per second.
fn throughput(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let (case, figure) = (large_case(protocol).name(), "body_bytes_per_second");
        if let Some(best) = best_peer(results, REQUESTS, &case, figure) {
            let what = format!("100 MB answers, bytes/s, {}", protocol.name());
            let of = format!("mvp / {best}, the best peer");
            let ratio = results.ratio(REQUESTS, &case, [PEER, best], figure);
            goals.push(goal(what, &of, Bound::AtLeast(1.0), ratio));
        }
    }
    for case in [FULL, RESUMED] {
        let ratio = results.ratio(HANDSHAKES, case, [PEER, HAPROXY], "connections_per_second");
        let what = format!("new TLS connections/s, {case}");
        goals.push(goal(what, OF_HAPROXY, Bound::AtLeast(1.5), ratio));
    }
    goals
}

/// The proxy of others with the highest figure.
fn best_peer(results: &Results, scenario: &str, case: &str, figure: &str) -> Option<&'static str> {
    let peers = Target::PEERS.into_iter().map(Target::name);
    let figures =
        peers.filter_map(|name| Some((name, results.median(scenario, case, name, figure)?)));
    figures.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name)
}

fn memory(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (connections, streams, most) in [(1_000, 1, 1.77), (10, 100, 1.0), (100, 100, 1.0)] {
        let case = WatchCase { connections, streams }.name();
        let ratio = results.ratio(WATCHES, &case, [PEER, HAPROXY], "idle_bytes_per_watch");
        if ratio.is_some() {
            let what = format!("memory of an idle watch, {case}");
            goals.push(goal(what, OF_HAPROXY, Bound::AtMost(most), ratio));
        }
    }
    goals
}

/// What has no counterpart in another proxy.
fn mvp_alone(results: &Results) -> Vec<Goal> {
    let known = results.ratio(DISCOVERY, KNOWN, [MERGED, PASSED_ON], "cpu_us_per_request");
    let control = results.spread(MEMBERS, MEMBERS_CASE, CHANGING, "control_cpu_percent");
    let memory = results.spread(EMBEDDED, EMBEDDED_CASE, AT_REST, "rss_mib");
    let merged = format!("CPU of merged discovery, {KNOWN}");
    let share = format!("% of a core for the control loop, {CHANGING}");
    let size = format!("MiB of memory, {EMBEDDED_CASE}, {AT_REST}");
    let shared = results.ratio(FAIRNESS, FAIRNESS_CASE, [BESIDE, ALONE], "p99_us");
    let p99 = format!("p99 of a user {BESIDE}");
    let mut goals = vec![
        goal(p99, "beside / alone", Bound::AtMost(2.0), shared),
        goal(merged, "merged / passed on", Bound::AtMost(1.3), known),
        goal(share, "mvp", Bound::AtMost(5.0), control),
        goal(size, "mvp demo", Bound::AtMost(40.0), memory),
    ];
    goals.retain(|goal| goal.ratio.is_some());
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

    fn of(bound: Bound, median: f64) -> Goal {
        goal(String::new(), "", bound, Some(Ratio { median, least: median, most: median }))
    }

    #[test]
    fn a_missed_goal_says_by_how_much() {
        assert_eq!(of(Bound::AtMost(1.0), 1.2).verdict(), "missed by 20 %");
        assert_eq!(of(Bound::AtLeast(0.9), 0.45).verdict(), "missed by 50 %");
        assert_eq!(of(Bound::AtMost(1.0), 1.004).verdict(), "met");
        assert_eq!(of(Bound::AtLeast(1.0), 1.4).verdict(), "met");
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
    #[test]
    fn large_answers_are_compared_with_the_best_peer() {
        let case = large_case(Protocol::Http2).name();
        let row = |target, bytes| (REQUESTS, case.as_str(), target, 0, bytes);
        let results = results(&[
            row(PEER, &[("body_bytes_per_second", 90.0)][..]),
            row(HAPROXY, &[("body_bytes_per_second", 80.0)][..]),
            row("Envoy", &[("body_bytes_per_second", 100.0)][..]),
            // The floor of our stack is no peer.
            row(BARE, &[("body_bytes_per_second", 200.0)][..]),
        ]);
        let goals = goals(&results);
        let goal = goals.iter().find(|goal| goal.what.starts_with("100 MB")).expect("a goal");
        assert_eq!(goal.of, "mvp / Envoy, the best peer");
        assert_eq!(goal.verdict(), "missed by 10 %");
    }

    #[test]
    fn the_hop_is_compared_at_a_fixed_rate() {
        let row = |target, cpu| (KUBE, PACED, target, 0, cpu);
        let results = results(&[
            row(PEER, &[("cpu_us_per_request", 100.0)][..]),
            row(HAPROXY, &[("cpu_us_per_request", 80.0)][..]),
            row(NATIVE, &[("cpu_us_per_request", 1000.0)][..]),
        ]);
        let verdicts: Vec<(String, String)> =
            kube(&results).iter().map(|goal| (goal.of.clone(), goal.verdict())).collect();
        let expected = [
            (OF_HAPROXY.to_owned(), "missed by 25 %".to_owned()),
            ("mvp / Kubernetes' own".to_owned(), "met".to_owned()),
            ("mvp / direct".to_owned(), "not measured".to_owned()),
        ];
        assert_eq!(verdicts, expected);
    }
}
