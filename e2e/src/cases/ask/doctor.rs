//! `mvp doctor` on a sound cluster, and with planted faults.

mod double;
mod plants;

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::{TryStreamExt, stream};
use serde_json::Value;
use testkit::process::{Signal, until};
use tokio::process::Command;
use tokio::time::timeout;

use self::plants::{Expected, Fault};
use crate::cases::membership::allow;
use crate::client::plain;
use crate::cluster::Cluster;

const WITHIN: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// How many doctors run at a time.
const PARALLEL: usize = 4;

/// Nothing is found on a sound cluster: in a planned configuration with and without Leases, and at a
/// running gateway, which tells its flags over its socket only.
pub(super) async fn sound(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = planned(cluster)?;
    until("the rights are known", WITHIN, async || {
        let report = Report::of(cluster, &flags).await?;
        Ok(report.findings().is_empty().then_some(()))
    })
    .await?;
    let report = Report::of(cluster, &flags).await?;
    report.is_sound()?;
    for group in ["configuration", "certificates", "local-server", "rights", "members", "host"] {
        ensure!(report.names(group).next().is_some(), "no check of {group}: {report:?}");
    }
    for name in ["server-b", "server-c"] {
        let detail = report.detail("members", name)?;
        ensure!(detail.contains("gateway, v1.34") && detail.contains("trusts us"), "{detail}");
    }
    for name in ["accepts our identity", "request-header CA", "allowed names", "headers", "HTTP/2"]
    {
        report.detail("local-server", name)?;
    }
    // A gateway that keeps a Lease is found by it; the doctor keeps none.
    let (mut process, address) = cluster.another_gateway("b", by_leases)?;
    let admin = std::net::SocketAddr::new(address.ip(), 7480);
    until("the gateway is ready and has its Lease", WITHIN, async || {
        process.check()?;
        let ready = plain(admin, "/readyz").await?.status.is_success();
        Ok((ready && !leases(cluster).await?.is_empty()).then_some(()))
    })
    .await?;
    let before = leases(cluster).await?;
    let mut by_lease = flags.clone();
    by_leases(&mut by_lease);
    let report = Report::of(cluster, &by_lease).await?;
    report.is_sound()?;
    let found = report.detail("members", "server-b")?;
    ensure!(found.contains("(Leases)"), "found in another way: {found}");
    ensure!(leases(cluster).await? == before, "Leases changed");

    let socket = format!("--admin-socket={}", cluster.another_socket().display());
    let running = Report::of(cluster, &[socket]).await?;
    running.is_sound()?;
    for group in ["gateway", "certificates", "local-server", "rights"] {
        ensure!(running.names(group).next().is_some(), "no check of {group}: {running:?}");
    }
    let over_tcp = Report::of(cluster, &[format!("--admin-address={admin}")]).await?;
    over_tcp.is_sound()?;
    ensure!(over_tcp.names("certificates").next().is_none(), "flags over TCP: {over_tcp:?}");
    // Later cases must not find its Lease.
    process.signal(Signal::TERM)?;
    process.exited(WITHIN).await?;
    let count = running.checks.len();
    Ok(format!("{count} checks of a running gateway, none of which finds anything"))
}

/// Each planted fault is found by its check.
pub(super) async fn faults(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = planned(cluster)?;
    let plants = plants::all(cluster).await?;
    let count = plants.len();
    let cluster = &*cluster;
    stream::iter(plants.into_iter().map(Ok))
        .try_for_each_concurrent(PARALLEL, |fault: Fault| {
            let mut flags = flags.clone();
            async move {
                fault.plant(&mut flags);
                let report = Report::of(cluster, &flags).await?;
                report.has_only(&fault.expected).with_context(|| format!("planted: {}", fault.name))
            }
        })
        .await?;
    let rights = missing_rights(cluster, &flags).await?;
    Ok(format!("{} planted faults, each found by the check that names it", count + rights))
}

/// Takes rights away from `mvp`, and returns them.
async fn missing_rights(cluster: &Cluster, flags: &[String]) -> anyhow::Result<usize> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    let mut by_lease = flags.to_vec();
    by_leases(&mut by_lease);
    let lost = [
        ("mixed-version-proxy", &*by_lease, Expected::fail("Leases", "deploy/rbac.yaml", &[])),
        (
            "mixed-version-proxy-request-headers",
            flags,
            Expected::warn("authentication ConfigMap", "deploy/rbac.yaml", &[]),
        ),
    ];
    for (binding, flags, expected) in &lost {
        kubectl.run(["-n", "kube-system", "delete", "rolebinding", binding], None).await?;
        let report = until("the server knows it", WITHIN, async || {
            let report = Report::of(cluster, flags).await?;
            Ok((!report.findings().is_empty()).then_some(report))
        });
        let report = report.await?;
        allow(cluster).await?;
        report.has_only(expected).with_context(|| format!("without {binding}"))?;
        until("the right is back", WITHIN, async || {
            Ok(Report::of(cluster, flags).await?.findings().is_empty().then_some(()))
        })
        .await?;
    }
    Ok(lost.len())
}

