//! The documentation, the alerts and the dashboard name only metrics and labels that a running gateway
//! exposes, and each of those is documented.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use http::StatusCode;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_core::decide::Reason;
use serde_json::Value;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS, any, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::process::{Gateway, free_address};

/// The labels of each metric. A histogram is one metric.
type Metrics = BTreeMap<String, BTreeSet<String>>;

/// What Prometheus adds to every sample.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

#[tokio::test]
async fn metrics_are_documented_and_used_as_they_are() {
    let exposed = exposed().await;
    let operate = read("docs/operate.md");
    let (defined, mentioned) = documented(&operate);
    assert_eq!(defined, exposed, "docs/operate.md (left) and the metrics of a gateway");
    for name in mentioned {
        assert!(exposed.contains_key(&name), "docs/operate.md mentions {name}");
    }
    let (rules, recorded) = rules();
    for (place, expression) in rules.into_iter().chain(dashboard()) {
        let wrong = wrong(&expression, &exposed, &recorded);
        assert!(wrong.is_empty(), "{place}: {wrong:?} in {expression}");
    }
}

/// The test must be able to fail.
#[test]
fn wrong_names_and_labels_are_found() {
    let label = |name: &str| BTreeSet::from([name.to_owned()]);
    let exposed = Metrics::from([
        ("mvp_a_total".to_owned(), label("reason")),
        ("mvp_hop_seconds".to_owned(), BTreeSet::new()),
    ]);
    let recorded = BTreeSet::from(["mvp:a:rate5m".to_owned()]);
    for (expression, expected) in [
        ("sum by (job, reason) (rate(mvp_a_total{reason!~\"x|mvp_b\"}[5m])) > 0", &[][..]),
        ("histogram_quantile(0.5, sum by (le) (rate(mvp_hop_seconds_bucket[5m])))", &[]),
        ("mvp:a:rate5m * 2 unless on (job) up{job=\"mvp\"} == 0", &[]),
        ("rate(mvp_b_total[5m])", &["mvp_b_total"]),
        ("mvp:b:rate5m > 1", &["mvp:b:rate5m"]),
        ("mvp_a_total{cause=\"x\"}", &["cause"]),
        ("sum by (member) (mvp_a_total)", &["member"]),
        ("sum(mvp_a_total) by (member)", &["member"]),
    ] {
        assert_eq!(wrong(expression, &exposed, &recorded), expected, "{expression}");
    }
}

#[test]
fn every_reason_of_a_503_is_explained() {
    let operate = read("docs/operate.md");
    let rows = table(&operate, "## Reasons of a 503");
    let labels: BTreeSet<String> = rows.into_iter().map(|row| row[0].replace('`', "")).collect();
    let reasons: BTreeSet<String> =
        Reason::REFUSALS.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(labels, reasons);
}

#[test]
fn alerts_are_tested_and_documented() {
    let rules = yaml("deploy/prometheus-rules.yaml");
    let tests = read("deploy/tests/prometheus-rules.yaml")
        + &read("deploy/tests/prometheus-rules-days.yaml");
    let mut alerts = BTreeSet::new();
    for rule in each_rule(&rules).filter(|rule| rule.get("alert").is_some()) {
        let text = |pointer: &str| {
            let text = rule.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_else(|| panic!("no {pointer} in {rule}"))
        };
        let name = text("/alert");
        alerts.insert((name.to_owned(), text("/labels/severity").to_owned()));
        assert!(!text("/annotations/summary").is_empty(), "{name}");
        assert!(!text("/annotations/description").is_empty(), "{name}");
        let runbook = text("/annotations/runbook");
        let (file, anchor) = runbook.split_once('#').unwrap_or_else(|| panic!("{runbook}"));
        assert!(anchors(&read(file)).contains(anchor), "{name}: no section {runbook}");
        let fires = format!("alertname=\"{name}\"");
        let fires = tests.contains(&fires) || tests.contains(&format!("alertname: {name}"));
        assert!(fires, "no test of {name}");
    }
    let operate = read("docs/operate.md");
    let documented: BTreeSet<(String, String)> = table(&operate, "## Alerts")
        .into_iter()
        .map(|row| (row[0].replace('`', ""), row[1].clone()))
        .collect();
    assert_eq!(documented, alerts);
}

