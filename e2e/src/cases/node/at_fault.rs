//! A gateway that its server rejects must give the connections back: kube-apiserver is healthy, and
//! without `mvp` its clients would be served.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::pki::PairFiles;
use testkit::process::until;

use crate::cluster::Cluster;
use crate::node::{Bind, NodeSpec, Nodes, Stream, Told, tally};
use crate::programs::Minor;

pub(super) async fn at_fault(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "at-fault").await?;
    let mut node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    // The proxy client certificate in files of its own, to which a faulty renewal writes.
    let file = |name: &str| nodes.folder.join(name);
    let used = PairFiles { certificate: file("proxy.crt"), key: file("proxy.key") };
    let good = nodes.pki.files().front_proxy();
    let wrong = nodes.pki.untrusted_user("front-proxy-client", &[])?;
    write(&good, &used)?;
    let mut flags = node.gateway_flags(&nodes, node.admin_address(0));
    flags.retain(|flag| !flag.starts_with("--proxy-client-"));
    flags.push(format!("--proxy-client-cert-file={}", used.certificate.display()));
    flags.push(format!("--proxy-client-key-file={}", used.key.display()));
    let mut gateway = node.run_gateway(&nodes.programs.mvp, 0, flags)?;
    gateway.ready().await?;
    nodes.until_answered_by("mvp", node.address()).await?;
    let stream = Stream::start(&nodes.admin, node.address());

    let renewed = Instant::now();
    write(&wrong, &used)?;
    stream.until_answered_by("server", renewed).await?;
    let paused = Instant::now();
    let answer = crate::client::plain(gateway.admin, "/readyz?verbose").await?;
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 500 || answer.status == 503, "/readyz: {answer}");
    ensure!(said.contains("proxy client certificate"), "/readyz does not name the reason: {said}");
    stream.goes_on(100).await?;
    let meanwhile = stream.after(paused);

    let repaired = Instant::now();
    write(&good, &used)?;
    stream.until_answered_by("mvp", repaired).await?;
    until("the gateway is ready again", Duration::from_secs(60), async || {
        crate::client::plain(gateway.admin, "/readyz").await?.expect(200).map(Some)
    })
    .await?;
    node.check_server()?;
    let all = stream.end().await?;

    // kube-apiserver starts with another address than the one at which the gateway looks for it.
    node.stop_server().await?;
    node.spec.bind = Bind::Advertised;
    let restarted = Instant::now();
    node.start_server(&nodes)?;
    node.server_ready(&nodes).await.context("kube-apiserver on another address")?;
    let moved = restarted.elapsed().as_secs_f64();
    nodes.until_answered_by("server", node.address()).await?;
    gateway.end().await?;
    let failed: Vec<Told> = meanwhile.into_iter().filter(Told::failed).collect();
    ensure!(failed.is_empty(), "connections failed at kube-apiserver: {}", tally(&failed));
    let failed = all.iter().filter(|told| told.failed()).count();
    Ok(format!(
        "a proxy certificate that the server rejects: kube-apiserver answers after {:.1} s, /readyz \
         says why; {failed} of {} requests failed until then; a server that moved to one address is \
         ready {moved:.0} s after its start",
        paused.duration_since(renewed).as_secs_f64(),
        all.len()
    ))
}

/// Writes a certificate and its key over another pair.
fn write(from: &PairFiles, to: &PairFiles) -> anyhow::Result<()> {
    std::fs::copy(&from.certificate, &to.certificate)?;
    std::fs::copy(&from.key, &to.key)?;
    Ok(())
}
