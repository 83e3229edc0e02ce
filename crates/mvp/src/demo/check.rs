//! The promises of the demo, each tested on the running cluster as a client. Entry: [`run`].

#![allow(clippy::indexing_slicing, reason = "a JSON value has null for what it lacks")]

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::certificates::Certificates;
use super::client::{Answer, Client};
use super::cluster::{Cluster, Server};

/// The result of testing one promise.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    pub(super) detail: String,
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Tests all promises.
pub(super) async fn run(cluster: &Cluster, certificates: &Certificates) -> Vec<Check> {
    let tried = match Trial::new(cluster, certificates) {
        Ok(trial) => trial,
        Err(error) => return vec![check("start", Err(error))],
    };
    vec![
        check("discovery shows the cluster", tried.discovery().await),
        check("nopeer shows one server", tried.nopeer().await),
        check("an API of a peer works everywhere", tried.everywhere().await),
        check("a watch works through a peer", tried.watch().await),
        check("a missing object is 404", tried.missing_object().await),
        check("an API that no server has is 404", tried.unserved().await),
        check("one hop, never a false 404", tried.one_hop().await),
        check("callers keep their identity", tried.identity().await),
        check("callers cannot take another identity", tried.spoof().await),
    ]
}

fn check(name: &'static str, outcome: anyhow::Result<String>) -> Check {
    match outcome {
        Ok(detail) => Check { name, ok: true, detail },
        Err(error) => Check { name, ok: false, detail: format!("{error:#}") },
    }
}

struct Trial<'a> {
    servers: &'a [Server],
    /// A server that serves neither jobs nor reviews.
    old: &'a Server,
    admin: Client,
    anonymous: Client,
}