/// The flags of one more gateway beside `a`, which could be started now.
fn planned(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    Ok(cluster.another_arguments("a")?.into_iter().filter(|word| word != "serve").collect())
}

/// Finds members by Leases instead of flags.
fn by_leases(flags: &mut Vec<String>) {
    let bind = flags.iter().find_map(|flag| flag.strip_prefix("--bind-address="));
    let advertise = format!("--peer-advertise-ip={}", bind.unwrap_or_default());
    flags.retain(|flag| !flag.starts_with("--peer="));
    flags.extend(["--membership=leases".to_owned(), advertise]);
}

/// The names of all Leases of gateways.
async fn leases(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let list = cluster.admin.get(cluster.server("a")?.direct(), LEASES).await?.expect(200)?;
    let items = list.get("items").and_then(Value::as_array).context("no Leases")?;
    let names = items.iter().filter_map(|item| item.pointer("/metadata/name")?.as_str());
    Ok(names.filter(|name| name.starts_with("mvp-")).map(str::to_owned).collect())
}

/// What the doctor printed.
#[derive(Debug)]
struct Report {
    checks: Vec<Value>,
    code: Option<i32>,
}

impl Report {
    async fn of(cluster: &Cluster, flags: &[String]) -> anyhow::Result<Report> {
        let mut doctor = Command::new(&cluster.programs.mvp);
        doctor.args(["doctor", "-o", "json"]).args(flags).kill_on_drop(true);
        let output = timeout(WITHIN, doctor.output()).await.context("it hangs")??;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed: Value = serde_json::from_slice(&output.stdout).with_context(|| errors)?;
        let checks = printed.get("checks").and_then(Value::as_array).context("no checks")?;
        Ok(Report { checks: checks.clone(), code: output.status.code() })
    }

    /// The checks that fail or warn.
    fn findings(&self) -> Vec<&Value> {
        let found = |check: &&Value| matches!(text(check, "result"), "fail" | "warn");
        self.checks.iter().filter(found).collect()
    }

    fn is_sound(&self) -> anyhow::Result<()> {
        let found = self.findings();
        ensure!(found.is_empty() && self.code == Some(0), "found {found:#?}, exit {:?}", self.code);
        Ok(())
    }

    fn names<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a str> {
        let of_group = move |check: &&Value| text(check, "group") == group;
        self.checks.iter().filter(of_group).map(|check| text(check, "name"))
    }

    /// The detail of a check that is ok.
    fn detail(&self, group: &str, name: &str) -> anyhow::Result<&str> {
        let is = |check: &&Value| text(check, "group") == group && text(check, "name") == name;
        let check = self.checks.iter().find(is);
        let check = check.with_context(|| format!("no check {group} {name}: {self:#?}"))?;
        ensure!(text(check, "result") == "ok", "{check}");
        Ok(text(check, "detail"))
    }

    /// The expected finding with its fix, and nothing but its consequences.
    fn has_only(&self, expected: &Expected) -> anyhow::Result<()> {
        let found = self.findings();
        let check = found.iter().find(|check| text(check, "name") == expected.check);
        let check = check.with_context(|| format!("no {}: {found:#?}", expected.check))?;
        ensure!(text(check, "result") == expected.result, "{check}");
        let (detail, fix) = (text(check, "detail"), text(check, "fix"));
        ensure!(!fix.is_empty(), "it has no fix: {check}");
        let told = format!("{detail} {fix}");
        ensure!(told.contains(expected.word), "{:?} expected: {check}", expected.word);
        let known = |check: &&&Value| {
            let name = text(check, "name");
            name == expected.check || expected.consequences.contains(&name)
        };
        let others: Vec<_> = found.iter().filter(|check| !known(check)).collect();
        ensure!(others.is_empty(), "also found: {others:#?}");
        let fails = found.iter().any(|check| text(check, "result") == "fail");
        ensure!(self.code == Some(i32::from(fails)), "exit code {:?}", self.code);
        Ok(())
    }
}

fn text<'a>(check: &'a Value, key: &str) -> &'a str {
    check.get(key).and_then(Value::as_str).unwrap_or_default()
}