/// Metrics that exist only once something was counted.
const COUNTED: [&str; 4] =
    ["mvp_failovers_total", "mvp_reload_total", "mvp_ejected", "apiserver_peer_proxy_errors_total"];

/// Metrics of a gateway with `--steer`, which needs rights. Unit tests show that they exist.
const STEERING: [&str; 5] = [
    "mvp_steering_active",
    "mvp_steering_tolerance_seconds",
    "mvp_steering_lapses_total",
    "mvp_steering_lapse_seconds_total",
    "mvp_unsteered_connections",
];

/// The metrics of a gateway for which everything happened that it counts.
async fn exposed() -> Metrics {
    let mut folder = Folder::new(&[("peers.yaml", "peers: []")]);
    // Nobody listens there, and no request is traced.
    let traces = ["--tracing-endpoint=http://127.0.0.1:1", "--tracing-sampling-ratio=0"];
    let mut flags = vec![folder.flag("peers-file", "peers.yaml")];
    flags.extend(traces.map(str::to_owned));
    let mut cluster = Cluster::with(&flags).await;
    let client = Client::user(cluster.b.gateway.address).await;
    for path in [CONFIG_MAPS, WIDGETS, "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK);
    }
    // A failover from the local server, a reload, then a peer that does not respond.
    cluster.b.server.cut().await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    folder.swap(&[("peers.yaml", "peers: [] # again")]);
    drop(cluster.a.gateway);
    let gateway = &cluster.b.gateway;
    let mut exposed = eventually("everything is counted", async || {
        assert_eq!(client.get(WIDGETS).await.0, StatusCode::SERVICE_UNAVAILABLE);
        let text = gateway.page("/metrics").await;
        let missing = COUNTED.iter().find(|name| !text.contains(&format!("\n{name}")));
        if missing.is_none() { Ok(parse(&text)) } else { Err(missing) }
    })
    .await;
    exposed.append(&mut called_deprecated().await);
    for (name, labels) in parse(&crate::pass_through::metrics().await) {
        exposed.entry(name).or_insert(labels);
    }
    exposed.extend(STEERING.map(|name| (name.to_owned(), BTreeSet::new())));
    exposed
}

/// The metrics of a gateway through which a deprecated API is called.
async fn called_deprecated() -> Metrics {
    let claims = ResourceSpec::namespaced("resourceclaims", "ResourceClaim");
    let groups = vec![GroupSpec::new("resource.k8s.io").version("v1beta1", [claims])];
    let spec = ServerSpec { id: "d".to_owned(), groups, ..ServerSpec::default() };
    let server = serve(any(), ApiServer::new(spec, Storage::new())).await;
    let gateway = Gateway::start(free_address(), "d", server.address, &[]).ready().await;
    let path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims";
    assert_eq!(Client::user(gateway.address).await.get(path).await.0, StatusCode::OK);
    parse(&gateway.page("/metrics").await)
}

/// The metrics in Prometheus' text format.
fn parse(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    let mut histograms = BTreeSet::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            if let Some(name) = described.strip_suffix(" histogram") {
                histograms.insert(name.to_owned());
            }
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, labels) = line.split_once('{').unwrap_or((line, ""));
        let name = name.split(' ').next().unwrap();
        let base = base(name, |base| histograms.contains(base));
        let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
        let of = metrics.entry(base.to_owned()).or_default();
        of.extend(label_names(labels).filter(|label| label != "le"));
    }
    metrics
}

/// The name of a metric without the suffix of a histogram's samples.
fn base(name: &str, is_histogram: impl Fn(&str) -> bool) -> &str {
    let bases = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
    bases.into_iter().find(|base| is_histogram(base)).unwrap_or(name)
}

/// The names in `a="…",b=~"…"`.
fn label_names(matchers: &str) -> impl Iterator<Item = String> {
    let outside = matchers.split('"').step_by(2);
    let names = outside.map(|text| text.trim_matches([',', ' ', '=', '~', '!']).to_owned());
    names.filter(|name| !name.is_empty()).collect::<Vec<_>>().into_iter()
}

const PREFIXES: [&str; 4] = ["mvp_", "apiserver_", "aggregator_", "process_"];

