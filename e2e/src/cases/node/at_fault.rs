//! A gateway that cannot use its server must give the connections back: kube-apiserver is healthy, and
//! without `mvp` its clients would be served.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::kubernetes::file_flag;
use testkit::process::until;

use crate::cluster::Cluster;
use crate::node::{Bind, NodeSpec, Nodes};
use crate::programs::Minor;

pub(super) async fn at_fault(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "at-fault").await?;
    let mut node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    let gateway = node.gateway(&nodes, 0).await?;
    nodes.until_answered_by("mvp", node.address()).await?;

    // kube-apiserver comes back with another CA of front proxies: it rejects the gateway.
    node.stop_server().await?;
    node.spec.server.flags.push(file_flag("requestheader-client-ca-file", &nodes.pki.files().ca()));
    node.start_server(&nodes)?;
    node.server_ready(&nodes).await.context("kube-apiserver with another CA")?;
    let ready = Instant::now();
    until("/readyz names the reason", Duration::from_secs(30), async || {
        let answer = crate::client::plain(gateway.admin, "/readyz?verbose").await?;
        let said = String::from_utf8_lossy(&answer.body);
        ensure!(said.contains("rejects the proxy client certificate"), "{answer}");
        Ok(Some(()))
    })
    .await?;
    let rejected = ready.elapsed().as_secs_f64();
    ensure!(nodes.who(node.address()).await? == "server", "mvp still gets connections");

    // It comes back with the right CA.
    node.stop_server().await?;
    node.spec.server.flags.pop();
    node.start_server(&nodes)?;
    nodes.until_answered_by("mvp", node.address()).await.context("after the repair")?;

    // It listens at another address than the one at which the gateway looks for it.
    node.stop_server().await?;
    node.spec.bind = Bind::Advertised;
    let restarted = Instant::now();
    node.start_server(&nodes)?;
    node.server_ready(&nodes).await.context("kube-apiserver on another address")?;
    let moved = restarted.elapsed().as_secs_f64();
    nodes.until_answered_by("server", node.address()).await?;
    gateway.end().await?;
    Ok(format!(
        "a server that rejects the gateway gets its connections back {rejected:.1} s after it is ready, \
         /readyz says why; mvp answers again after the repair; a server that moved to one address is \
         ready {moved:.0} s after its start"
    ))
}
