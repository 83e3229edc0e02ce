//! `kubectl delete -f` of the rights of gateways also removes their Leases.

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;

use super::{Finder, LEASES, SOON, allow, rbac};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "membership/removed",
        removed,
        "kubectl delete -f deploy/rbac.yaml removes the Leases of gateways, which no longer may"
    )]
}

async fn removed(cluster: &mut Cluster) -> anyhow::Result<String> {
    allow(cluster).await?;
    let server = cluster.server("a")?.direct();
    let mut finders = Finder::three(cluster, 17043, &["--membership=leases".to_owned()])?;
    let addresses: Vec<String> = finders.iter().map(|finder| finder.through.to_string()).collect();
    let leases = async || {
        let list = cluster.admin.get(server, LEASES).await?.expect(200)?;
        let mut items =
            list.get("items").and_then(Value::as_array).cloned().context("no Leases")?;
        let address = "/metadata/annotations/mixed-version-proxy~1address";
        items.retain(|item| {
            let at = item.pointer(address).and_then(Value::as_str);
            at.is_some_and(|at| addresses.iter().any(|address| address == at))
        });
        anyhow::Ok(items)
    };
    until("three Leases have an owner", SOON, async || {
        finders.iter_mut().try_for_each(|finder| finder.process.check())?;
        let all = leases().await?;
        let owned = |lease: &&Value| {
            let owner = lease.pointer("/metadata/ownerReferences/0/name");
            owner.is_some_and(|name| name == "mixed-version-proxy")
        };
        ensure!(all.iter().filter(owned).count() == 3, "{all:?}");
        Ok(Some(()))
    })
    .await?;

    let mut collector = cluster.controller("garbage-collector-controller", "gc-leases", server)?;
    let kubectl = cluster.kubectl(server)?;
    kubectl.run(["delete", "-f", &rbac()], None).await?;
    until("the Leases are gone", SOON, async || {
        collector.check()?;
        let left = leases().await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    // The gateways still run, and may not write them again.
    finders.iter_mut().try_for_each(|finder| finder.process.check())?;
    for finder in &mut finders {
        finder.fails("the API server denies permission").await?;
    }
    ensure!(leases().await?.is_empty(), "a gateway wrote its Lease again");
    Ok("the Leases of three running gateways are gone".to_owned())
}
