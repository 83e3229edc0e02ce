//! kube-apiserver below `mvp` is replaced by one of another release, under load.

use std::time::Instant;

use anyhow::ensure;

use crate::cases::objects;
use crate::cluster::{Cluster, ServerSpec};
use crate::load::Sentinel;
use crate::node::{NodeSpec, Nodes, Retrying, Stream, Watches, tally};
use crate::programs::Minor;

pub(super) async fn upgrade(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "upgrade").await?;
    let mut a = nodes.node(0, NodeSpec::new("a", Minor::V1_34)).await?;
    let b = nodes.node(1, NodeSpec::new("b", Minor::V1_34)).await?;
    let gateways = [a.gateway(&nodes, 0).await?, b.gateway(&nodes, 0).await?];
    let to = a.address();
    nodes.until_answered_by("mvp", to).await?;
    nodes.until_answered_by("mvp", b.address()).await?;
    nodes.namespace(to, "upgrade").await?;
    let retrying = Retrying::start(&nodes.admin, to, "upgrade", (2, 1));
    let watches = Watches::open(&nodes.admin, to, "upgrade", 20).await?;
    let stream = Stream::start(&nodes.admin, to);
    // Only 1.34 serves it: after the upgrade, only the other node.
    let older = objects::old_volume_class("").collection;
    let asks_older = Sentinel::start(&nodes.admin, &[to], &older);
    stream.goes_on(100).await?;

    let since = Instant::now();
    a.stop_server().await?;
    stream.goes_on(100).await?;
    a.spec.server = ServerSpec::of_release("a", Minor::V1_36);
    a.start_server(&nodes)?;
    a.server_ready(&nodes).await?;
    let took = since.elapsed().as_secs_f64();
    stream.goes_on(200).await?;

    let older = asks_older.between(since, Instant::now());
    ensure!(older.of("404") == 0 && older.of("200") > 0, "what only 1.34 has: {older}");
    let watched = watches.end(&nodes.admin, to).await?;
    let retried = retrying.end(&nodes.admin, to).await?;
    let told = stream.end().await?;
    retried.faultless()?;
    let failed = told.iter().filter(|told| told.failed()).count();
    ensure!(failed == 0, "connections failed: {}", tally(&told));
    for gateway in gateways {
        gateway.end().await?;
    }
    Ok(format!(
        "1.34 to 1.36 in {took:.0} s: {retried}; {watched}; reads of what only 1.34 has {older}; new \
         connections {}",
        tally(&told)
    ))
}
