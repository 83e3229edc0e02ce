//! What pipelines do: apply a definition, wait until it is established, apply an object of it, all at
//! one address.

use std::net::SocketAddr;

use anyhow::ensure;
use futures_util::future::try_join_all;
use serde_json::json;

use super::super::before::Gateway;
use super::definition;
use crate::cluster::Cluster;

/// `crd/pipeline`
pub(super) async fn short(cluster: &mut Cluster) -> anyhow::Result<String> {
    pipelines(cluster, "short", 10).await
}

/// `crd/pipeline-50`
pub(super) async fn long(cluster: &mut Cluster) -> anyhow::Result<String> {
    pipelines(cluster, "long", 50).await
}

async fn pipelines(cluster: &mut Cluster, name: &str, rounds: usize) -> anyhow::Result<String> {
    let servers: Vec<String> =
        cluster.servers.iter().map(|server| format!("https://{}", server.direct())).collect();
    let flags = [format!("--servers={}", servers.join(","))];
    let mut before = Gateway::start(cluster, 17843, &[], &flags)?;
    before.ready().await?;
    let mut places: Vec<(String, SocketAddr)> =
        cluster.servers.iter().map(|server| (server.name().to_owned(), server.through())).collect();
    places.push(("lb".to_owned(), before.through));
    let (cluster, places) = (&*cluster, &places);
    let run = |(at, to): &(String, SocketAddr)| {
        let (prefix, to) = (format!("pipe{name}{at}"), *to);
        async move { run_at(cluster, &prefix, to, rounds).await }
    };
    let outcomes = try_join_all(places.iter().map(run)).await?;
    let (mut failures, mut words) = (Vec::new(), Vec::new());
    for ((at, _), failed) in places.iter().zip(outcomes) {
        words.push(format!("{at}: {} of {rounds}", rounds - failed.len()));
        failures.extend(failed.into_iter().map(|error| format!("{at}: {error}")));
    }
    ensure!(failures.is_empty(), "{}; {}", words.join(", "), failures.join("; "));
    Ok(format!("pipelines that succeeded through {}", words.join(", ")))
}

/// Runs pipelines one after the other at one address. Returns the errors of those that failed.
async fn run_at(
    cluster: &Cluster,
    prefix: &str,
    to: SocketAddr,
    rounds: usize,
) -> anyhow::Result<Vec<String>> {
    let kubectl = cluster.kubectl(to)?;
    let mut failed = Vec::new();
    for round in 0..rounds {
        let plural = format!("{prefix}{round}");
        let name = format!("crd/{plural}.{plural}.example.com");
        let applied = definition(&plural).to_string();
        kubectl.run(["apply", "-f", "-"], Some(&applied)).await?;
        kubectl.run(["wait", "--for=condition=established", "--timeout=30s", &name], None).await?;
        let object = json!({
            "apiVersion": format!("{plural}.example.com/v1"), "kind": plural,
            "metadata": {"name": "one", "namespace": "default"},
        });
        let object = object.to_string();
        let printed = kubectl.try_run(&["apply", "-f", "-"], Some(&object)).await?;
        if !printed.ok {
            failed.push(printed.errors.trim().to_owned());
        }
        kubectl.run(["delete", "--wait=false", &name], None).await?;
    }
    Ok(failed)
}
