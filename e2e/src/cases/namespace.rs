//! The motivating problem: a namespace controller that talks to a server without batch/v1 deletes a
//! namespace that contains a Job.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;

use super::objects;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "namespace/without-mvp",
            without_mvp,
            "without mvp: a deleted namespace leaves its Job behind"
        ),
        case!(Mixed, "namespace/with-mvp", with_mvp, "with mvp: the Job is deleted too"),
    ]
}

/// Deletes a namespace with a Job and a ConfigMap by a controller at that address. Returns the Jobs
/// that are left in etcd, and the seconds that it took.
async fn delete_namespace(
    cluster: &Cluster,
    namespace: &str,
    controller: SocketAddr,
) -> anyhow::Result<(usize, f64)> {
    cluster.namespace(namespace).await?;
    let capable = cluster.server("a")?.direct();
    let job = objects::job(namespace, "left-behind");
    cluster.admin.create(capable, &job.collection, &job.object).await?.expect(201)?;
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    cluster.admin.create(capable, &config_maps, &config_map).await?.expect(201)?;

    let mut manager = cluster.controller("namespace-controller", namespace, controller)?;
    let path = format!("/api/v1/namespaces/{namespace}");
    cluster.admin.delete(capable, &path).await?.expect(200)?;
    let started = Instant::now();
    until("the namespace is gone", Duration::from_secs(120), async || {
        manager.check()?;
        let answer = cluster.admin.get(capable, &path).await?;
        Ok((answer.status == 404).then_some(()))
    })
    .await
    .with_context(|| format!("log of the controller: {:?}", manager.log()))?;
    let took = started.elapsed().as_secs_f64();

    let left = async |path: &str| {
        let list = cluster.admin.get(capable, path).await?.expect(200)?;
        anyhow::Ok(list.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len))
    };
    ensure!(left(&config_maps).await? == 0, "even the ConfigMap is left");
    Ok((left(&job.collection).await?, took))
}

async fn without_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let direct = cluster.server("b")?.direct();
    let (left, took) = delete_namespace(cluster, "story-without", direct).await?;
    ensure!(left == 1, "no harm was done: {left} jobs are left");
    // It shows when the name is used again.
    cluster.namespace("story-without").await?;
    let jobs = objects::job("story-without", "").collection;
    let list = cluster.admin.get(cluster.server("a")?.direct(), &jobs).await?.expect(200)?;
    let name = list.pointer("/items/0/metadata/name").and_then(Value::as_str);
    ensure!(name == Some("left-behind"), "the new namespace has {list}");
    Ok(format!(
        "namespace deleted in {took:.1} s; its Job is left, and appears in the next namespace of that name"
    ))
}

async fn with_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let through = cluster.server("b")?.through();
    let (left, took) = delete_namespace(cluster, "story-with", through).await?;
    ensure!(left == 0, "{left} jobs are left behind");
    Ok(format!("namespace deleted in {took:.1} s, with its Job"))
}
