//! The probes of a kubelet go to the advertise address, so `mvp` answers them. A hung `mvp` must not
//! get a healthy kube-apiserver killed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::process::Signal;
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::cluster::Cluster;
use crate::node::{NodeSpec, Nodes};
use crate::programs::Minor;

/// The time limit and the failure threshold of the probes in kubeadm's manifest. Its period is 10 s;
/// here, more probes meet a hung `mvp`.
const TIMEOUT: Duration = Duration::from_secs(15);
const FAILURE_THRESHOLD: usize = 8;
const PERIOD: Duration = Duration::from_secs(1);

/// Longer than one probe takes to fail, and than the threshold times the period.
const HUNG: Duration = Duration::from_secs(23);

pub(super) async fn kubelet(cluster: &mut Cluster) -> anyhow::Result<String> {
    let nodes = Nodes::start(cluster, "kubelet").await?;
    let mut node = nodes.node(0, NodeSpec::new("a", Minor::V1_36)).await?;
    let gateway = node.gateway(&nodes, 0).await?;
    nodes.until_answered_by("mvp", node.address()).await?;
    let client = Client::nobody(&nodes.pki.files().ca())?;
    let ends = Instant::now() + HUNG + Duration::from_secs(4);
    let hang = async {
        sleep(Duration::from_secs(2)).await;
        gateway.process.signal(Signal::STOP)?;
        sleep(HUNG).await;
        gateway.process.signal(Signal::CONT)
    };
    let (live, ready, hung) = tokio::join!(
        probe(&client, node.address(), "/livez", ends),
        probe(&client, node.address(), "/readyz", ends),
        hang
    );
    hung?;
    node.check_server()?;
    nodes.until_answered_by("mvp", node.address()).await?;
    let mut figures = Vec::new();
    for (name, Probed { failures, in_a_row, count }) in [("livez", live), ("readyz", ready)] {
        ensure!(
            in_a_row < FAILURE_THRESHOLD,
            "{in_a_row} probes of {name} failed in a row: a kubelet kills kube-apiserver"
        );
        ensure!(count >= FAILURE_THRESHOLD, "only {count} probes");
        figures.push(format!("{failures} of {count} probes of {name} failed, {in_a_row} in a row"));
    }
    gateway.end().await?;
    let (figures, seconds) = (figures.join("; "), HUNG.as_secs());
    Ok(format!("mvp hung for {seconds} s: {figures}; a kubelet kills at {FAILURE_THRESHOLD}"))
}

/// The results of a probe.
struct Probed {
    count: usize,
    failures: usize,
    /// The most failures in a row.
    in_a_row: usize,
}

/// Probes one after the other, as a kubelet does: each over a new connection.
async fn probe(client: &Client, to: SocketAddr, path: &str, ends: Instant) -> Probed {
    let mut probed = Probed { count: 0, failures: 0, in_a_row: 0 };
    let mut row = 0;
    while Instant::now() < ends {
        let next = tokio::time::Instant::now() + PERIOD;
        let outcome = timeout(TIMEOUT, client.get(to, path)).await;
        probed.count += 1;
        if outcome.is_ok_and(|outcome| outcome.is_ok_and(|answer| answer.status == 200)) {
            row = 0;
        } else {
            row += 1;
            probed.failures += 1;
            probed.in_a_row = probed.in_a_row.max(row);
        }
        tokio::time::sleep_until(next).await;
    }
    probed
}
