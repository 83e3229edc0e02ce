//! `mvp status` on servers of two versions, before and after a member dies.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;
use tokio::process::Command;

use crate::cluster::{Cluster, Server};

/// `b` does not serve it.
const JOBS: &str = "/apis/batch/v1/jobs";
/// Only `a` has every alpha API on.
const ONLY_A: &str = "/apis/coordination.k8s.io/v1alpha2/leasecandidates";

/// Runs `mvp status` for the gateway of a server: the exit code, and what it prints.
async fn status(
    cluster: &Cluster,
    server: &Server,
    flags: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let address = format!("--admin-address={}", server.gateway_admin());
    let mut command = Command::new(&cluster.programs.mvp);
    let output = command.arg("status").arg(address).args(flags).output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text)?))
}

/// A count of the gateway's own report.
async fn count(cluster: &Cluster, server: &Server, list: &str, name: &str) -> anyhow::Result<u64> {
    let (_, text) = status(cluster, server, &["-o", "json"]).await?;
    let document: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let list = document.pointer(&format!("/gateways/0/status/{list}")).and_then(Value::as_array);
    let mut counts = list.with_context(|| format!("no {list:?} in {text}"))?.iter();
    let found = counts.find(|count| count.get("name").is_some_and(|found| found == name));
    Ok(found.and_then(|found| found.get("count")?.as_u64()).unwrap_or(0))
}

/// The words of the first line that starts with this word.
fn words<'a>(screen: &'a str, first: &str) -> anyhow::Result<Vec<&'a str>> {
    let mut lines = screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|words| words.first() == Some(&first));
    line.with_context(|| format!("no line of {first} in\n{screen}"))
}

/// Whether a screen has these words, however they are wrapped.
fn says(screen: &str, text: &str) -> anyhow::Result<()> {
    let joined = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(joined.contains(text), "not said: {text}\n{screen}");
    Ok(())
}

pub(super) async fn one_gateway_and_all(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = cluster.admin.clone();
    let b = cluster.server("b")?;
    let proxied = count(cluster, b, "requests", "peers").await?;
    for _ in 0..5 {
        admin.get(b.through(), JOBS).await?.expect(200)?;
    }
    let now = count(cluster, b, "requests", "peers").await?;
    ensure!(now == proxied + 5, "{proxied} requests were proxied, and {now} after 5 more");
    // A client gets what the server has at that path, which is nothing.
    admin.get(b.through(), "/mvp/status").await?.expect(404)?;

    let (code, screen) = status(cluster, b, &[]).await?;
    ensure!(code == Some(0), "exit code {code:?}\n{screen}");
    let members = [("server-a", "1.36"), ("server-b", "1.34"), ("server-c", "1.36")];
    ensure!(screen.starts_with("server-b   ready   mvp "), "{screen}");
    says(&screen, "beside Kubernetes 1.34")?;
    let (_, table) = screen.split_once("\nMembers\n").context("no members")?;
    for (id, release) in members {
        let state = if id == "server-b" { "local" } else { "present" };
        let line = words(table, id)?;
        ensure!(line.starts_with(&[id, "mvp", release, state, "fresh"]), "{line:?}\n{screen}");
    }
    says(&screen, &format!("{now} peers proxied to a peer"))?;
    says(&screen, "--requestheader-client-ca-file")?;

    let (code, all) = status(cluster, b, &["--all"]).await?;
    ensure!(code == Some(0), "exit code {code:?}\n{all}");
    for (id, release) in members {
        let line = words(&all, id)?;
        ensure!(line.starts_with(&[id, "ready", release]), "{line:?}\n{all}");
        ensure!(line.contains(&"3/3"), "{line:?}\n{all}");
    }

    // Its server lives on.
    let before = count(cluster, b, "refusals", "nobody-reachable").await?;
    cluster.server_mut("a")?.gateway()?.kill();
    let b = cluster.server("b")?;
    until("b refuses what only a serves", Duration::from_secs(30), async || {
        Ok((admin.get(b.through(), ONLY_A).await?.status == 503).then_some(()))
    })
    .await?;
    let refused = count(cluster, b, "refusals", "nobody-reachable").await? - before;
    ensure!(refused > 0, "no refusal is counted");
    let screen = until("the view of a is stale", Duration::from_secs(30), async || {
        let (_, screen) = status(cluster, b, &[]).await?;
        Ok(screen.contains("server-a has not confirmed its APIs for").then_some(screen))
    })
    .await?;
    says(
        &screen,
        "refused with 503, nobody-reachable: no member that serves it responds look at the members",
    )?;
    says(&screen, "coordination.k8s.io/v1alpha2 leasecandidates proxy_transport")?;
    let (code, all) = status(cluster, b, &["--all"]).await?;
    ensure!(code == Some(3), "exit code {code:?}\n{all}");
    ensure!(words(&all, "server-a")?.starts_with(&["server-a", "no", "answer"]), "{all}");
    ensure!(words(&all, "server-c")?.starts_with(&["server-c", "ready", "1.36"]), "{all}");
    says(&all, "server-a: no answer: ")?;
    cluster.heal().await?;
    Ok(format!(
        "5 proxied requests are counted; three members of two releases in one screen; after a gateway \
         was killed: {refused} refusals with advice, no answer of it, exit code 3"
    ))
}
