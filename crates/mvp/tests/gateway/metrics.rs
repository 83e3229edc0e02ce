//! The metrics of a running gateway pass the rules of `promtool check metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use http::StatusCode;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS};
use crate::support::client::Client;

#[tokio::test]
async fn metrics_follow_the_rules_of_prometheus() {
    let cluster = Cluster::start().await;
    let gateway = &cluster.b.gateway;
    let client = Client::user(gateway.address).await;
    for path in [CONFIG_MAPS, WIDGETS, "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK);
    }
    let text = gateway.page("/metrics").await;
    let problems = problems(&text);
    assert!(problems.is_empty(), "{problems:#?}\nin\n{text}");
    // The rules above are part of it, and need no Go program.
    if let Some(promtool) = std::env::var_os("PROMTOOL") {
        check_with(Path::new(&promtool), &text);
    }
    for name in [
        "mvp_build_info{version=\"",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_virtual_memory_bytes ",
        "process_open_fds ",
        "process_max_fds ",
        "process_start_time_seconds ",
        "apiserver_peer_discovery_sync_errors_total{type=\"fetch_discovery\"}",
        "apiserver_peer_discovery_sync_errors_total{type=\"lease_list\"}",
        "apiserver_peer_discovery_sync_errors_total{type=\"hostport_resolution\"}",
        "aggregator_discovery_nopeer_requests_total ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "no {name} in\n{text}");
    }
}

/// Runs `promtool check metrics`, which fails on any remark.
fn check_with(promtool: &Path, text: &str) {
    let mut command = Command::new(promtool);
    let command = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\nin\n{text}");
}

/// The test must be able to fail: what `promtool` finds, this finds.
#[test]
fn the_rules_find_what_is_wrong() {
    let good =
        "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 1\na_total{x=\"2\"} 1\n";
    assert_eq!(problems(good), Vec::<String>::new());
    for (wrong, problem) in [
        // OpenMetrics, read as the text format.
        ("# HELP a A.\n# TYPE a counter\na_total 1\n# EOF\n", "a_total: no help"),
        ("# HELP a A.\n# TYPE a counter\na 1\n", "a: a counter without _total"),
        ("# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n", "a_total: _total, but a gauge"),
        ("# TYPE a gauge\na 1\n", "a: no help"),
        ("# HELP aB A.\n# TYPE aB gauge\naB 1\n", "aB: not lower case"),
        ("# HELP a_count A.\n# TYPE a_count gauge\na_count 1\n", "a_count: a reserved suffix"),
        ("# HELP a A.\n# TYPE a gauge\na{le=\"1\"} 1\n", "a: the label le"),
        ("# HELP a_gauge A.\n# TYPE a_gauge gauge\na_gauge 1\n", "a_gauge: its type in its name"),
        ("# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n", "a_ms: the unit ms"),
        (
            "# HELP a_minutes A.\n# TYPE a_minutes gauge\na_minutes 1\n",
            "a_minutes: the unit minutes",
        ),
        ("# HELP a A.\n# TYPE a gauge\na 1\na 2\n", "a: twice"),
    ] {
        assert!(problems(wrong).contains(&problem.to_owned()), "{wrong}: {:?}", problems(wrong));
    }
}

/// Abbreviated units, and units that are not Prometheus' base units.
const UNITS: [&str; 17] = [
    "s",
    "ms",
    "us",
    "ns",
    "sec",
    "b",
    "kb",
    "mb",
    "gb",
    "m",
    "h",
    "d",
    "milliseconds",
    "minutes",
    "hours",
    "kilobytes",
    "megabytes",
];

/// What the linter of Prometheus finds in the text format.
fn problems(text: &str) -> Vec<String> {
    let (mut help, mut kinds) = (BTreeSet::new(), BTreeMap::new());
    let (mut seen, mut problems) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            match words[..] {
                ["HELP", name, help_text] if !help_text.is_empty() => {
                    help.insert(name);
                }
                ["TYPE", name, kind] => {
                    kinds.insert(name, kind);
                }
                _ => {}
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (sample_name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            let base = sample_name.strip_suffix(end)?;
            (kinds.get(base) == Some(&"histogram")).then_some(base)
        });
        let name = base.unwrap_or(sample_name);
        let kind = kinds.get(name).copied().unwrap_or("untyped");
        let mut check = |wrong: bool, what: &str| {
            if wrong {
                problems.insert(format!("{name}: {what}"));
            }
        };
        check(!help.contains(name), "no help");
        check(kind == "counter" && !name.ends_with("_total"), "a counter without _total");
        check(kind != "counter" && name.ends_with("_total"), "_total, but a gauge");
        check(name.chars().any(|c| c.is_ascii_uppercase() || c == ':'), "not lower case");
        let reserved = ["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end));
        check(reserved, "a reserved suffix");
        let le = labels.starts_with("le=") || labels.contains(",le=");
        check(le && kind != "histogram", "the label le");
        let words = || name.split('_');
        let types = ["gauge", "counter", "histogram", "summary"];
        check(words().any(|word| types.contains(&word)), "its type in its name");
        for unit in words().filter(|word| UNITS.contains(word)) {
            check(true, &format!("the unit {unit}"));
        }
        check(!seen.insert(sample), "twice");
    }
    problems.into_iter().collect()
}
