//! More Leases than any cluster has, each of a member that does not exist, before a gateway starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};

use super::{Finder, LEASES, allow, found, objects};
use crate::client::plain;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "membership/flood",
        flood,
        "a flood of forged Leases does not hide a member from a new gateway"
    )]
}

const FORGED: usize = 600;

async fn flood(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let flags = ["--membership=leases".to_owned()];
    let mut all = Finder::three(cluster, 16843, &flags)?;
    found(cluster, &mut all).await?;
    let [_a, mut b, _c] = all;

    let cluster = &*cluster;
    let at = cluster.server("a")?.direct();
    forge(cluster, at).await?;

    // A gateway that starts now: APIs of others are served, or 503.
    b.process.kill();
    let mut b = Finder::start(cluster, "b", 16843, &flags)?;
    let begun = Instant::now();
    let job = objects::job("default", "x");
    let nowhere = "/apis/example.org/v1/nothings";
    let mut reads: BTreeMap<u16, usize> = BTreeMap::new();
    let (mut served, mut truth) = (None, None);
    while served.is_none() || truth.is_none() {
        ensure!(begun.elapsed() < Duration::from_secs(150), "404s are withheld forever: {reads:?}");
        b.process.check()?;
        // It may not listen yet.
        let Ok(answer) = cluster.admin.get(b.through, &job.collection).await else { continue };
        *reads.entry(answer.status.as_u16()).or_default() += 1;
        match answer.status.as_u16() {
            200 => served = served.or(Some(begun.elapsed())),
            503 => {}
            _ => anyhow::bail!("a job that a and c serve: {answer}"),
        }
        let answer = cluster.admin.get(b.through, nowhere).await?;
        match answer.status.as_u16() {
            404 => truth = truth.or(Some(begun.elapsed())),
            503 => {}
            _ => anyhow::bail!("{answer}"),
        }
    }
    ensure!(served <= truth, "a 404 was returned before the members were known");
    b.ready().await?;
    let snapshot = plain(b.admin, "/debug/snapshot").await?.json();
    let members = snapshot.pointer("/members").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(members < 200, "{members} members are asked at a time");
    remove_forged(cluster, at).await?;
    let seconds = |after: Option<Duration>| after.unwrap_or_default().as_secs_f64();
    Ok(format!(
        "a gateway starts with {FORGED} forged Leases: reads of an API of others {}, the first \
         200 after {:.1} s; a correct 404 after {:.0} s",
        reads
            .iter()
            .map(|(code, count)| format!("{count} × {code}"))
            .collect::<Vec<_>>()
            .join(", "),
        seconds(served),
        seconds(truth)
    ))
}

/// Creates the forged Leases. Their names sort before all others, and some have IDs of real members.
async fn forge(cluster: &Cluster, at: SocketAddr) -> anyhow::Result<()> {
    let created: Vec<anyhow::Result<()>> = stream::iter(0..FORGED)
        .map(|number| async move {
            let id = match number {
                0 => "finder-a".to_owned(),
                1 => "finder-c".to_owned(),
                _ => format!("forged-{number}"),
            };
            let address = format!("127.66.{}.{}:9", number / 200, number % 200 + 1);
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": format!("a-forged-{number}"), "namespace": "kube-system",
                    "labels": {"mixed-version-proxy/member": "true"},
                    "annotations": {
                        "mixed-version-proxy/id": id, "mixed-version-proxy/address": address,
                    },
                },
                "spec": {"holderIdentity": id, "renewTime": "2099-01-01T00:00:00.000000Z"},
            });
            cluster.admin.create(at, LEASES, &lease).await?.expect(201).map(drop)
        })
        .buffer_unordered(8)
        .collect()
        .await;
    created.into_iter().collect()
}

async fn remove_forged(cluster: &Cluster, at: SocketAddr) -> anyhow::Result<()> {
    let path = format!("{LEASES}?labelSelector=mixed-version-proxy/member%3Dtrue");
    let forged = cluster.admin.get(at, &path).await?.expect(200)?;
    for lease in forged.pointer("/items").and_then(Value::as_array).into_iter().flatten() {
        let name = lease.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if name.starts_with("a-forged-") {
            cluster.admin.delete(at, &format!("{LEASES}/{name}")).await?.expect(200)?;
        }
    }
    Ok(())
}
