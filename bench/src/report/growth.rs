//! How the cost of `mvp` grows with members, APIs and watches: tables, charts, and what grows most.
//! Entry items: [`section`] and [`charts`].

use std::fmt::Write as _;

use super::svg::{Chart, Group};
use crate::results::{Results, Sample};
use crate::scenarios::{GROWING_APIS, GROWING_MEMBERS, GROWING_WATCHES, GROWTH};

/// What grows.
struct Axis {
    case: &'static str,
    file: &'static str,
    /// What is expected of it.
    says: &'static str,
    figures: &'static [Figure],
}

/// A cost: its name in the run, its heading in the table and in the legend of the chart, its
/// decimals, and the least value that its growth is measured from. Below that it is noise.
struct Figure {
    name: &'static str,
    heading: &'static str,
    short: &'static str,
    factor: f64,
    decimals: usize,
    least: f64,
}

const CONTROL: Figure = Figure {
    name: "idle_control_percent",
    heading: "control loop at rest, % of a core",
    short: "control loop",
    factor: 1.0,
    decimals: 2,
    least: 0.1,
};
const IDLE: Figure = Figure {
    name: "idle_cpu_percent",
    heading: "all threads at rest, % of a core",
    short: "all threads at rest",
    factor: 1.0,
    decimals: 2,
    least: 0.1,
};
const PEER: Figure = Figure {
    name: "peer_cpu_us",
    heading: "CPU of a proxied request, µs",
    short: "proxied",
    factor: 1.0,
    decimals: 1,
    least: 1.0,
};
const LOCAL: Figure = Figure {
    name: "local_cpu_us",
    heading: "CPU of a local request, µs",
    short: "local",
    factor: 1.0,
    decimals: 1,
    least: 1.0,
};
const MEMORY: Figure = Figure {
    name: "idle_rss_mib",
    heading: "RSS at rest, MiB",
    short: "RSS",
    factor: 1.0,
    decimals: 1,
    least: 1.0,
};
const READY: Figure = Figure {
    name: "ready_seconds",
    heading: "start until ready, s",
    short: "start",
    factor: 1.0,
    decimals: 2,
    least: 0.1,
};
const CHANGE: Figure = Figure {
    name: "change_cpu_ms",
    heading: "control loop for one group more or less, ms",
    short: "change",
    factor: 1.0,
    decimals: 1,
    least: 1.0,
};
const DOCUMENT: Figure = Figure {
    name: "discovery_cpu_us",
    heading: "CPU of GET /apis, ms",
    short: "GET /apis",
    factor: 1e-3,
    decimals: 2,
    least: 1.0,
};
const LEGACY: Figure = Figure {
    name: "legacy_cpu_us",
    heading: "CPU of GET /apis/G/V, µs",
    short: "GET /apis/G/V",
    factor: 1.0,
    decimals: 1,
    least: 1.0,
};
const WATCH: Figure = Figure {
    name: "idle_bytes_per_watch",
    heading: "kB a watch",
    short: "watch",
    factor: 1e-3,
    decimals: 1,
    least: 1.0,
};

const AXES: [Axis; 3] = [
    Axis {
        case: GROWING_MEMBERS,
        file: "growth-members.svg",
        says: "The control loop asks each member once a second. A request does not depend on their number.",
        figures: &[CONTROL, IDLE, PEER, LOCAL, MEMORY, READY],
    },
    Axis {
        case: GROWING_APIS,
        file: "growth-apis.svg",
        says: "A group is 600 bytes of discovery at the local server and at each of 3 members. If one member changes one \
group, the control loop fetches that member's whole document, and writes the merged one again. A request finds its API \
in a hash table.",
        figures: &[CONTROL, PEER, LOCAL, MEMORY, READY, CHANGE, DOCUMENT, LEGACY],
    },
    Axis {
        case: GROWING_WATCHES,
        file: "growth-watches.svg",
        says: "Watches at 3 members, 100 on each connection of the clients, without events. An idle watch costs memory only.",
        figures: &[IDLE, PEER, MEMORY, WATCH],
    },
];

/// The tables, as Markdown; empty if nothing was measured.
pub(super) fn section(results: &Results) -> String {
    let mut text = String::new();
    if results.cases(GROWTH).is_empty() {
        return text;
    }
    text.push_str(HEAD);
    for axis in &AXES {
        axis.write(&mut text, results);
    }
    text
}

/// File names and charts.
pub(super) fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    AXES.iter().map(|axis| (axis.file, axis.chart(results))).collect()
}

