//! Controllers that act on 404s: the garbage collector, for an owner that only a peer serves, and
//! the Job controller.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use testkit::process::{Process, until};

use super::objects;
use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "controllers/gc-without-mvp",
            collector_without_mvp,
            "without mvp: the garbage collector deletes the dependent of a live owner"
        ),
        case!(
            Mixed,
            "controllers/gc-with-mvp",
            collector_with_mvp,
            "with mvp: the dependent stays until its owner is deleted"
        ),
        case!(
            Mixed,
            "controllers/job",
            job_through_each,
            "the Job controller works through each member, also one without batch/v1"
        ),
    ]
}

/// A garbage collector that knows Jobs, and whose address then moves to a server without them.
struct Story<'a> {
    cluster: &'a Cluster,
    collector: Process,
    /// Connected to the first server until then.
    _relay: Relay,
    config_maps: String,
    jobs: String,
}

impl<'a> Story<'a> {
    async fn tell(
        cluster: &'a Cluster,
        namespace: &str,
        first: SocketAddr,
        then: SocketAddr,
    ) -> anyhow::Result<Story<'a>> {
        cluster.namespace(namespace).await?;
        let relay = Relay::start(cluster.spare_address(), &[first]).await?;
        let mut collector =
            cluster.controller("garbage-collector-controller", namespace, relay.address())?;
        until("the garbage collector knows every resource", Duration::from_secs(60), async || {
            collector.check()?;
            let log = std::fs::read_to_string(collector.log())?;
            Ok(log.contains("synced garbage collector").then_some(()))
        })
        .await?;
        relay.lead_to(then);
        let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let jobs = objects::job(namespace, "").collection;
        Ok(Story { cluster, collector, _relay: relay, config_maps, jobs })
    }

    fn capable(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.cluster.server("a")?.direct())
    }

    /// Creates a Job and returns its UID.
    async fn owner(&self, name: &str) -> anyhow::Result<String> {
        let object = objects::job("", name).object;
        let made = self.cluster.admin.create(self.capable()?, &self.jobs, &object).await?;
        let made = made.expect(201)?;
        let uid = made.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(uid.context("no UID")?.to_owned())
    }

    /// A ConfigMap that such a Job owns.
    async fn dependent(&self, name: &str, owner: &str, uid: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid},
            ]},
        });
        let made = self.cluster.admin.create(self.capable()?, &self.config_maps, &object).await?;
        made.expect(201).map(drop)
    }

    async fn is_there(&self, path: &str, name: &str) -> anyhow::Result<bool> {
        let answer = self.cluster.admin.get(self.capable()?, &format!("{path}/{name}")).await?;
        ensure!(matches!(answer.status.as_u16(), 200 | 404), "{answer}");
        Ok(answer.status == 200)
    }

    async fn collected(&mut self, name: &str) -> anyhow::Result<()> {
        let path = self.config_maps.clone();
        until(&format!("{name} is collected"), Duration::from_secs(60), async || {
            self.collector.check()?;
            Ok((!self.is_there(&path, name).await?).then_some(()))
        })
        .await
        .with_context(|| format!("log of the controller: {:?}", self.collector.log()))
    }
}

async fn collector_without_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (a, b) = (cluster.server("a")?.direct(), cluster.server("b")?.direct());
    let mut story = Story::tell(cluster, "gc-without", a, b).await?;
    let uid = story.owner("alive").await?;
    story.dependent("owned", "alive", &uid).await?;
    story.collected("owned").await.context("no harm was done")?;
    ensure!(story.is_there(&story.jobs, "alive").await?, "its owner is gone, too");
    Ok("the owner lives, its dependent was deleted".to_owned())
}

async fn collector_with_mvp(cluster: &mut Cluster) -> anyhow::Result<String> {
    let (a, b) = (cluster.server("a")?.through(), cluster.server("b")?.through());
    let mut story = Story::tell(cluster, "gc-with", a, b).await?;
    let uid = story.owner("alive").await?;
    story.dependent("owned", "alive", &uid).await?;
    // A dependent of an owner that never existed shows that the collector works, and is done with
    // the first.
    let nobody = "00000000-0000-4000-8000-000000000000";
    story.dependent("orphan", "never-was", nobody).await?;
    story.collected("orphan").await?;
    ensure!(story.is_there(&story.config_maps, "owned").await?, "a dependent of a live owner");
    let one = format!("{}/alive?propagationPolicy=Background", story.jobs);
    cluster.admin.delete(cluster.server("b")?.through(), &one).await?.expect(200)?;
    story.collected("owned").await?;
    Ok("the dependent of a live owner stays, and goes with it; an orphan goes".to_owned())
}

/// A Job is run by a controller at each member in turn; the case acts as the kubelet.
async fn job_through_each(cluster: &mut Cluster) -> anyhow::Result<String> {
    let namespace = "job-controller";
    cluster.namespace(namespace).await?;
    let admin = &cluster.admin;
    let capable = cluster.server("a")?.direct();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    admin.create(capable, &accounts, &account).await?.expect(201)?;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let patch = Method::PATCH;

    for server in &cluster.servers {
        let name = format!("through-{}", server.name());
        let mut controller = cluster.controller("job-controller", &name, server.through())?;
        let mut job = objects::job(namespace, &name);
        let spec = job.object.pointer_mut("/spec").and_then(Value::as_object_mut);
        spec.context("no spec")?.remove("suspend");
        admin.create(capable, &job.collection, &job.object).await?.expect(201)?;
        let of_job = format!("{pods}?labelSelector=job-name%3D{name}");
        let pod = until("the controller makes a pod", Duration::from_secs(60), async || {
            controller.check()?;
            let list = admin.get(capable, &of_job).await?.expect(200)?;
            let name = list.pointer("/items/0/metadata/name").and_then(Value::as_str);
            Ok(name.map(str::to_owned))
        })
        .await
        .with_context(|| format!("through {}: {:?}", server.name(), controller.log()))?;
        let done = json!({"status": {"phase": "Succeeded"}});
        let body = Some(("application/merge-patch+json", &done));
        let status = format!("{pods}/{pod}/status");
        admin.send(capable, patch.clone(), &status, body).await?.expect(200)?;
        let one = format!("{}/{name}", job.collection);
        until("the controller sees the Job complete", Duration::from_secs(60), async || {
            controller.check()?;
            let job = admin.get(capable, &one).await?.expect(200)?;
            let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
            let complete = conditions.into_iter().flatten().any(|condition| {
                condition.get("type") == Some(&json!("Complete"))
                    && condition.get("status") == Some(&json!("True"))
            });
            Ok((complete && job.pointer("/status/succeeded") == Some(&json!(1))).then_some(()))
        })
        .await
        .with_context(|| format!("through {}: {:?}", server.name(), controller.log()))?;
    }
    Ok("a Job run to its end through a, b and c, of which b has no batch/v1".to_owned())
}
