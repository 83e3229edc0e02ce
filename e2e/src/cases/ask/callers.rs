//! `mvp callers` and the count of averted 404s, on servers of two releases. The API is alpha, served
//! by `a` alone (1.36 with all APIs on); Kubernetes deprecated it in 1.35 and removes it in 1.38.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;
use tokio::process::Command;

use crate::cases::callers;
use crate::client::plain;
use crate::cluster::Cluster;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies";
const NAMES: (&str, &str) = ("v1alpha1", "mutatingadmissionpolicies");
const ROBIN: &str = "system:serviceaccount:default:robin";

pub(super) async fn of_a_removed_api(cluster: &mut Cluster) -> anyhow::Result<String> {
    let from = cluster.client_address();
    let frank = callers::by_certificate(cluster).await?.with_header("user-agent", "e2e-frank/1")?;
    let robin = callers::by_token(cluster).await?.with_header("user-agent", "e2e-robin/2")?;
    let (frank, robin) = (frank.from(from), robin.from(from));
    let directly = frank.get(cluster.server("b")?.direct(), POLICIES).await?;
    ensure!(directly.status == 404, "b serves the API: {directly}");

    // A gateway of its own, so that all counts are known.
    let (mut gateway, through) = cluster.another_gateway("b", |_| ())?;
    let admin = std::net::SocketAddr::new(through.ip(), 7480);
    until("the gateway is ready", Duration::from_secs(30), async || {
        gateway.check()?;
        Ok(plain(admin, "/readyz").await?.status.is_success().then_some(()))
    })
    .await?;
    for _ in 0..3 {
        frank.get(through, POLICIES).await?.expect(200)?;
    }
    robin.get(through, POLICIES).await?.expect(200)?;
    // Neither is a false 404: an object that does not exist, and what b serves itself.
    frank.get(through, &format!("{POLICIES}/none")).await?.expect(404)?;
    frank.get(through, "/api/v1/namespaces/default/configmaps").await?.expect(200)?;
    // A rejected token is nobody's call.
    let forged = cluster.nobody()?.with_token("e2e-forged-token")?;
    ensure!(forged.get(through, POLICIES).await?.status == 401, "a forged token");

    let shown = ask(cluster, &["--removed-in=1.38", "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&shown)?;
    let resources = report.pointer("/resources").and_then(Value::as_array).context("no list")?;
    let [api] = resources.as_slice() else { anyhow::bail!("not one API: {report}") };
    let text = |value: &Value, name: &str| -> String {
        value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let named = (text(api, "group"), text(api, "version"), text(api, "resource"));
    ensure!(named == (GROUP.into(), NAMES.0.into(), NAMES.1.into()), "{api}");
    ensure!(text(api, "removedIn") == "1.38", "{api}");
    let callers = api.get("callers").and_then(Value::as_array).context("no callers")?;
    let mut seen: Vec<_> = callers
        .iter()
        .map(|c| (text(c, "user"), text(c, "userAgent"), c.get("requests").and_then(Value::as_u64)))
        .collect();
    seen.sort();
    let expected = [
        ("frank".to_owned(), "e2e-frank/1".to_owned(), Some(4)),
        (ROBIN.to_owned(), "e2e-robin/2".to_owned(), Some(1)),
    ];
    ensure!(seen == expected, "{seen:?}");

    let table = ask(cluster, &["mutatingadmissionpolicies", "--deprecated"]).await?;
    ensure!(table.contains(ROBIN) && table.contains("e2e-frank/1"), "{table}");
    ensure!(!table.contains(&from.to_string()), "an address without --addresses:\n{table}");
    let table = ask(cluster, &["--addresses"]).await?;
    let lines = table.lines().filter(|line| line.contains(&from.to_string())).count();
    ensure!(lines == 3, "the client's address {from} in {lines} of 3 lines:\n{table}");
    ensure!(table.contains("v1/configmaps"), "{table}");
    let secret = plain(admin, "/debug/callers").await?;
    ensure!(secret.status == 403, "over TCP: {secret}");

    let metrics = plain(admin, "/metrics").await?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let labels = format!(r#"group="{GROUP}",version="{}",resource="{}""#, NAMES.0, NAMES.1);
    for (name, labels, value) in [
        ("mvp_false_not_found_averted_total", labels.clone(), 4),
        ("mvp_deprecated_api_callers", format!(r#"{labels},removed_release="1.38""#), 2),
    ] {
        let line = format!("{name}{{{labels}}} {value}");
        // The counter begins with a series of 0, without labels.
        let counted = |line: &&str| line.starts_with(name) && !line.ends_with(" 0");
        let found: Vec<_> = metrics.lines().filter(counted).collect();
        ensure!(found == [line.as_str()], "expected {line}, got {found:?}");
    }
    Ok("frank (certificate) and robin (token) with their user agents; 4 false 404s averted".into())
}

/// The output of `mvp callers`.
async fn ask(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<String> {
    let socket = format!("--admin-socket={}", cluster.another_socket().display());
    let mut command = Command::new(&cluster.programs.mvp);
    let output = command.arg("callers").args(arguments).arg(socket).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && errors.is_empty(), "mvp callers {arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
