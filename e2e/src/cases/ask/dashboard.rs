//! The dashboard in a browser, while requests flow.

mod browser;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::browser::Tab;
use crate::cases::discovery::{items, text};
use crate::client::{Client, plain};
use crate::cluster::Cluster;

/// `b` does not serve it.
const JOBS: &str = "/apis/batch/v1/jobs";
/// A change is on the page within this time.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// The pages whose cost is measured, the time of a measurement, and the most of a core that they may take.
const PAGES: usize = 10;
const MEASURED: Duration = Duration::from_secs(10);
const MOST_PERCENT: f64 = 2.0;
/// What a page may grow in an hour, of its heap: caches of the browser, not of the page.
const MOST_GROWTH: f64 = 1.25;
/// The port of the dashboard for other hosts.
const SECURE_PORT: u16 = 7481;

pub(super) async fn in_a_browser(cluster: &mut Cluster) -> anyhow::Result<String> {
    let secure = SocketAddr::new(cluster.server("b")?.through().ip(), SECURE_PORT);
    let (mut gateway, through) = cluster.another_gateway("b", |flags| {
        flags.push("--dashboard-flow".to_owned());
        flags.push(format!("--dashboard-bind-address={secure}"));
        flags.push("--dashboard-allowed-groups=system:masters".to_owned());
    })?;
    let admin = SocketAddr::new(through.ip(), 7480);
    until("the gateway is ready", Duration::from_secs(30), async || {
        gateway.check()?;
        Ok(plain(admin, "/readyz").await?.status.is_success().then_some(()))
    })
    .await?;
    allowed(cluster, secure).await?;
    let load = Load::start(cluster.admin.clone(), through);
    let url = format!("http://{admin}/dashboard");
    let mut tab = Tab::start(cluster.programs.browser()?)?;
    tab.open(&url).await?;
    tab.ask("healthy", json!({})).await?;

    let rows = same_matrix(cluster, admin, &mut tab).await?;
    let found = tab.ask("search", json!({ "word": "deployments" })).await?;
    ensure!(found.as_u64() > Some(0), "no deployments among all APIs");
    let flow = tab.ask("flow", json!({})).await?;
    let (id, peer) = (cluster.server("b")?.id(), cluster.server("c")?.id());
    let lines = flow.as_array().map(Vec::as_slice).unwrap_or_default();
    let begins = |line: &&Value| line.as_str().is_some_and(|line| line.starts_with(&id));
    ensure!(lines.iter().find(begins).is_some(), "no line from {id}: {flow}");
    let hint = tab.ask("text", json!({ "selector": "#callers-note" })).await?;
    ensure!(hint.as_str().is_some_and(|hint| hint.contains("Names are shown over")), "{hint}");
    let checked = accessible(&mut tab).await?;
    pictures(&mut tab).await?;

    let after = killed(cluster, &mut tab, &peer).await?;
    accessible(&mut tab).await.context("with a dead peer")?;
    until("its gateway does not answer", Duration::from_secs(20), async || {
        let said = tab.ask("text", json!({ "selector": "#members-rows" })).await?;
        Ok(said.as_str().is_some_and(|said| said.contains("Connection refused")).then_some(()))
    })
    .await?;
    tab.picture("dashboard-killed.png", "light", 1440).await?;
    cluster.heal().await?;
    tab.ask("healthy", json!({})).await?;
    without_local_server(cluster, &mut tab, &url).await?;

    let cost = cost(gateway.id(), &mut tab, &url).await?;
    load.end();
    let growth = hour(&mut tab, &url).await?;
    let problems = tab.ask("problems", json!({})).await?;
    ensure!(problems == json!([]), "{problems}");
    Ok(format!(
        "a killed peer is shown after {} ms; {rows} rows as mvp skew; {checked} rules of axe-core pass in \
         both themes; {PAGES} pages cost {cost:.2} % of a core; an hour of events: {growth}",
        after.as_millis()
    ))
}

/// Other hosts: only certificates of the allowed group.
async fn allowed(cluster: &Cluster, secure: SocketAddr) -> anyhow::Result<()> {
    let path = "/dashboard";
    let page = cluster.admin.get(secure, path).await?;
    ensure!(page.status == 200 && page.body.starts_with(b"<!doctype html>"), "{}", page.status);
    for (client, code) in [(cluster.user("alice", &["developers"])?, 403), (cluster.nobody()?, 401)]
    {
        for path in [path, "/dashboard/apis", "/dashboard/events"] {
            let answer = client.get(secure, path).await?;
            ensure!(answer.status == code, "{path}: {}, not {code}", answer.status);
        }
    }
    Ok(())
}

