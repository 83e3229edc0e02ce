//! Members by EndpointSlices, and gateways with IPv6 addresses.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use testkit::process::Signal;
use tokio::process::Command;

use super::super::objects;
use super::{Finder, allow, found, has_left, is_present};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Cable,
            "membership/endpoints",
            endpoints,
            "servers are members by the EndpointSlices that they maintain themselves"
        ),
        case!(
            Cable,
            "membership/ipv6",
            by_ipv6,
            "gateways with IPv6 addresses find each other and forward requests"
        ),
    ]
}

/// From now on servers keep EndpointSlices, on addresses that those accept.
pub(in crate::cases) async fn keep_endpoints(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (admin, flag) = (cluster.admin.clone(), "--endpoint-reconciler-type=lease".to_owned());
    for index in 0..cluster.servers.len() {
        let server = cluster.servers.get_mut(index).context("no such server")?;
        if server.spec.flags.contains(&flag) {
            continue;
        }
        server.spec.flags.push(flag.clone());
        server.process()?.kill();
        cluster.start_server(index)?;
        let server = cluster.servers.get_mut(index).context("no such server")?;
        server.ready(&admin, Duration::from_secs(120)).await?;
    }
    allow(cluster).await
}

/// Servers whose own EndpointSlices say where they are.
async fn endpoints(cluster: &mut Cluster) -> anyhow::Result<String> {
    keep_endpoints(cluster).await?;
    let admin = cluster.admin.clone();
    let mut b = Finder::start(cluster, "b", 17043, &["--membership=endpoints".to_owned()])?;
    b.ready().await?;
    let at = |name: &str| anyhow::Ok(cluster.server(name)?.direct().to_string());
    let (a, c, own) = (at("a")?, at("c")?, at("b")?);
    for address in [&a, &c] {
        b.until("present", address, is_present).await?;
    }
    ensure!(b.knows(&own).await?.is_none(), "its own server is nobody's peer");
    let job = objects::job("default", "x");
    admin.get(b.through, &job.collection).await?.expect(200)?;
    // Who is gone is taken out by the others, when its own lease ended.
    cluster.server_mut("a")?.process()?.kill();
    let gone = b.until("left", &a, has_left).await?;
    admin.get(b.through, &job.collection).await?.expect(200)?;
    Ok(format!(
        "a and c are known by their EndpointSlices; a kill -9 after {:.0} s",
        gone.as_secs_f64()
    ))
}

/// Gateways that tell each other addresses of IPv6.
async fn by_ipv6(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut all = Vec::new();
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let address = SocketAddr::new(cluster.second_address(index), 18043);
        // In the network of the suite's own, on whose other end the last server is.
        let add = ["-6", "address", "replace", &format!("{}/128", address.ip()), "dev", "lo"];
        let added = Command::new("ip").args(add).output().await?;
        ensure!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        all.push(Finder::start_at(cluster, name, address, &flags)?);
    }
    let mut all: [Finder; 3] = all.try_into().ok().context("three gateways")?;
    found(cluster, &mut all).await?;
    let [a, b, c] = all;
    let known = b.knows("finder-a").await?.unwrap_or_default();
    ensure!(a.through.is_ipv6(), "{}", a.through);
    ensure!(known.get("address") == Some(&json!(a.through.to_string())), "{known}");
    // What b lacks, a and c have: it came from the one or the other.
    let job = objects::job("default", "x");
    a.process.signal(Signal::TERM)?;
    let left = b.until("left", "finder-a", has_left).await?;
    cluster.admin.get(b.through, &job.collection).await?.expect(200)?;
    drop(c);
    Ok(format!(
        "three gateways at fd00:77::/64 by Leases, each kind through the one that lacks it; a leave \
         known after {:.1} s",
        left.as_secs_f64()
    ))
}
