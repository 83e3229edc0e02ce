//! The hashes of storage versions: through every member those of a server that serves the resource.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;

use super::{PATIENCE, PROTOBUF, discovery_paths, items, text};
use crate::cluster::Cluster;

/// The hashes that a list of resources has, by resource; empty for a resource without one.
fn hashes(list: &Value) -> BTreeMap<String, String> {
    let entry =
        |item| (text(item, "/name").to_owned(), text(item, "/storageVersionHash").to_owned());
    items(list, "/resources").map(entry).collect()
}

/// The hashes of each server itself; `None` for one that does not serve the version.
async fn direct(
    cluster: &Cluster,
    path: &str,
) -> anyhow::Result<Vec<Option<BTreeMap<String, String>>>> {
    let mut all = Vec::new();
    for server in &cluster.servers {
        let answer = cluster.admin.get(server.direct(), path).await?;
        all.push((answer.status == 200).then(|| hashes(&answer.json())));
    }
    Ok(all)
}

/// Whether all servers that serve a resource of this version have the same hash for it. Servers of
/// two releases may store it in two versions.
pub(super) async fn agree(cluster: &Cluster, path: &str) -> anyhow::Result<bool> {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, hash) in direct(cluster, path).await?.into_iter().flatten().flatten() {
        known.entry(name).or_default().insert(hash);
    }
    Ok(known.values().all(|hashes| hashes.len() == 1))
}

/// `surface/storage-version-hash`
pub(super) async fn storage_version_hash(cluster: &mut Cluster) -> anyhow::Result<String> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hashes.hash.example.com"},
        "spec": {
            "group": "hash.example.com", "scope": "Cluster",
            "names": {"plural": "hashes", "singular": "hash", "kind": "Hash"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let a = cluster.server("a")?.direct();
    cluster.admin.create(a, definitions, &definition).await?.expect(201)?;
    for server in &cluster.servers {
        until("the server lists it", PATIENCE, async || {
            let answer = cluster.admin.get(server.direct(), "/apis/hash.example.com/v1").await?;
            Ok((answer.status == 200).then_some(()))
        })
        .await?;
    }
    let mut paths = discovery_paths(cluster).await?;
    paths.retain(|path| path == "/api/v1" || path.matches('/').count() == 3);
    let (mut compared, mut foreign) = (0, 0);
    for path in &paths {
        let own = direct(cluster, path).await?;
        for (server, own_hashes) in cluster.servers.iter().zip(&own) {
            let at = format!("{path} through {}", server.name());
            let answer = cluster.admin.get(server.through(), path).await?;
            let protobuf = cluster.admin.get_as(server.through(), path, PROTOBUF).await?;
            for (name, hash) in hashes(&answer.expect(200).context(at.clone())?) {
                let here = own_hashes.as_ref().and_then(|own| own.get(&name));
                let elsewhere = || own.iter().flatten().filter_map(|own| own.get(&name));
                let right = match here {
                    Some(here) => hash == *here,
                    None => elsewhere().any(|there| hash == *there),
                };
                ensure!(right, "{at}: {name} has {hash:?}, the servers have {own:?}");
                if !hash.is_empty() {
                    compared += 1;
                    foreign += usize::from(here.is_none());
                    let body = &protobuf.body;
                    let found = body.windows(hash.len()).any(|part| part == hash.as_bytes());
                    ensure!(found, "{at}: no {hash} of {name} in protobuf");
                }
            }
        }
    }
    ensure!(paths.iter().any(|path| path == "/apis/hash.example.com/v1"), "no custom resource");
    ensure!(foreign > 0, "no resource that only a peer serves");
    let name = format!("{definitions}/hashes.hash.example.com");
    cluster.admin.delete(a, &name).await?.expect(200)?;
    // The next cases compare all documents: servers drop those of a deleted resource one by one.
    for server in &cluster.servers {
        for to in [server.direct(), server.through()] {
            until("its schema is gone", PATIENCE, async || {
                let index = cluster.admin.get(to, "/openapi/v3").await?.expect(200)?;
                let listed = index.pointer("/paths/apis~1hash.example.com~1v1").is_some();
                Ok((!listed).then_some(()))
            })
            .await?;
        }
    }
    Ok(format!("{compared} hashes in {} versions, {foreign} of them of a peer", paths.len()))
}
