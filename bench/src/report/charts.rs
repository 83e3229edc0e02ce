//! The charts of a run.

use super::growth;
use super::svg::{Chart, Group};
use crate::results::Results;
use crate::scenarios::{KUBE, LATENCY, MOST, NATIVE, PACED, REQUESTS, WATCHES};

const COLOURS: [(&str, &str); 10] = [
    ("direct", "#b6bdc9"),
    ("mvp, local", "#1d4ed8"),
    ("mvp, peer", "#60a5fa"),
    ("bare forwarder", "#64748b"),
    ("haproxy", "#f59e0b"),
    ("haproxy 3.0, AWS-LC", "#b45309"),
    ("nginx", "#16a34a"),
    ("Envoy", "#db2777"),
    ("Pingora", "#0d9488"),
    (NATIVE, "#7c3aed"),
];

/// File names and charts.
pub(crate) fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    vec![
        ("cpu.svg", cpu(results)),
        ("latency.svg", latency(results)),
        ("watches.svg", watches(results)),
        ("kubernetes.svg", kubernetes(results)),
    ]
    .into_iter()
    .chain(growth::charts(results))
    .filter(|(_, chart)| !chart.groups.is_empty())
    .collect()
}

fn cpu(results: &Results) -> Chart {
    let targets = ["mvp, local", "mvp, peer", "haproxy 3.0, AWS-LC", "nginx", "Envoy", "Pingora"];
    ratios_to_haproxy(
        results,
        REQUESTS,
        "cpu_seconds_per_gb",
        &targets,
        "CPU a request, as a ratio to haproxy",
    )
}

fn watches(results: &Results) -> Chart {
    let targets = ["mvp, peer", "haproxy 3.0, AWS-LC", "nginx", "Envoy", "Pingora"];
    let title = "Memory of an idle watch, as a ratio to haproxy";
    ratios_to_haproxy(results, WATCHES, "idle_bytes_per_watch", &targets, title)
}

fn ratios_to_haproxy(
    results: &Results,
    scenario: &str,
    figure: &str,
    targets: &[&str],
    title: &str,
) -> Chart {
    let targets = &present(results, scenario, targets);
    let group = |case: &str| Group {
        label: case.replace(" connections", " conns").replace(" connection", " conn"),
        values: (targets.iter())
            .map(|target| Some(results.ratio(scenario, case, [target, "haproxy"], figure)?.median))
            .collect(),
    };
    Chart {
        title: title.to_owned(),
        subtitle: "less is better".to_owned(),
        series: series(targets),
        groups: results.cases(scenario).into_iter().map(group).collect(),
        mark: Some((1.0, "haproxy".to_owned())),
        logarithmic: false,
        decimals: 2,
    }
}

fn latency(results: &Results) -> Chart {
    let targets = ["direct", "mvp, local", "mvp, peer", "haproxy", "nginx", "Envoy", "Pingora"];
    let targets = present(results, LATENCY, &targets);
    let mut groups = Vec::new();
    for case in results.cases(LATENCY) {
        let protocol = if case.contains("HTTP/2") { "HTTP/2" } else { "HTTP/1.1" };
        for (name, figure) in [("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us")] {
            let value = |target: &&str| Some(results.median(LATENCY, case, target, figure)? / 1e3);
            let values = targets.iter().map(value).collect();
            groups.push(Group { label: format!("{protocol}, {name}"), values });
        }
    }
    Chart {
        title: "Latency at half load, ms".to_owned(),
        subtitle: "2 kB, 32 connections, the same rate for all; logarithmic; less is better"
            .to_owned(),
        series: series(&targets),
        groups,
        mark: None,
        logarithmic: true,
        decimals: 2,
    }
}

fn kubernetes(results: &Results) -> Chart {
    let targets = present(results, KUBE, &[NATIVE, "haproxy", "mvp, peer"]);
    let group = |label: &str, case: &str, base: &str, figure: &str| {
        results.cases(KUBE).contains(&case).then_some(())?;
        let values = targets
            .iter()
            .map(|target| Some(results.ratio(KUBE, case, [target, base], figure)?.median))
            .collect();
        Some(Group { label: label.to_owned(), values })
    };
    Chart {
        title: "A proxied GET before real kube-apiservers".to_owned(),
        subtitle: "requests/s: more is better; CPU of the hop: less is better".to_owned(),
        series: series(&targets),
        groups: [
            group("requests/s ÷ direct", MOST, "direct", "requests_per_second"),
            group("CPU of the hop ÷ Kubernetes' own", PACED, NATIVE, "cpu_us_per_request"),
        ]
        .into_iter()
        .flatten()
        .collect(),
        mark: None,
        logarithmic: false,
        decimals: 2,
    }
}

/// The targets that were measured: not every proxy is on every machine.
fn present<'a>(results: &Results, scenario: &str, targets: &[&'a str]) -> Vec<&'a str> {
    let measured = results.targets(scenario);
    targets.iter().copied().filter(|target| measured.contains(target)).collect()
}

fn series(targets: &[&str]) -> Vec<(String, &'static str)> {
    let colour = |target: &str| {
        COLOURS.iter().find(|(name, _)| *name == target).map_or("#444444", |(_, colour)| *colour)
    };
    targets.iter().map(|target| ((*target).to_owned(), colour(target))).collect()
}
