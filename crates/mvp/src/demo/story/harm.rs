//! The controllers in the middle of an upgrade: a namespace with a Job is deleted, and a ConfigMap is
//! owned by a kind that is new. Entry: [`Harm::tempt`].

use std::time::Duration;

use anyhow::{Context, ensure};
use http::{Method, StatusCode};
use mvp_apiserver::controllers::{GarbageCollector, NamespaceController};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::certificates::Certificates;
use super::super::client::Client;
use super::super::cluster::Cluster;
use super::super::controllers::Address;
use super::super::server::Server;

/// What the controllers did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::demo) struct Harm {
    /// Jobs that are left of a namespace that is gone.
    pub(in crate::demo) jobs_left: usize,
    /// Objects that were deleted although their owner exists.
    pub(in crate::demo) dependents_taken: usize,
}

const NAMESPACES: &str = "/api/v1/namespaces";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
/// The time for the namespace to be gone.
const DEADLINE: Duration = Duration::from_secs(20);

impl Harm {
    /// Lets the controllers work through the second server, which has neither Jobs nor the new kind.
    /// The first server has both.
    pub(in crate::demo) async fn tempt(
        certificates: &Certificates,
        cluster: &Cluster,
    ) -> anyhow::Result<Harm> {
        let admin = Client::admin(certificates)?;
        let (capable, other) = (cluster.at(0)?, cluster.at(1)?);
        let stage = Stage { admin, capable };

        // The collector learns the new kind at the first server; then its address leads elsewhere.
        let address = Address::new(certificates, capable.address)?;
        let mut collector = GarbageCollector::new(address.clone());
        collector.refresh().await?;
        address.move_to(other.address);
        let policy = stage.create(POLICIES, policy()).await?;
        let uid = policy.pointer("/metadata/uid").and_then(Value::as_str).context("no UID")?;
        stage.create(CONFIG_MAPS, owned(uid)).await?;
        collector.sweep().await;
        let owner_lives = stage.exists(&format!("{POLICIES}/defaults")).await?;
        ensure!(owner_lives, "the owner is gone, too");
        let taken = !stage.exists(&format!("{CONFIG_MAPS}/of-defaults")).await?;

        stage.create(NAMESPACES, json!({"metadata": {"name": "shop"}})).await?;
        stage.create(JOBS, job()).await?;
        let path = format!("{NAMESPACES}/shop");
        let deleted = stage.admin.send(capable, Method::DELETE, &path, &[], None).await?;
        ensure!(deleted.status.is_success(), "cannot delete the namespace: {}", deleted.status);
        let controller = NamespaceController::new(address);
        let deadline = Instant::now() + DEADLINE;
        while stage.exists(&path).await? {
            ensure!(Instant::now() < deadline, "the namespace is still there");
            // What fails is tried again.
            let _ = controller.sync().await;
            sleep(Duration::from_millis(20)).await;
        }
        let jobs = stage.admin.get(capable, JOBS).await?.json();
        let jobs_left = jobs.get("items").and_then(Value::as_array).map_or(0, Vec::len);
        Ok(Harm { jobs_left, dependents_taken: usize::from(taken) })
    }

    /// What was seen, in words.
    pub(super) fn lines(&self) -> [String; 2] {
        let taken = match self.dependents_taken {
            0 => "the garbage collector keeps the ConfigMap of a live MutatingAdmissionPolicy",
            _ => "the garbage collector deletes a ConfigMap, although its owner is alive",
        };
        let left = match self.jobs_left {
            0 => "namespace shop is deleted, and its Job with it".to_owned(),
            left => format!("namespace shop is gone, but {left} Job of it is left behind"),
        };
        [taken.to_owned(), left]
    }
}

/// Where the objects are made and looked for: a server that has every kind.
struct Stage<'a> {
    admin: Client,
    capable: &'a Server,
}

impl Stage<'_> {
    async fn create(&self, path: &str, object: Value) -> anyhow::Result<Value> {
        let made = self.admin.send(self.capable, Method::POST, path, &[], Some(object)).await?;
        let message = made.message();
        ensure!(made.status == StatusCode::CREATED, "create {path}: {} {message}", made.status);
        Ok(made.json())
    }

    async fn exists(&self, path: &str) -> anyhow::Result<bool> {
        let answer = self.admin.get(self.capable, path).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            status => anyhow::bail!("GET {path}: {status}"),
        }
    }
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly"},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "nightly", "image": "busybox"}],
        }}},
    })
}

/// A policy that changes nothing: it matches nothing.
fn policy() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "defaults"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["nothings"],
            }]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
        },
    })
}

fn owned(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "of-defaults", "ownerReferences": [{
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "name": "defaults", "uid": uid,
        }]},
    })
}