/// Compares the table of the page with `mvp skew -o json`. Returns the number of rows.
async fn same_matrix(cluster: &Cluster, admin: SocketAddr, tab: &mut Tab) -> anyhow::Result<usize> {
    let address = format!("--admin-address={admin}");
    let mut command = Command::new(&cluster.programs.mvp);
    let output = command.args(["skew", "-o", "json", &address]).output().await?;
    let skew: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let servers: Vec<&str> = items(&skew, "/servers").map(|one| text(one, "/name")).collect();
    let expected: BTreeMap<String, Vec<String>> =
        items(&skew, "/apis").map(|api| (title(api), cells(api, &servers))).collect();
    let shown = tab.ask("matrix", json!({})).await?;
    let names: Vec<&str> = items(&shown, "/names").filter_map(Value::as_str).skip(1).collect();
    ensure!(names == servers, "columns {names:?}, not {servers:?}");
    let row = |row: &Value| {
        let mut texts = items(row, "").filter_map(Value::as_str).map(str::to_owned);
        (texts.next().unwrap_or_default(), texts.collect::<Vec<_>>())
    };
    let found: BTreeMap<String, Vec<String>> = items(&shown, "/rows").map(row).collect();
    ensure!(expected.len() > 1 && found == expected, "{found:#?}, not {expected:#?}");
    Ok(found.len())
}

/// The first cell of a row.
fn title(api: &Value) -> String {
    let (group, version) = (text(api, "/group"), text(api, "/version"));
    let part = api.pointer("/subresource").and_then(Value::as_str);
    let part = part.map(|part| format!("/{part}")).unwrap_or_default();
    let slash = if group.is_empty() { "" } else { "/" };
    format!("{}{part} {group}{slash}{version}", text(api, "/resource"))
}

/// The other cells: what each server does.
fn cells(api: &Value, servers: &[&str]) -> Vec<String> {
    let verbs = |server: &str| api.pointer("/servers").and_then(|all| all.get(server));
    let mut union: Vec<&str> = Vec::new();
    for verb in servers.iter().filter_map(|server| verbs(server)).flat_map(|one| items(one, "")) {
        let verb = verb.as_str().unwrap_or_default();
        if !union.contains(&verb) {
            union.push(verb);
        }
    }
    let cell = |server: &&str| match verbs(server) {
        None => "?".to_owned(),
        Some(Value::Null) => "no".to_owned(),
        Some(verbs) => {
            let has = |verb: &&&str| !items(verbs, "").any(|one| one == **verb);
            let missing: Vec<&str> = union.iter().filter(has).copied().collect();
            if missing.is_empty() {
                "yes".to_owned()
            } else {
                format!("without {}", missing.join(","))
            }
        }
    };
    servers.iter().map(cell).collect()
}

/// No violation in either theme. Returns the number of rules that pass in both.
async fn accessible(tab: &mut Tab) -> anyhow::Result<u64> {
    let mut least = u64::MAX;
    for theme in ["light", "dark"] {
        let found = tab.ask("axe", json!({ "theme": theme })).await?;
        let violations: Vec<&Value> = items(&found, "/violations").collect();
        ensure!(violations.is_empty(), "{theme}: {violations:#?}");
        let passes = found.pointer("/passes").and_then(Value::as_u64).context("no count")?;
        ensure!(passes > 20, "only {passes} rules apply");
        least = least.min(passes);
    }
    Ok(least)
}

/// The pictures of docs/dashboard.md and README.md.
async fn pictures(tab: &mut Tab) -> anyhow::Result<()> {
    tab.picture("dashboard-light.png", "light", 1440).await?;
    tab.picture("dashboard-dark.png", "dark", 1440).await?;
    tab.picture("dashboard-phone.png", "light", 390).await
}

/// Kills a peer with its gateway. Returns the time until the page shows it.
async fn killed(cluster: &mut Cluster, tab: &mut Tab, peer: &str) -> anyhow::Result<Duration> {
    tab.ask("watch", json!({ "id": peer })).await?;
    let server = cluster.server_mut("c")?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?;
    server.gateway()?.kill();
    server.kill();
    let shown = tab.ask("changed", json!({})).await?;
    let millis = shown.pointer("/at").and_then(Value::as_u64).context("no time")?;
    let after = Duration::from_millis(millis).saturating_sub(at);
    ensure!(after < SHOWN_WITHIN, "shown after {} ms: {shown}", after.as_millis());
    Ok(after)
}

