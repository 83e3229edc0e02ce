//! The alerts of `deploy/` in a real Prometheus. Entry item: [`a_killed_peer`].

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::{Process, Program, until};

use crate::client::plain;
use crate::cluster::Cluster;

/// Only `a` has every alpha API on.
const ONLY_A: &str = "/apis/coordination.k8s.io/v1alpha2/leasecandidates";
const WITHIN: Duration = Duration::from_secs(60);

/// Kills a peer under requests that need it: the alerts fire, and resolve once it is back.
pub(super) async fn a_killed_peer(cluster: &mut Cluster) -> anyhow::Result<String> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let tools = cluster.programs.prometheus()?.to_owned();
    let tests = promtool(&tools.join("promtool"), &deploy)?;
    let metrics = plain(cluster.server("a")?.gateway_admin(), "/metrics").await?;
    check_metrics(&tools.join("promtool"), &metrics.body)?;

    let prometheus = Prometheus::start(cluster, &tools, &deploy).await?;
    let (admin, through) = (cluster.admin.clone(), cluster.server("b")?.through());
    let killed = cluster.server("a")?.gateway_admin().to_string();
    // Before the kill: proxied requests are answered, and only the mix of releases is an alert. The
    // recording rules have values.
    until("the rules have values", WITHIN, async || {
        admin.get(through, ONLY_A).await?.expect(200)?;
        let answered = prometheus.value("mvp:proxied_requests_answered:ratio_rate5m").await?;
        let age = prometheus.value("max(mvp:view_age_seconds:max)").await?;
        ensure!(answered == Some(1.0), "answered: {answered:?}");
        ensure!(age.is_some_and(|age| (0.0..60.0).contains(&age)), "age of views: {age:?}");
        let firing = prometheus.firing().await?;
        let mixed = BTreeSet::from([("MvpReleasesMixed".to_owned(), String::new())]);
        ensure!(firing == mixed, "fires before the kill: {firing:?}");
        Ok(Some(()))
    })
    .await?;

    let panels = dashboard(&prometheus, &deploy).await?;

    cluster.server_mut("a")?.kill();
    let expected = [
        ("MvpGatewayDown", killed.as_str()),
        ("MvpPeerUnreachable", "server-a"),
        ("MvpRequestsRefused", "nobody-reachable"),
        ("MvpProxiedRequestsFailing", ""),
    ];
    let expected = expected.map(|(alert, of)| (alert.to_owned(), of.to_owned()));
    until("the alerts fire", WITHIN, async || {
        admin.get(through, ONLY_A).await?.expect(503)?;
        let firing = prometheus.firing().await?;
        let missing: Vec<_> = expected.iter().filter(|alert| !firing.contains(*alert)).collect();
        ensure!(missing.is_empty(), "do not fire: {missing:?}; fire: {firing:?}");
        Ok(Some(()))
    })
    .await?;

    cluster.heal().await?;
    // Those that are about the last five minutes are left out.
    let [down, unreachable, ..] = &expected;
    until("the alerts resolve", WITHIN, async || {
        admin.get(through, ONLY_A).await?.expect(200)?;
        let firing = prometheus.firing().await?;
        let resolved = !firing.contains(down) && !firing.contains(unreachable);
        ensure!(resolved, "still fires: {firing:?}");
        Ok(Some(()))
    })
    .await?;
    Ok(format!(
        "{tests}; {panels}; a peer killed: {} alerts fire, and resolve when it is back",
        expected.len()
    ))
}

/// Evaluates every expression of the dashboard. Returns how many have data.
async fn dashboard(prometheus: &Prometheus, deploy: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(deploy.join("grafana-dashboard.json"))?;
    let board: Value = serde_json::from_str(&text)?;
    let panels = board.get("panels").and_then(Value::as_array).context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    let (mut all, mut with_data) = (0, 0);
    for expression in targets.filter_map(|target| target.get("expr")?.as_str()) {
        let value = prometheus.value(&expression.replace("$job", ".+")).await;
        all += 1;
        with_data += u32::from(value.with_context(|| expression.to_owned())?.is_some());
    }
    ensure!(
        with_data * 2 > all,
        "only {with_data} of {all} expressions of the dashboard have data"
    );
    Ok(format!("dashboard: {with_data} of {all} expressions have data"))
}

