//! A node without containers: pods are bound to it, run as far as the API shows, and go when they are
//! deleted. Entry item: [`Kubelet::start`].

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::Client;

const NODE: &str = "without-containers";
const PAUSE: Duration = Duration::from_millis(300);
const MERGE: &str = "application/merge-patch+json";

/// A scheduler and a kubelet in one.
pub(super) struct Kubelet {
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Registers the node and takes care of all pods from then on.
    pub(super) async fn start(admin: Client, to: SocketAddr) -> anyhow::Result<Kubelet> {
        register(&admin, to).await?;
        let task = tokio::spawn(async move {
            loop {
                // A failed round is repeated: a spec that waits for a pod fails on its own.
                let _ = round(&admin, to).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Kubelet { task })
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

async fn register(admin: &Client, to: SocketAddr) -> anyhow::Result<()> {
    let capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"},
    }});
    let made = admin.create(to, "/api/v1/nodes", &node).await?;
    ensure!(matches!(made.status.as_u16(), 201 | 409), "cannot make a node: {made}");
    let path = format!("/api/v1/nodes/{NODE}");
    let status = json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    }});
    let status_path = format!("{path}/status");
    admin.send(to, Method::PATCH, &status_path, Some((MERGE, &status))).await?.expect(200)?;
    // Every new node is tainted as not ready.
    let spec = json!({"spec": {"taints": null}});
    admin.send(to, Method::PATCH, &path, Some((MERGE, &spec))).await?.expect(200)?;
    Ok(())
}

async fn round(admin: &Client, to: SocketAddr) -> anyhow::Result<()> {
    let pods = admin.get(to, "/api/v1/pods").await?.expect(200)?;
    for pod in pods.get("items").and_then(Value::as_array).into_iter().flatten() {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
        let (Some(namespace), Some(name)) = (text("/metadata/namespace"), text("/metadata/name"))
        else {
            continue;
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let (node, phase) = (text("/spec/nodeName"), text("/status/phase"));
        if text("/metadata/deletionTimestamp").is_some() {
            admin.delete(to, &format!("{path}?gracePeriodSeconds=0")).await?;
        } else if node.is_none() {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            });
            admin.create(to, &format!("{path}/binding"), &binding).await?;
        } else if node == Some(NODE) && phase == Some("Pending") {
            let status = json!({"status": running(pod)});
            let path = format!("{path}/status");
            admin.send(to, Method::PATCH, &path, Some((MERGE, &status))).await?;
        }
    }
    Ok(())
}

/// The status of a pod whose containers run.
fn running(pod: &Value) -> Value {
    let started = "2026-01-01T00:00:00Z";
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let statuses: Vec<Value> = containers
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container.get("name"), "image": container.get("image"), "imageID": "none",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            })
        })
        .collect();
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|name| json!({"type": name, "status": "True", "lastTransitionTime": started}))
        .to_vec();
    json!({
        "phase": "Running", "podIP": "192.0.2.2", "hostIP": "192.0.2.1", "startTime": started,
        "conditions": conditions, "containerStatuses": statuses,
    })
}