/// A page opens while the server beside the gateway is down, and says so.
async fn without_local_server(
    cluster: &mut Cluster,
    tab: &mut Tab,
    url: &str,
) -> anyhow::Result<()> {
    cluster.server_mut("b")?.kill();
    tab.ask("close", json!({})).await?;
    tab.open(url).await?;
    until("the page says so", Duration::from_secs(20), async || {
        let said = tab.ask("text", json!({ "selector": "#findings" })).await?;
        let told = said.as_str().is_some_and(|said| said.contains("readyz local-server"));
        Ok(told.then_some(()))
    })
    .await?;
    cluster.heal().await?;
    tab.ask("healthy", json!({})).await.map(drop)
}

/// What the open pages cost the gateway, in percent of a core. The workers serve requests, not pages.
async fn cost(process: u32, tab: &mut Tab, url: &str) -> anyhow::Result<f64> {
    tab.ask("close", json!({})).await?;
    let without = used(process).await?;
    tab.ask("many", json!({ "url": url, "count": PAGES })).await?;
    // Until each page has got everything.
    sleep(Duration::from_secs(2)).await;
    let with = used(process).await?;
    tab.ask("many", json!({ "url": url, "count": 0 })).await?;
    let cost = (with - without).max(0.0);
    ensure!(cost < MOST_PERCENT, "{PAGES} pages cost {cost:.2} % of a core");
    Ok(cost)
}

/// The processor time of a process but for its workers, in percent of a core.
async fn used(process: u32) -> anyhow::Result<f64> {
    let before = ticks(process)?;
    sleep(MEASURED).await;
    // 100 ticks are a second.
    let ticks = ticks(process)?.saturating_sub(before);
    #[allow(clippy::cast_precision_loss, reason = "it is small")]
    Ok(ticks as f64 / MEASURED.as_secs_f64())
}

fn ticks(process: u32) -> anyhow::Result<u64> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let mut ticks = of_stat(&folder)?.1;
    for task in std::fs::read_dir(folder.join("task"))? {
        let (name, used) = of_stat(&task?.path())?;
        if name.starts_with("worker-") {
            ticks = ticks.saturating_sub(used);
        }
    }
    Ok(ticks)
}

/// The name in a `stat` file, and the time used.
fn of_stat(folder: &Path) -> anyhow::Result<(String, u64)> {
    let stat = std::fs::read_to_string(folder.join("stat"))?;
    let (start, rest) = stat.rsplit_once(") ").context("no name")?;
    let name = start.split_once('(').context("no name")?.1.to_owned();
    let fields = rest.split(' ').skip(11).take(2).map(str::parse::<u64>);
    Ok((name, fields.collect::<Result<Vec<_>, _>>()?.iter().sum()))
}

/// A page that stays open for an hour, in fast motion, does not grow; who fails comes first; hostile names
/// are only text, and leave the page as wide as it is.
async fn hour(tab: &mut Tab, url: &str) -> anyhow::Result<String> {
    let found = tab.ask("hour", json!({ "url": url, "seconds": 3600 })).await?;
    let value = |path: &str| found.pointer(path).and_then(Value::as_f64).context("no figure");
    for what in ["nodes", "listeners"] {
        let (before, after) =
            (value(&format!("/before/{what}"))?, value(&format!("/after/{what}"))?);
        ensure!(after <= before * 1.05, "{what} grow from {before} to {after}");
    }
    let (before, after) = (value("/before/heap")?, value("/after/heap")?);
    ensure!(after < before * MOST_GROWTH, "the heap grows from {before} to {after} bytes");
    let hostile = |what: &str| value(&format!("/hostile/{what}"));
    ensure!(hostile("shown")? > 15.0, "hostile names: {found}");
    for what in ["markup", "ran", "invisible", "wider"] {
        ensure!(hostile(what)? <= 0.0, "hostile names: {what}: {found}");
    }
    ensure!(found.pointer("/order") == Some(&json!(["own", "ill", "fine"])), "{found}");
    let callers = found.pointer("/hostile/callers");
    ensure!(callers == Some(&json!(["token:0a1b", "(more callers)"])), "{found}");
    let nodes = value("/after/nodes")?;
    Ok(format!("{nodes} nodes as before, heap {:.2} MB, was {:.2}", after / 1e6, before / 1e6))
}

/// Reads that a peer answers, all the time.
struct Load(JoinHandle<()>);

impl Load {
    fn start(client: Client, to: SocketAddr) -> Load {
        Load(tokio::spawn(async move {
            let mut pace = interval(Duration::from_millis(50));
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pace.tick().await;
                // While a server restarts, some fail: other cases count those.
                let _ = client.get(to, JOBS).await;
            }
        }))
    }

    fn end(self) {
        self.0.abort();
    }
}
