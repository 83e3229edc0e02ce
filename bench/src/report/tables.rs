//! Tables of every figure, ratios first.

use std::fmt::Write as _;

use crate::others::OTHERS;
use crate::results::Results;
use crate::scenarios::{
    ALONE, AT_REST, CALM, DISCOVERY, EMBEDDED, FAIRNESS, HANDSHAKES, KUBE, LATENCY, MEMBERS,
    NATIVE, PASSED_ON, REQUESTS, WATCHES,
};

/// A column: its heading, the figure, what to multiply it with, and its decimals.
type Column = (&'static str, &'static str, f64, usize);

/// The table of a scenario.
struct Table {
    scenario: &'static str,
    title: &'static str,
    /// The target that ratios refer to.
    base: &'static str,
    ratios: &'static [(&'static str, &'static str)],
    columns: &'static [Column],
}

const TABLES: [Table; 9] = [
    Table {
        scenario: REQUESTS,
        title: "As many requests as each can answer",
        base: "haproxy",
        ratios: &[("CPU", "cpu_seconds_per_gb"), ("throughput", "body_bytes_per_second")],
        columns: &[
            ("CPU a request, µs", "cpu_us_per_request", 1.0, 1),
            ("CPU s / GB", "cpu_seconds_per_gb", 1.0, 2),
            ("requests/s", "requests_per_second", 1.0, 0),
            ("MB/s", "body_bytes_per_second", 1e-6, 0),
            ("core busy", "cpu_share", 1.0, 2),
            ("core taken", "waited_share", 1.0, 2),
            ("others, cores", OTHERS, 1.0, 2),
            ("RSS, MiB", "rss_mib", 1.0, 1),
        ],
    },
    Table {
        scenario: LATENCY,
        title: "Latency at half load",
        base: "haproxy",
        ratios: &[("p50", "p50_us"), ("p99", "p99_us"), ("CPU", "cpu_us_per_request")],
        columns: &[
            ("p50, µs", "p50_us", 1.0, 0),
            ("p99, µs", "p99_us", 1.0, 0),
            ("p99.9, µs", "p999_us", 1.0, 0),
            ("requests/s asked", "rate_per_second", 1.0, 0),
            ("core taken", "waited_share", 1.0, 2),
            ("others, cores", OTHERS, 1.0, 2),
            ("failed", "failures", 1.0, 0),
            ("late by over 1 s", "unanswered", 1.0, 0),
        ],
    },
    Table {
        scenario: HANDSHAKES,
        title: "New TLS connections, one request each",
        base: "haproxy",
        ratios: &[("CPU", "cpu_us_per_connection"), ("connections/s", "connections_per_second")],
        columns: &[
            ("CPU a connection, µs", "cpu_us_per_connection", 1.0, 0),
            ("connections/s", "connections_per_second", 1.0, 0),
            ("core busy", "cpu_share", 1.0, 2),
            ("resumed", "resumed_share", 1.0, 2),
        ],
    },
    Table {
        scenario: WATCHES,
        title: "Watches",
        base: "haproxy",
        ratios: &[("memory", "idle_bytes_per_watch"), ("CPU an event", "cpu_us_per_event")],
        columns: &[
            ("idle, kB a watch", "idle_bytes_per_watch", 1e-3, 1),
            ("busy, kB a watch", "busy_bytes_per_watch", 1e-3, 1),
            ("CPU an event, µs", "cpu_us_per_event", 1.0, 1),
            ("events/s", "events_per_second", 1.0, 0),
            ("delivery p50, µs", "p50_us", 1.0, 0),
            ("delivery p99, µs", "p99_us", 1.0, 0),
            ("ended by the server", "watches_ended", 1.0, 0),
        ],
    },
    Table {
        scenario: DISCOVERY,
        title: "Merged discovery",
        base: PASSED_ON,
        ratios: &[("CPU", "cpu_us_per_request"), ("throughput", "requests_per_second")],
        columns: &[
            ("CPU a request, µs", "cpu_us_per_request", 1.0, 1),
            ("requests/s", "requests_per_second", 1.0, 0),
            ("MB/s", "body_bytes_per_second", 1e-6, 0),
            ("RSS, MiB", "rss_mib", 1.0, 1),
        ],
    },
    Table {
        scenario: MEMBERS,
        title: "Many members, and many changes",
        base: CALM,
        ratios: &[
            ("control loop", "control_cpu_percent"),
            ("CPU a request", "cpu_us_per_request"),
            ("p99 local", "p99_us"),
            ("p99 peer", "peer_p99_us"),
        ],
        columns: &[
            ("control loop, % of a core", "control_cpu_percent", 1.0, 2),
            ("CPU a request, µs", "cpu_us_per_request", 1.0, 1),
            ("p99 local, µs", "p99_us", 1.0, 0),
            ("p99 peer, µs", "peer_p99_us", 1.0, 0),
            ("changes/min", "changes_per_minute", 1.0, 0),
            ("discovery asked/s", "asked_per_second", 1.0, 0),
            ("documents/min", "documents_per_minute", 1.0, 0),
            ("failed", "failures", 1.0, 0),
            ("late by over 1 s", "unanswered", 1.0, 0),
            ("RSS, MiB", "rss_mib", 1.0, 1),
        ],
    },
    Table {
        scenario: FAIRNESS,
        title: "One user beside another with very many requests",
        base: ALONE,
        ratios: &[("p50", "p50_us"), ("p99", "p99_us")],
        columns: &[
            ("p50, µs", "p50_us", 1.0, 0),
            ("p99, µs", "p99_us", 1.0, 0),
            ("failed", "failures", 1.0, 0),
            ("late by over 1 s", "unanswered", 1.0, 0),
            ("core busy", "cpu_share", 1.0, 2),
            ("answers of the other", "other_requests", 1.0, 0),
            ("refusals of the other", "other_refusals", 1.0, 0),
        ],
    },
    Table {
        scenario: EMBEDDED,
        title: "The embedded control plane",
        base: AT_REST,
        ratios: &[("RSS", "rss_mib")],
        columns: &[
            ("RSS, MiB", "rss_mib", 1.0, 1),
            ("PSS, MiB", "pss_mib", 1.0, 1),
            ("% of a core at rest", "idle_cpu_percent", 1.0, 2),
            ("created/s", "created_per_second", 1.0, 0),
            ("CPU a write, µs", "cpu_us_per_write", 1.0, 0),
            ("whole list, ms", "list_seconds", 1e3, 0),
            ("in pages, ms", "pages_seconds", 1e3, 0),
            ("kB a watch", "idle_bytes_per_watch", 1e-3, 1),
            ("writes/s", "writes_per_second", 1.0, 1),
            ("events delivered", "events", 1.0, 0),
            ("CPU an event, µs", "cpu_us_per_event", 1.0, 1),
            ("delivery p50, µs", "p50_us", 1.0, 0),
            ("delivery p99, µs", "p99_us", 1.0, 0),
        ],
    },
    Table {
        scenario: KUBE,
        title: "Real kube-apiservers",
        base: NATIVE,
        ratios: &[("CPU of the hop", "cpu_us_per_request"), ("throughput", "requests_per_second")],
        columns: &[
            ("CPU of the hop, µs", "cpu_us_per_request", 1.0, 0),
            ("requests/s", "requests_per_second", 1.0, 0),
            ("p50, µs", "p50_us", 1.0, 0),
            ("p99, µs", "p99_us", 1.0, 0),
            ("others, cores", OTHERS, 1.0, 2),
            ("failed", "failures", 1.0, 0),
            ("late by over 1 s", "unanswered", 1.0, 0),
            ("RSS of the hop, MiB", "rss_mib", 1.0, 0),
        ],
    },
];

