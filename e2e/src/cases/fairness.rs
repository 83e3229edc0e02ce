//! Priority and fairness of requests that another server serves.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;

use crate::client::{Answer, Client};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "fairness/counted-once",
        counted_once,
        "a proxied request is counted once by priority and fairness, in the flow of its user"
    )]
}

const SOON: Duration = Duration::from_secs(60);
const USER: &str = "fair-alice";
const SCHEMA: &str = "e2e-fair-alice";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REQUESTS: u32 = 40;
/// `b` does not serve it.
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn counted_once(cluster: &mut Cluster) -> anyhow::Result<String> {
    let a = cluster.server("a")?.direct();
    cluster.admin.create(a, SCHEMAS, &schema()).await?.expect(201)?;
    let outcome = count(cluster).await;
    cluster.admin.delete(a, &format!("{SCHEMAS}/{SCHEMA}")).await?.expect(200)?;
    outcome
}

async fn count(cluster: &Cluster) -> anyhow::Result<String> {
    let alice = cluster.user(USER, &["nobodies"])?;
    let a = cluster.server("a")?.direct();
    let found = cluster.admin.get(a, &format!("{SCHEMAS}/{SCHEMA}")).await?.expect(200)?;
    let uid = found.pointer("/metadata/uid").and_then(Value::as_str).context("no UID")?.to_owned();
    let servers = ["a", "b", "c"].map(|name| cluster.server(name).map(|server| server.direct()));
    let servers = servers.into_iter().collect::<anyhow::Result<Vec<SocketAddr>>>()?;
    for server in &servers {
        until("the server uses the FlowSchema", SOON, async || {
            let answer = alice.get(*server, CONFIG_MAPS).await?;
            Ok((flow_of(&answer) == uid).then_some(()))
        })
        .await?;
    }

    let before = dispatched(&cluster.admin, &servers).await?;
    let through = cluster.server("b")?.through();
    for _ in 0..REQUESTS {
        // She may not list Jobs: the peer says so after it has counted the request.
        let answer = alice.get(through, JOBS).await?;
        answer.expect(403)?;
        ensure!(
            flow_of(&answer) == uid,
            "the headers of priority and fairness are missing: {answer}"
        );
    }
    let after = dispatched(&cluster.admin, &servers).await?;
    let counted: Vec<f64> =
        after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let total: f64 = counted.iter().sum();
    ensure!(
        total == f64::from(REQUESTS),
        "{REQUESTS} requests are counted {total} times: {counted:?}"
    );
    ensure!(counted.get(1) == Some(&0.0), "the server that does not serve them counts them, too");
    Ok(format!("{REQUESTS} requests through b, counted {counted:?} times by a, b and c"))
}

/// A FlowSchema for this user alone.
fn schema() -> Value {
    let all = json!(["*"]);
    let rules = json!([{
        "subjects": [{"kind": "User", "user": {"name": USER}}],
        "resourceRules": [{
            "verbs": all, "apiGroups": all, "resources": all, "namespaces": all, "clusterScope": true,
        }],
    }]);
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": SCHEMA},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"}, "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"}, "rules": rules,
        },
    })
}

/// The UID of the FlowSchema that a request matched.
fn flow_of(answer: &Answer) -> &str {
    let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid");
    uid.and_then(|uid| uid.to_str().ok()).unwrap_or_default()
}

/// How many requests of the FlowSchema each server has dispatched.
async fn dispatched(admin: &Client, servers: &[SocketAddr]) -> anyhow::Result<Vec<f64>> {
    let mut counts = Vec::new();
    for server in servers {
        let metrics = admin.get(*server, "/metrics").await?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let ours = text.lines().filter(|line| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(&format!("flow_schema=\"{SCHEMA}\""))
        });
        let values = ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.push(values.sum());
    }
    Ok(counts)
}
