//! The promises of the Mixed Version Proxy, each tested on running clusters as a client. Entry:
//! [`run`].

#![allow(clippy::indexing_slicing, reason = "a JSON value has null for what it lacks")]

mod discovery;
mod failures;
mod flags;
mod identity;
mod routing;
mod safety;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::client::{Answer, Client};
use super::cluster::{Cluster, Mode};
use super::plan::{self, ServerPlan};
use super::server::Server;

/// The result of testing one promise.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    pub(super) detail: String,
}

type Outcome = anyhow::Result<String>;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// An API that the second server has switched off.
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// An API that only the third server has: it is new.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
/// An API that the second server has switched off, and that shows the caller.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// What the second server has switched off.
const SWITCHED_OFF: &[&str] = &[plan::SWITCHED_OFF, "authentication.k8s.io/v1"];
/// The time for a change to be seen by every server.
const SETTLES: Duration = Duration::from_secs(10);

/// Tests all promises.
pub(super) async fn run(certificates: &Arc<Certificates>, stop: &CancellationToken) -> Vec<Check> {
    let trial = match Trial::start(certificates, stop).await {
        Ok(trial) => trial,
        Err(error) => return vec![check("the demo starts", Err(error))],
    };
    let mut checks = routing::all(&trial).await;
    checks.extend(discovery::all(&trial).await);
    checks.extend(identity::all(&trial).await);
    checks.extend(flags::all(&trial).await);
    checks.extend(failures::all(&trial).await);
    checks.extend(safety::all(&trial).await);
    checks
}

fn check(name: &'static str, outcome: Outcome) -> Check {
    match outcome {
        Ok(detail) => Check { name, ok: true, detail },
        Err(error) => Check { name, ok: false, detail: format!("{error:#}") },
    }
}

/// The servers of the checks: a 1.34, another that lacks old APIs, and a 1.36.
fn plans() -> Vec<ServerPlan> {
    let mut plans = plan::mixed();
    for plan in plans.iter_mut().filter(|plan| !plan.off.is_empty()) {
        plan.off = SWITCHED_OFF;
    }
    plans
}

/// A running cluster and its clients.
struct Trial {
    certificates: Arc<Certificates>,
    stop: CancellationToken,
    cluster: Cluster,
    admin: Client,
}

impl Trial {
    async fn start(
        certificates: &Arc<Certificates>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Trial> {
        Ok(Trial {
            cluster: Cluster::start(certificates, plans(), Mode::Proxied, stop).await?,
            certificates: Arc::clone(certificates),
            stop: stop.clone(),
            admin: Client::admin(certificates)?,
        })
    }

    /// Another cluster, for a check that ends servers.
    async fn another(&self, plans: Vec<ServerPlan>, mode: Mode) -> anyhow::Result<Cluster> {
        Cluster::start(&self.certificates, plans, mode, &self.stop.child_token()).await
    }

    fn servers(&self) -> &[Server] {
        &self.cluster.servers
    }

    /// The server that has Jobs, but not what is new.
    fn old(&self) -> anyhow::Result<&Server> {
        self.cluster.at(0)
    }

    /// The server that has neither Jobs nor what is new.
    fn poor(&self) -> anyhow::Result<&Server> {
        self.cluster.at(1)
    }

    /// The server that has everything.
    fn newest(&self) -> anyhow::Result<&Server> {
        self.cluster.at(2)
    }

    async fn create(&self, server: &Server, path: &str, object: Value) -> anyhow::Result<Answer> {
        let made = self.admin.send(server, Method::POST, path, &[], Some(object)).await?;
        let id = server.plan.id;
        expect(&made, StatusCode::CREATED).with_context(|| format!("create through {id}"))?;
        Ok(made)
    }

    async fn delete(&self, server: &Server, path: &str) -> anyhow::Result<Answer> {
        let body = Some(json!({"propagationPolicy": "Background"}));
        let deleted = self.admin.send(server, Method::DELETE, path, &[], body).await?;
        expect(&deleted, StatusCode::OK)?;
        Ok(deleted)
    }
}

/// An error unless the answer has this status.
fn expect(answer: &Answer, status: StatusCode) -> anyhow::Result<()> {
    anyhow::ensure!(answer.status == status, "{} {}", answer.status, answer.message());
    Ok(())
}

/// Waits until something holds.
async fn until(
    what: &str,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + SETTLES;
    while !holds().await? {
        anyhow::ensure!(Instant::now() < deadline, "not within 10 s: {what}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "one", "image": "busybox"}],
        }}},
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn each(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}