/// Runs the tests of the rules. Returns how many rules there are.
fn promtool(promtool: &Path, deploy: &Path) -> anyhow::Result<String> {
    let rules = deploy.join("prometheus-rules.yaml");
    let checked = run(Command::new(promtool).args(["check", "rules"]).arg(&rules))?;
    let mut tests: Vec<PathBuf> = std::fs::read_dir(deploy.join("tests"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    tests.sort();
    run(Command::new(promtool).args(["test", "rules"]).args(&tests))?;
    let found = checked.lines().find_map(|line| line.trim().strip_prefix("SUCCESS: "));
    Ok(format!("promtool: {}, tests pass", found.context("promtool found no rules")?))
}

/// Runs `promtool check metrics`, which fails on any remark.
fn check_metrics(promtool: &Path, metrics: &[u8]) -> anyhow::Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), metrics)?;
    run(Command::new(promtool).args(["check", "metrics"]).stdin(file.reopen()?)).map(drop)
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdout(Stdio::piped()).output().context("cannot run promtool")?;
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {out}{errors}");
    Ok(out.into_owned())
}

/// A Prometheus that scrapes all gateways four times a second.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    async fn start(cluster: &Cluster, tools: &Path, deploy: &Path) -> anyhow::Result<Prometheus> {
        let folder = cluster.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let rules = std::fs::read_to_string(deploy.join("prometheus-rules.yaml"))?;
        std::fs::write(folder.join("rules.yaml"), at_once(&rules)?)?;
        let gateways = cluster.servers.iter().map(|server| server.gateway_admin().to_string());
        let config = json!({
            "global": {"scrape_interval": "250ms", "evaluation_interval": "250ms", "scrape_timeout": "250ms"},
            "rule_files": [folder.join("rules.yaml")],
            "scrape_configs": [{
                "job_name": "mvp",
                "static_configs": [{"targets": gateways.collect::<Vec<_>>()}],
            }],
        });
        // YAML includes JSON.
        std::fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        run(Command::new(tools.join("promtool"))
            .args(["check", "config"])
            .arg(folder.join("prometheus.yaml")))?;
        let address = SocketAddr::new(cluster.client_address(), 9090);
        let flags = [
            format!("--config.file={}", folder.join("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let program = Program::new("prometheus", &tools.join("prometheus"));
        let mut process = program.start(&cluster.folder().join("prometheus.log"), flags)?;
        let ready = async || plain(address, "/-/ready").await?.expect(200).map(drop);
        process.ready(WITHIN, ready).await?;
        Ok(Prometheus { address, _process: process })
    }

    /// The alerts that fire, each with the label that says what it is about.
    async fn firing(&self) -> anyhow::Result<BTreeSet<(String, String)>> {
        let alerts = plain(self.address, "/api/v1/alerts").await?.expect(200)?;
        let alerts =
            alerts.pointer("/data/alerts").and_then(Value::as_array).context("no alerts")?;
        let firing = alerts.iter().filter(|alert| alert.get("state") == Some(&json!("firing")));
        Ok(firing
            .map(|alert| {
                let label = |name: &str| alert.pointer(&format!("/labels/{name}"))?.as_str();
                let of = ["member", "reason", "instance"].into_iter().find_map(label);
                let name = label("alertname").unwrap_or_default();
                (name.to_owned(), of.unwrap_or_default().to_owned())
            })
            .collect())
    }

    /// The first sample of an expression.
    async fn value(&self, expression: &str) -> anyhow::Result<Option<f64>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        let found = plain(self.address, &path).await?.expect(200)?;
        let value = found.pointer("/data/result/0/value/1").and_then(Value::as_str);
        Ok(value.map(str::parse).transpose()?)
    }
}

/// The rules with every `for` as short as possible. Expressions stay as they are.
fn at_once(rules: &str) -> anyhow::Result<String> {
    let mut waits = 0;
    let lines = rules.lines().map(|line| match line.trim_start().strip_prefix("for: ") {
        Some(_) => {
            waits += 1;
            "    for: 1s"
        }
        None => line,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    ensure!(waits > 0, "no rule waits");
    Ok(text)
}