impl<'a> Trial<'a> {
    fn new(cluster: &'a Cluster, certificates: &Certificates) -> anyhow::Result<Trial<'a>> {
        Ok(Trial {
            servers: &cluster.servers,
            old: cluster.servers.first().context("there is no server")?,
            admin: Client::admin(certificates)?,
            anonymous: Client::anonymous(certificates)?,
        })
    }

    async fn discovery(&self) -> anyhow::Result<String> {
        let expected: BTreeSet<&String> =
            self.servers.iter().flat_map(|server| &server.own).collect();
        let mut tags = BTreeSet::new();
        for server in self.servers {
            let answer = self.aggregated(server, AGGREGATED).await?;
            let mut listed = listed(&answer);
            listed.extend(self::listed(&self.aggregated_core(server).await?));
            ensure!(
                listed.iter().collect::<BTreeSet<_>>() == expected,
                "{} lists {listed:?}",
                server.id
            );
            tags.insert(answer.headers.get("etag").cloned().context("no ETag")?);
        }
        ensure!(tags.len() == 1, "{} different ETags", tags.len());
        Ok(format!(
            "{} resources, the same bytes from {} servers",
            expected.len(),
            self.servers.len()
        ))
    }

    async fn nopeer(&self) -> anyhow::Result<String> {
        let accept = format!("{AGGREGATED};profile=nopeer");
        let mut counts = Vec::new();
        for server in self.servers {
            let listed = listed(&self.aggregated(server, &accept).await?);
            let own: BTreeSet<String> =
                server.own.iter().filter(|name| !name.ends_with(".v1")).cloned().collect();
            ensure!(listed == own, "{} lists {listed:?}, serves {own:?}", server.id);
            counts.push(listed.len().to_string());
        }
        Ok(format!("{} resources in named groups", counts.join(", ")))
    }

    async fn everywhere(&self) -> anyhow::Result<String> {
        let mut statuses = Vec::new();
        for server in self.servers {
            let name = format!("by-{}", server.id);
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}});
            let created = self.admin.send(server, Method::POST, JOBS, &[], Some(job)).await?;
            ensure!(
                created.status == StatusCode::CREATED,
                "create at {}: {}",
                server.id,
                created.status
            );
            for other in self.servers {
                let got = self.admin.get(other, &format!("{JOBS}/{name}")).await?;
                ensure!(got.status == StatusCode::OK, "get at {}: {}", other.id, got.status);
            }
            statuses.push(created.status);
        }
        let list = self.admin.get(self.old, JOBS).await?.json();
        let count = list["items"].as_array().map_or(0, Vec::len);
        ensure!(count == self.servers.len(), "{count} jobs listed");
        for server in self.servers {
            let path = format!("{JOBS}/by-{}", server.id);
            let deleted = self.admin.send(self.old, Method::DELETE, &path, &[], None).await?;
            ensure!(deleted.status == StatusCode::OK, "delete: {}", deleted.status);
        }
        Ok(format!(
            "jobs created, read, listed and deleted through {} servers, one of which has them",
            statuses.len()
        ))
    }

    async fn watch(&self) -> anyhow::Result<String> {
        let path = format!("{JOBS}?watch=1");
        let mut events = self.admin.open(self.old, Method::GET, &path, &[], None).await?;
        ensure!(events.status() == StatusCode::OK, "watch: {}", events.status());
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "watched"}});
        let last = self.servers.last().context("there is no server")?;
        self.admin.send(last, Method::POST, JOBS, &[], Some(job)).await?;
        self.admin.send(last, Method::DELETE, &format!("{JOBS}/watched"), &[], None).await?;
        let mut text = Vec::new();
        let read = async {
            while !text.ends_with(b"\n") || text.iter().filter(|byte| **byte == b'\n').count() < 2 {
                let frame = events.body_mut().frame().await.context("the watch ended")??;
                text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            }
            anyhow::Ok(())
        };
        timeout(Duration::from_secs(10), read).await.context("no events in time")??;
        let kinds: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .map(|event| event["type"].as_str().unwrap_or_default().to_owned())
            .collect();
        ensure!(kinds == ["ADDED", "DELETED"], "events {kinds:?}");
        Ok("ADDED and DELETED, as they happened".to_owned())
    }

    async fn missing_object(&self) -> anyhow::Result<String> {
        let answer = self.admin.get(self.old, &format!("{JOBS}/nope")).await?;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        ensure!(answer.status == StatusCode::NOT_FOUND && message.contains("nope"), "{message:?}");
        Ok(message)
    }

    async fn unserved(&self) -> anyhow::Result<String> {
        for server in self.servers {
            let answer = self.admin.get(server, "/apis/example.com/v1/things").await?;
            ensure!(answer.status == StatusCode::NOT_FOUND, "{}: {}", server.id, answer.status);
        }
        Ok("the server's own 404, after every member confirmed it".to_owned())
    }

    async fn one_hop(&self) -> anyhow::Result<String> {
        let claim = [("x-kubernetes-peer-proxied", "true")];
        let answer = self.admin.send(self.old, Method::GET, JOBS, &claim, None).await?;
        let status = answer.json();
        ensure!(answer.status == StatusCode::SERVICE_UNAVAILABLE, "{}", answer.status);
        ensure!(
            status["kind"] == "Status" && answer.headers.contains_key("retry-after"),
            "{status}"
        );
        Ok("503 with Retry-After for a request that is marked as proxied before".to_owned())
    }

    async fn identity(&self) -> anyhow::Result<String> {
        let user = self.whoami(&self.admin, &[]).await?;
        ensure!(user == "demo-admin", "the server saw {user:?}");
        Ok(format!("{user}, as the server behind the hop sees it"))
    }

    async fn spoof(&self) -> anyhow::Result<String> {
        let pretence = [("x-remote-user", "root"), ("x_remote_user", "root")];
        for (client, expected) in
            [(&self.admin, "demo-admin"), (&self.anonymous, "system:anonymous")]
        {
            let user = self.whoami(client, &pretence).await?;
            ensure!(user == expected, "{expected} became {user:?}");
        }
        Ok("X-Remote-User of a client is ignored".to_owned())
    }

    async fn whoami(&self, client: &Client, headers: &[(&str, &str)]) -> anyhow::Result<String> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = client.send(self.old, Method::POST, REVIEWS, headers, Some(review)).await?;
        match answer.json()["status"]["userInfo"]["username"].as_str() {
            Some(user) => Ok(user.to_owned()),
            None => bail!("no user in the answer: {}", answer.status),
        }
    }

    async fn aggregated(&self, server: &Server, accept: &str) -> anyhow::Result<Answer> {
        self.admin.send(server, Method::GET, "/apis", &[("accept", accept)], None).await
    }

    async fn aggregated_core(&self, server: &Server) -> anyhow::Result<Answer> {
        self.admin.send(server, Method::GET, "/api", &[("accept", AGGREGATED)], None).await
    }
}

/// The resources of an aggregated document, as `jobs.v1.batch`.
fn listed(answer: &Answer) -> BTreeSet<String> {
    let document = answer.json();
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut names = BTreeSet::new();
    for group in each(&document["items"]) {
        let group_name = text(&group["metadata"]["name"]);
        let suffix = if group_name.is_empty() { String::new() } else { format!(".{group_name}") };
        for version in each(&group["versions"]) {
            for resource in each(&version["resources"]) {
                let (resource, version) = (text(&resource["resource"]), text(&version["version"]));
                names.insert(format!("{resource}.{version}{suffix}"));
            }
        }
    }
    names
}