impl Axis {
    /// The sizes that were measured, in the order of the run.
    fn sizes<'a>(&self, results: &'a Results) -> Vec<&'a str> {
        let of_case = |sample: &&Sample| sample.scenario == GROWTH && sample.case == self.case;
        let mut sizes: Vec<&str> =
            results.samples.iter().filter(of_case).map(|sample| sample.target.as_str()).collect();
        sizes.dedup();
        sizes
    }

    fn value(&self, results: &Results, size: &str, figure: &Figure) -> Option<f64> {
        Some(results.median(GROWTH, self.case, size, figure.name)? * figure.factor)
    }

    /// A figure as a ratio to that of the smallest size that has it.
    fn growth(&self, results: &Results, size: &str, figure: &Figure) -> Option<f64> {
        let above = |value: f64| value.max(figure.least * figure.factor);
        let mut sizes = self.sizes(results).into_iter();
        let first = sizes.find_map(|size| self.value(results, size, figure))?;
        Some(above(self.value(results, size, figure)?) / above(first))
    }

    fn write(&self, text: &mut String, results: &Results) {
        let sizes = self.sizes(results);
        if sizes.is_empty() {
            return;
        }
        let headings: Vec<&str> = self.figures.iter().map(|figure| figure.heading).collect();
        let _ = writeln!(text, "{} {}\n", self.says, self.most(results));
        let _ = writeln!(text, "| {} | {} |", self.case, headings.join(" | "));
        let _ = writeln!(text, "| ---: |{}", " ---: |".repeat(headings.len()));
        for size in sizes {
            let cell = |figure: &Figure| match self.value(results, size, figure) {
                Some(value) => format!("{value:.*}", figure.decimals),
                None => "–".to_owned(),
            };
            let cells: Vec<String> = self.figures.iter().map(cell).collect();
            let _ = writeln!(text, "| {size} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }

    /// One sentence about the figure that grows most.
    fn most(&self, results: &Results) -> String {
        let sizes = self.sizes(results);
        let [first, .., last] = sizes.as_slice() else { return String::new() };
        let grown = |figure| Some((figure, self.growth(results, last, figure)?));
        let all = self.figures.iter().filter_map(grown);
        let Some((figure, times)) = all.max_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            return String::new();
        };
        format!(
            "**Bends first:** {}, {times:.1} times as much from {first} to {last} {}.",
            figure.heading, self.case
        )
    }

    fn chart(&self, results: &Results) -> Chart {
        let shown = || self.figures.iter().filter(|figure| figure.name != WATCH.name);
        let group = |size: &str| Group {
            label: format!("{size} {}", self.case),
            values: shown().map(|figure| self.growth(results, size, figure)).collect(),
        };
        let sizes = self.sizes(results);
        let first = sizes.first().copied().unwrap_or_default();
        Chart {
            title: format!("Cost against {}", self.case),
            subtitle: format!("ratio to {first} {}; logarithmic; less is better", self.case),
            series: shown().map(|figure| figure.short.to_owned()).zip(COLOURS).collect(),
            groups: sizes.into_iter().map(group).collect(),
            mark: None,
            logarithmic: true,
            decimals: 2,
        }
    }
}

const COLOURS: [&str; 8] =
    ["#1d4ed8", "#60a5fa", "#f59e0b", "#16a34a", "#7c3aed", "#dc2626", "#b6bdc9", "#0f766e"];

const HEAD: &str = "\
### Growth

One round: `mvp --membership=leases` with one worker, beside a server that lacks `batch/v1`, and members that have it. *at rest* is
without requests, but with the control loop's own. The CPU of a request is that of the worker, with as many requests as it answers.

";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn the_figure_that_grows_most_is_named() {
        let few = [("peer_cpu_us", 50.0), ("idle_rss_mib", 20.0), ("idle_control_percent", 0.0)];
        let many = [("peer_cpu_us", 55.0), ("idle_rss_mib", 60.0), ("idle_control_percent", 0.2)];
        let samples = [
            (GROWTH, GROWING_MEMBERS, "1", 0, &few[..]),
            (GROWTH, GROWING_MEMBERS, "50", 0, &many[..]),
        ];
        let text = section(&results(&samples));
        // 0.2 % is twice the least that counts.
        assert!(
            text.contains("RSS at rest, MiB, 3.0 times as much from 1 to 50 members."),
            "{text}"
        );
        assert!(text.contains("\n| 50 | 0.20 | – | 55.0 | – | 60.0 | – |\n"), "{text}");
        assert!(!text.contains("idle watches |"), "{text}");
        let charts = charts(&results(&samples));
        let groups: Vec<usize> = charts.iter().map(|(_, chart)| chart.groups.len()).collect();
        assert_eq!(groups, [2, 0, 0]);
        assert!(section(&results(&[])).is_empty());
    }
}