/// All tables, as Markdown.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = String::new();
    for table in TABLES.iter().filter(|table| !results.cases(table.scenario).is_empty()) {
        let _ = writeln!(text, "### {}\n", table.title);
        let _ = writeln!(text, "Ratios are to {}.\n", table.base);
        for case in results.cases(table.scenario) {
            table.write(&mut text, results, case);
        }
    }
    text
}

impl Table {
    fn write(&self, text: &mut String, results: &Results, case: &str) {
        let ratios = self.ratios.iter().map(|(heading, _)| format!("{heading} ratio"));
        let columns = self.columns.iter().map(|(heading, ..)| (*heading).to_owned());
        let headings: Vec<String> = ratios.chain(columns).collect();
        let _ = writeln!(text, "| {case} | {} |", headings.join(" | "));
        let _ = writeln!(text, "| --- |{}", " ---: |".repeat(headings.len()));
        for target in results.targets(self.scenario) {
            let ratios = self.ratios.iter().map(|(_, name)| {
                let ratio = results.ratio(self.scenario, case, [target, self.base], name);
                // Without a process there is no cost, and no ratio.
                ratio.filter(|ratio| ratio.median > 0.0).map(|ratio| format!("{:.2}", ratio.median))
            });
            let columns = self.columns.iter().map(|(_, name, factor, decimals)| {
                let value = results.median(self.scenario, case, target, name)? * factor;
                let shown =
                    value != 0.0 || matches!(*name, "failures" | "unanswered" | "watches_ended");
                shown.then(|| format!("{value:.decimals$}"))
            });
            let cells: Vec<String> =
                ratios.chain(columns).map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect();
            let _ = writeln!(text, "| {target} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn ratios_come_first() {
        let figures = |cpu| [("cpu_us_per_connection", cpu), ("connections_per_second", 10.0)];
        let (mvp, haproxy) = (figures(5.0), figures(10.0));
        let results = results(&[
            (HANDSHAKES, "c", "mvp, peer", 0, &mvp),
            (HANDSHAKES, "c", "haproxy", 0, &haproxy),
        ]);
        let text = tables(&results);
        assert!(text.contains("| mvp, peer | 0.50 | 1.00 | 5 | 10 | – | – |\n"), "{text}");
    }
}
