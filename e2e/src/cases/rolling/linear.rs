//! The upgrade with faults, under a load that is recorded: the history of every object is
//! linearizable, and watches are complete and in order. Entry item: [`upgrade_and_faults`].

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::process::Signal;
use tokio::time::sleep;

use super::super::{callers, objects};
use super::steps::all_of_1_34;
use super::{Pace, WITHIN};
use crate::cluster::Cluster;
use crate::history::{Extent, History};
use crate::load::Subject;
use crate::programs::Minor;

const NAMESPACE: &str = "linearizable";

/// Few objects, so that clients meet.
const CONFIG_MAPS: Extent = Extent { objects: 24, clients: 3, pause: Pace::BRISK.read };
/// Of a kind that only 1.36 serves.
const WORKLOADS: Extent = Extent { objects: 8, clients: 1, pause: Pace::BRISK.read };

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

pub(super) async fn upgrade_and_faults(cluster: &mut Cluster) -> anyhow::Result<String> {
    all_of_1_34(cluster).await?;
    cluster.list_members(true);
    cluster.heal().await?;
    cluster.namespace(NAMESPACE).await?;
    let (by_certificate, by_token) =
        (callers::by_certificate(cluster).await?, callers::by_token(cluster).await?);
    let gateways: Vec<SocketAddr> = cluster.servers.iter().map(|one| one.through()).collect();
    let started = Instant::now();
    let tell = |what: &str| eprintln!("      {:5.1} s: {what}", started.elapsed().as_secs_f64());

    let subject = Subject::config_maps(NAMESPACE);
    let config_maps = History::start(&by_certificate, &gateways, subject, CONFIG_MAPS).await?;
    upgrade(cluster, "a", GRACE).await?;
    tell("a is 1.36");
    let kind = objects::workload(NAMESPACE, "");
    let tag = "workloads".to_owned();
    let subject = Subject { collection: kind.collection, object: kind.object, tag };
    let workloads = History::start(&by_token, &gateways, subject, WORKLOADS).await?;

    let c = cluster.index("c")?;
    cluster.server_mut("c")?.gateway()?.kill();
    cluster.start_gateway(c)?;
    cluster.server_mut("c")?.gateway_ready(WITHIN).await?;
    tell("the gateway of c was killed and is back");

    // The only one that serves Workloads.
    let a = cluster.index("a")?;
    cluster.server_mut("a")?.process()?.kill();
    cluster.start_server(a)?;
    let admin = cluster.admin.clone();
    cluster.server_mut("a")?.ready(&admin, WITHIN).await?;
    tell("the kube-apiserver of a was killed and is back");

    upgrade(cluster, "b", GRACE).await?;
    tell("b is 1.36");

    // Longer than a gateway takes to notice.
    cluster.server_mut("a")?.process()?.signal(Signal::STOP)?;
    sleep(Duration::from_secs(5)).await;
    cluster.server_mut("a")?.process()?.signal(Signal::CONT)?;
    tell("the kube-apiserver of a hung and goes on");

    upgrade(cluster, "c", Duration::ZERO).await?;
    tell("c was killed and is 1.36");
    cluster.agreed().await?;

    let took = started.elapsed().as_secs_f64();
    let config_maps = config_maps.end().await.context("ConfigMaps")?;
    tell("ConfigMaps are checked");
    let workloads = workloads.end().await.context("Workloads")?;
    tell("Workloads are checked");
    let count = config_maps.linear.operations + workloads.linear.operations;
    ensure!(count >= 2_000, "only {count} operations: {config_maps}; {workloads}");
    Ok(format!(
        "{took:.0} s of upgrades and faults. ConfigMaps: {config_maps}. Workloads: {workloads}"
    ))
}

/// Replaces the kube-apiserver of a server by 1.36.
async fn upgrade(cluster: &mut Cluster, name: &str, grace: Duration) -> anyhow::Result<()> {
    let admin = cluster.admin.clone();
    let index = cluster.index(name)?;
    cluster.server_mut(name)?.leave_within(grace, Minor::V1_36).await?;
    cluster.start_server(index)?;
    let server = cluster.server_mut(name)?;
    server.ready(&admin, WITHIN).await?;
    server.gateway_ready(WITHIN).await
}