fn is_metric(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The metrics that the first column of a table defines, and those that are mentioned anywhere.
fn documented(text: &str) -> (Metrics, BTreeSet<String>) {
    let (mut defined, mut mentioned) = (Metrics::new(), BTreeSet::new());
    for line in text.lines() {
        let first = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        for (place, defines) in [(first.unwrap_or_default(), true), (line, false)] {
            for code in place.split('`').skip(1).step_by(2).filter(|code| is_metric(code)) {
                let (name, labels) = code.split_once('{').unwrap_or((code, ""));
                let labels = labels.trim_end_matches('}').split(',').map(str::to_owned);
                let labels = labels.filter(|label| !label.is_empty()).collect();
                if defines {
                    let before = defined.insert(name.to_owned(), labels);
                    assert_eq!(before, None, "{name} is defined twice");
                } else {
                    mentioned.insert(name.to_owned());
                }
            }
        }
    }
    (defined, mentioned)
}

/// What an expression of PromQL names that does not exist.
fn wrong(expression: &str, exposed: &Metrics, recorded: &BTreeSet<String>) -> Vec<String> {
    let mut known: BTreeSet<String> = TARGET_LABELS.map(str::to_owned).into();
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    // Text in quotes is a value, never a name.
    let outside: String = expression.split('"').step_by(2).collect();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for name in outside.split(|c| !word(c)) {
        if name.contains(':') {
            if !recorded.contains(name) {
                wrong.push(name.to_owned());
            }
            // A recorded series has the labels that it was summed by.
            known.extend(["member", "le"].map(str::to_owned));
        } else if is_metric(name) {
            let base = base(name, |base| exposed.contains_key(base));
            match exposed.get(base) {
                Some(labels) => known.extend(labels.iter().cloned()),
                None => wrong.push(name.to_owned()),
            }
            known.extend((base != name).then(|| "le".to_owned()));
        }
    }
    for (open, close) in [('{', '}'), ('(', ')')] {
        for part in outside.split(open).skip(1).zip(outside.split(open)) {
            let (inside, before) = (part.0.split(close).next().unwrap_or_default(), part.1);
            let before = before.trim_end();
            let grouping = ["by", "without", "on", "ignoring"].iter().any(|word| {
                before
                    .strip_suffix(word)
                    .is_some_and(|rest| !rest.ends_with(|c| c != ' ' && c != ')'))
            });
            if open == '{' || grouping {
                used.extend(inside.split([',', '=', '~', '!', ' ']).map(str::to_owned));
            }
        }
    }
    wrong.extend(used.into_iter().filter(|label| !label.is_empty() && !known.contains(label)));
    wrong
}

/// The expressions of the rules, and the names that they record.
fn rules() -> (Vec<(String, String)>, BTreeSet<String>) {
    let rules = yaml("deploy/prometheus-rules.yaml");
    let text = |rule: &Value, name: &str| rule.get(name)?.as_str().map(str::to_owned);
    let recorded = each_rule(&rules).filter_map(|rule| text(rule, "record")).collect();
    let expressions = each_rule(&rules).map(|rule| {
        let name = text(rule, "alert").or_else(|| text(rule, "record")).unwrap();
        (name, text(rule, "expr").unwrap())
    });
    (expressions.collect(), recorded)
}

fn each_rule(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap())
}

/// The expressions of the dashboard.
fn dashboard() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("deploy/grafana-dashboard.json")).unwrap();
    let mut expressions = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
            let expression = target["expr"].as_str().unwrap();
            expressions.push((title.to_owned(), expression.to_owned()));
        }
    }
    assert!(expressions.len() > 20, "{expressions:?}");
    expressions
}

/// The rows of the first table with code in its first column below a heading.
pub(crate) fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let below = text.split_once(&format!("\n{heading}\n")).expect("the heading exists").1;
    let below = below.split("\n## ").next().unwrap();
    let rows = below.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect()).collect()
}

/// The anchors of the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        text.lines().filter_map(|line| Some(line.strip_prefix("##")?.trim_start_matches('#')));
    let anchor = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap()
}

pub(crate) fn read(path: &str) -> String {
    let file = root().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
