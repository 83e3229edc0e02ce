//! Connections from before the steering: counted, then ended by `mvp adopt`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;

use crate::cluster::Cluster;
use crate::node::{Gateway, NodeSpec, Nodes, PORT, Watches};
use crate::programs::Minor;

const WATCHES: usize = 30;
/// The connections that may be ended in a second.
const RATE: usize = 10;
/// The duration of a watch over loopback, which must not be ended.
const LOOPBACK_SECONDS: u64 = 20;

pub(super) async fn adopt(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "adopt").await?;
    let node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    nodes.namespace(node.address(), "adopt").await?;
    let watches = Watches::open(&nodes.admin, node.address(), "adopt", WATCHES).await?;
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    let path =
        format!("/api/v1/namespaces/adopt/configmaps?watch=true&timeoutSeconds={LOOPBACK_SECONDS}");
    let on_host = node.get_from_host(&nodes, loopback, &path);
    let adopted = async {
        let gateway = node.gateway(&nodes, 0).await?;
        unsteered(&gateway, "connections from before are counted", |number| number >= WATCHES)
            .await?;
        let started = Instant::now();
        let output = node
            .command(&nodes.programs.mvp)
            .args(["adopt", "-o", "json", "--timeout=60s"])
            .arg(format!("--rate={RATE}"))
            .arg(format!("--admin-address={}", gateway.admin))
            .output()
            .await?;
        let took = started.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mvp adopt: {}: {}", output.status, errors.trim());
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let ended = report.get("ended").and_then(Value::as_u64).context("no number of ended")?;
        ensure!(ended == WATCHES as u64, "{ended} of {WATCHES} connections were ended: {report}");
        // The first round is at once.
        let least = Duration::from_secs((WATCHES / RATE - 1) as u64);
        ensure!(took >= least, "{ended} connections were ended in {took:?}, more than {RATE}/s");
        watches.until_resumed().await?;
        unsteered(&gateway, "no connection from before is left", |number| number == 0).await?;
        anyhow::Ok((gateway, took))
    };
    let ((gateway, took), (status, _)) = tokio::try_join!(adopted, on_host)?;
    ensure!(status == 200, "the watch over loopback: {status}");
    let rejected = watches.rejected();
    ensure!(rejected == 0, "{rejected} watches were not resumed at once");
    let watched = watches.end(&nodes.admin, node.address()).await?;
    gateway.end().await?;
    let took = took.as_secs_f64();
    Ok(format!(
        "{WATCHES} connections from before ended in {took:.1} s, at most {RATE} a second; {watched}; \
         a watch over loopback was left alone; mvp_unsteered_connections is 0"
    ))
}

/// Waits for a number of connections that are not steered.
async fn unsteered(
    gateway: &Gateway,
    what: &str,
    is_so: impl Fn(usize) -> bool,
) -> anyhow::Result<()> {
    until(what, Duration::from_secs(60), async || {
        let number = gateway.metric("mvp_unsteered_connections").await?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let number = number as usize;
        ensure!(is_so(number), "there are {number}");
        Ok(Some(()))
    })
    .await
}
