//! One `mvp` process replaces another on the same node.

use std::time::Instant;

use anyhow::{Context, ensure};

use crate::cluster::Cluster;
use crate::node::{NodeSpec, Nodes, Stream, Watches, tally};
use crate::programs::Minor;

const WATCHES: usize = 50;

pub(super) async fn replace(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "replace").await?;
    let node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    nodes.namespace(node.address(), "replace").await?;
    let mut gateway = node.gateway(&nodes, 0).await?;
    nodes.until_answered_by("mvp", node.address()).await?;
    let watches = Watches::open(&nodes.admin, node.address(), "replace", WATCHES).await?;
    let stream = Stream::start(&nodes.admin, node.address());
    stream.until_answered_by("mvp", Instant::now()).await?;

    // The new one stays, twice.
    let replaced = Instant::now();
    for number in 1..3 {
        let next = node.gateway(&nodes, number).await?;
        stream.goes_on(50).await?;
        gateway.end().await?;
        gateway = next;
        watches.until_resumed().await?;
        stream.goes_on(50).await?;
        stream.none_failed().context("the old one ended")?;
    }
    // The new one leaves first: the old one takes over again.
    let next = node.gateway(&nodes, 3).await?;
    stream.goes_on(50).await?;
    next.end().await?;
    stream.goes_on(50).await?;
    stream.none_failed().context("the new one ended")?;
    // On a busy machine a beat may be late: then kube-apiserver answers, which is no failure.
    let late = stream.after(replaced).into_iter().filter(|told| told.what == "server").count();
    // Both leave, one right after the other.
    let next = node.gateway(&nodes, 4).await?;
    stream.goes_on(20).await?;
    let (old, new) = tokio::join!(gateway.end(), next.end());
    old?;
    new?;
    watches.until_resumed().await?;
    stream.until_answered_by("server", Instant::now()).await?;
    // Those of a process that leaves are cut at the end of its grace period, as documented.
    let rejected = watches.rejected();
    ensure!(rejected == 0, "{rejected} watches were rejected");
    let watched = watches.end(&nodes.admin, node.address()).await?;
    let told = stream.end().await?;
    let failed = told.iter().filter(|told| told.failed()).count();
    ensure!(failed == 0, "connections failed: {}", tally(&told));
    Ok(format!(
        "5 processes came and left in both orders: {}, {late} of them at kube-apiserver while an mvp was \
         ready; {watched}",
        tally(&told)
    ))
}
