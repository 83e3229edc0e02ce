//! Members by Leases: those of gateways, and those of servers with the Kubernetes proxy.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::Signal;
use tokio::process::Command;

use super::super::objects;
use super::{Finder, LEASES, allow, etcd, found, has_left, is_present, rbac};
use crate::client::plain;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "membership/leases",
            leases,
            "gateways find each other by Leases, with the rights of deploy/rbac.yaml"
        ),
        case!(
            Mixed,
            "membership/shutdown",
            shutdown,
            "the watches of an idle gateway do not hold up the end of its kube-apiserver"
        ),
        case!(
            Native,
            "membership/bare",
            bare,
            "servers with the Kubernetes proxy are members by their own Leases and keys"
        ),
    ]
}

async fn leases(cluster: &mut Cluster) -> anyhow::Result<String> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["delete", "--ignore-not-found", "-f", &rbac()], None).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut b = Finder::start(cluster, "b", 16443, &flags)?;
    b.fails("the API server denies permission").await?;
    allow(cluster).await?;
    b.ready().await?;

    let a = Finder::start(cluster, "a", 16443, &flags)?;
    let c = Finder::start(cluster, "c", 16443, &flags)?;
    let mut all = [a, b, c];
    let started = Instant::now();
    found(cluster, &mut all).await?;
    let together = started.elapsed().as_secs_f64();
    let [mut a, b, mut c] = all;
    let list = cluster.admin.get(cluster.server("a")?.direct(), LEASES).await?.expect(200)?;
    let items = list.get("items").and_then(Value::as_array).context("no Leases")?;
    let text = |item: &Value, pointer: &str| {
        item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let ours = items.iter().filter(|item| text(item, "/metadata/name").starts_with("mvp-"));
    let identity = "/metadata/labels/apiserver.kubernetes.io~1identity";
    let ours: Vec<&Value> = ours.collect();
    ensure!(ours.len() == 3, "{} Leases of ours", ours.len());
    ensure!(ours.iter().all(|item| text(item, identity).is_empty()), "taken for kube-apiservers");

    // A gateway that stops deletes its Lease.
    c.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-c", has_left).await?;
    c.process.exited(Duration::from_secs(30)).await?;
    // `mvp forget` removes it.
    let admin = format!("--admin-socket={}", b.socket.display());
    let forgot = Command::new(&cluster.programs.mvp).args(["forget", "finder-c", &admin]).output();
    let forgot = forgot.await?;
    ensure!(forgot.status.success(), "{}", String::from_utf8_lossy(&forgot.stderr));
    b.until("nothing", "finder-c", Value::is_null).await?;
    let again = Command::new(&cluster.programs.mvp).args(["forget", "finder-c", &admin]).output();
    ensure!(again.await?.status.code() == Some(1), "who is not there cannot be forgotten");

    // A gateway that is killed and returns at another address is known there.
    a.process.kill();
    let mut a = Finder::start(cluster, "a", 16543, &flags)?;
    a.ready().await?;
    let address = json!(a.through.to_string());
    let moved = |member: &Value| is_present(member) && member.get("address") == Some(&address);
    let moved = b.until("at its new address", "finder-a", moved).await?;
    let job = objects::job("default", "x");
    cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
    Ok(format!(
        "denied access is reported; three gateways found after {together:.1} s; a stop noticed after \
         {:.1} s, an ID at a new address {:.0} s after it is ready",
        left.as_secs_f64(),
        moved.as_secs_f64()
    ))
}

/// Servers with Kubernetes' own proxy are members without a gateway.
async fn bare(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let etcd = format!("--etcd-servers={}", cluster.etcd_url());
    let mut figures = Vec::new();
    for (port, flags) in [
        (16843, vec!["--membership=leases".to_owned()]),
        (16943, vec!["--membership=etcd".to_owned(), etcd]),
    ] {
        let mut b = Finder::start(cluster, "b", port, &flags)?;
        b.ready().await?;
        let snapshot = plain(b.admin, "/debug/snapshot").await?.json();
        let members = snapshot.get("members").and_then(Value::as_array).context("no members")?;
        let bare: Vec<&Value> =
            members.iter().filter(|member| member.get("kind") == Some(&json!("bare"))).collect();
        let known = |name: &str| {
            let address = cluster.server(name).map(|server| json!(server.direct().to_string()));
            let address = address.unwrap_or_default();
            bare.iter().any(|member| member.get("address") == Some(&address))
        };
        ensure!(!known("b"), "its own server is nobody's peer: {snapshot}");
        ensure!(known("a") && known("c"), "{flags:?}: {snapshot}");
        let job = objects::job("default", "x");
        cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
        figures.push(flags.first().cloned().unwrap_or_default());
    }
    let stored = etcd::stored_as_protobuf(cluster).await?;
    Ok(format!(
        "a and c are found by {}, {stored} keys stored as protobuf; b reaches batch/v1 through them",
        figures.join(" and ")
    ))
}

/// kube-apiserver waits for open watches, for up to a minute.
async fn shutdown(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    // With a gateway that watches nothing.
    let without = ends(cluster, "b").await?;
    let flags = ["--membership=leases,endpoints".to_owned()];
    let mut b = Finder::start(cluster, "b", 16443, &flags)?;
    b.ready().await?;
    let with = ends(cluster, "b").await?;
    // It watches again: it finds a gateway that starts now.
    let mut a = Finder::start(cluster, "a", 16443, &flags)?;
    a.ready().await?;
    b.ready().await?;
    b.until("present", "finder-a", is_present).await?;
    let (without, with) = (without.as_secs_f64(), with.as_secs_f64());
    Ok(format!("ends {with:.1} s after SIGTERM; {without:.1} s without our watches"))
}

/// Ends a kube-apiserver and starts it again. Returns how long it took to end.
async fn ends(cluster: &mut Cluster, name: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let process = cluster.server_mut(name)?.process()?;
    process.signal(Signal::TERM)?;
    process.exited(Duration::from_secs(20)).await.context("it waits for watches")?;
    let took = started.elapsed();
    let (index, admin) = (cluster.index(name)?, cluster.admin.clone());
    cluster.start_server(index)?;
    cluster.server_mut(name)?.ready(&admin, Duration::from_secs(120)).await?;
    Ok(took)
}
