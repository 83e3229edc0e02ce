//! Connections to members through an HTTP CONNECT proxy at a Unix socket, as upstream's test of the
//! egress dialer has it.

use anyhow::{Context, ensure};
use testkit::connect_proxy::ConnectProxy;
use testkit::process::until;

use super::objects;
use super::routing::{life, not_routed};
use crate::client::plain;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "routing/egress",
        egress,
        "an API of another server works through an HTTP CONNECT proxy at a Unix socket, and only through it"
    )]
}

const SOON: std::time::Duration = std::time::Duration::from_secs(60);

async fn egress(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("egress").await?;
    let socket = cluster.folder().join("egress.sock");
    let proxy = ConnectProxy::unix(&socket).context("the proxy")?;
    let file = cluster.folder().join("egress.yaml");
    let text = format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n\
         egressSelections:\n- name: controlplane\n  connection:\n    proxyProtocol: HTTPConnect\n    \
         transport:\n      uds:\n        udsName: {}\n",
        socket.display()
    );
    std::fs::write(&file, text)?;
    let (mut process, through) = cluster.another_gateway("b", |flags| {
        flags.push(format!("--egress-selector-config-file={}", file.display()));
    })?;
    let admin = std::net::SocketAddr::new(through.ip(), 7480);
    process.ready(SOON, async || plain(admin, "/readyz").await?.expect(200).map(drop)).await?;

    let kind = objects::job("egress", "one");
    not_routed(&cluster.admin, cluster.server("b")?.direct(), &kind).await?;
    let verbs = life(&cluster.admin, through, &kind).await?;
    let asked = proxy.asked();
    let members = [cluster.server("a")?.through(), cluster.server("c")?.through()];
    let known = |asked: &String| members.iter().any(|member| member.to_string() == *asked);
    ensure!(!asked.is_empty() && asked.iter().all(known), "the proxy was asked for {asked:?}");

    // Without the proxy no other server can be reached: nothing goes around it.
    drop(proxy);
    until("jobs are not served without the proxy", SOON, async || {
        let answer = cluster.admin.get(through, &kind.collection).await?;
        Ok((answer.status == 503).then_some(()))
    })
    .await?;
    Ok(format!("{verbs} requests over {} connections of the proxy; 503 without it", asked.len()))
}
