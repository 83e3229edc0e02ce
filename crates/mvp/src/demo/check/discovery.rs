//! Discovery: of the whole cluster, in every form, the same from each server.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use http::{Method, StatusCode};
use serde_json::Value;

use super::{AGGREGATED, Check, Outcome, Trial, check, each, expect, plans, text};
use crate::demo::client::Answer;
use crate::demo::cluster::{Cluster, Mode};
use crate::demo::server::Server;

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    vec![
        check("discovery shows the cluster", cluster(trial).await),
        check("discovery is merged in every form", forms(trial).await),
        check("nopeer shows one server", nopeer(trial).await),
        check("the order is deterministic", order(trial).await),
        check("/apis/apidiscovery.k8s.io/v2 works", recipe(trial).await),
        check("storageversions are readable everywhere", storage_versions(trial).await),
        check("servers have identity Leases", leases(trial).await),
    ]
}

async fn cluster(trial: &Trial) -> Outcome {
    let expected: BTreeSet<String> = trial.servers().iter().flat_map(Server::own).collect();
    let mut tags = BTreeSet::new();
    for server in trial.servers() {
        let apis = fetch(trial, server, "/apis", AGGREGATED).await?;
        let mut listed = listed(&apis);
        listed.extend(self::listed(&fetch(trial, server, "/api", AGGREGATED).await?));
        let missing: Vec<_> = expected.difference(&listed).collect();
        let odd: Vec<_> = listed.difference(&expected).collect();
        let id = server.plan.id;
        ensure!(missing.is_empty() && odd.is_empty(), "{id} lacks {missing:?}, invents {odd:?}");
        tags.insert(apis.headers.get("etag").cloned().context("no ETag")?);
    }
    ensure!(tags.len() == 1, "{} different ETags", tags.len());
    let alone = trial.poor()?.own().len();
    Ok(format!("{} resources from each server; {alone} are server-b's own", expected.len()))
}

/// Media types of discovery, and the paths that have them. The demo's servers have no protobuf.
const FORMS: [(&str, &[&str]); 4] = [
    (AGGREGATED, &["/api", "/apis"]),
    (
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        &["/api", "/apis"],
    ),
    ("application/json", &["/api", "/api/v1", "/apis", "/apis/batch", "/apis/batch/v1"]),
    ("application/yaml", &["/api/v1", "/apis", "/apis/batch/v1"]),
];

/// Every document in every form is the same from each server, also from the one without batch/v1.
async fn forms(trial: &Trial) -> Outcome {
    let mut count = 0;
    for (accept, paths) in FORMS {
        for path in paths {
            let mut bodies = BTreeSet::new();
            for server in trial.servers() {
                let answer = fetch(trial, server, path, accept).await?;
                let kind = answer.headers.get("content-type").cloned().context("no type")?;
                let wanted = accept.split(';').next().unwrap_or_default();
                ensure!(kind.to_str()?.starts_with(wanted), "{path} as {accept}: {kind:?}");
                if !path.starts_with("/api/") && *path != "/api" {
                    let has = answer.body.windows(5).any(|part| part == b"batch");
                    ensure!(has, "{path} as {accept} at {}: no batch", server.plan.id);
                }
                bodies.insert(answer.body);
            }
            ensure!(bodies.len() == 1, "{path} as {accept}: {} versions", bodies.len());
            count += 1;
        }
    }
    Ok(format!("{count} documents, aggregated and legacy, in JSON and YAML"))
}

async fn nopeer(trial: &Trial) -> Outcome {
    let accept = format!("{AGGREGATED};profile=nopeer");
    let mut counts = Vec::new();
    for server in trial.servers() {
        let mut listed = listed(&fetch(trial, server, "/apis", &accept).await?);
        listed.extend(self::listed(&fetch(trial, server, "/api", &accept).await?));
        let own: BTreeSet<String> = server.own().into_iter().collect();
        let odd: Vec<_> = listed.symmetric_difference(&own).collect();
        ensure!(odd.is_empty(), "{}: {odd:?}", server.plan.id);
        counts.push(listed.len().to_string());
    }
    Ok(format!("{} resources", counts.join(", ")))
}

/// A cluster whose servers start in another order lists the same groups in the same order.
async fn order(trial: &Trial) -> Outcome {
    let mut reversed = plans();
    reversed.reverse();
    let other = trial.another(reversed, Mode::Proxied).await?;
    let mut orders = BTreeSet::new();
    for cluster in [&trial.cluster, &other] {
        for server in &cluster.servers {
            let document = fetch(trial, server, "/apis", AGGREGATED).await?.json();
            let names = |group: &Value| {
                let versions = each(&group["versions"]);
                let versions = versions.iter().map(|version| text(&version["version"]));
                (text(&group["metadata"]["name"]), versions.collect::<Vec<_>>())
            };
            orders.insert(each(&document["items"]).iter().map(names).collect::<Vec<_>>());
        }
    }
    end(other).await?;
    ensure!(orders.len() == 1, "{} different orders", orders.len());
    let groups = orders.first().map_or(0, Vec::len);
    Ok(format!("{groups} groups in one order from six servers, started in any order"))
}

async fn recipe(trial: &Trial) -> Outcome {
    let path = "/apis/apidiscovery.k8s.io/v2";
    let mut bodies = BTreeSet::new();
    for server in trial.servers() {
        let answer = fetch(trial, server, path, "application/json, */*").await?;
        let items = each(&answer.json()["items"]);
        let names: Vec<_> = items.iter().map(|item| text(&item["metadata"]["name"])).collect();
        ensure!(names.iter().any(|name| name == "batch"), "{}: {names:?}", server.plan.id);
        bodies.insert(answer.body);
    }
    ensure!(bodies.len() == 1, "{} different documents", bodies.len());
    Ok("the command of the documentation gets the merged list".to_owned())
}

async fn storage_versions(trial: &Trial) -> Outcome {
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let mut expected: Vec<&str> = vec![trial.old()?.identity(), trial.newest()?.identity()];
    expected.sort_unstable();
    for server in trial.servers() {
        let answer = fetch(trial, server, path, "application/json").await?.json();
        let items = each(&answer["items"]);
        let jobs = items.iter().find(|item| item["metadata"]["name"] == "batch.jobs");
        let entries = each(&jobs.context("no batch.jobs")?["status"]["storageVersions"]);
        let mut servers: Vec<_> = entries.iter().map(|entry| text(&entry["apiServerID"])).collect();
        servers.sort_unstable();
        ensure!(servers == expected, "{}: jobs at {servers:?}", server.plan.id);
    }
    Ok("batch.jobs is recorded for the two servers that have it".to_owned())
}

async fn leases(trial: &Trial) -> Outcome {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
    let answer = fetch(trial, trial.poor()?, path, "application/json").await?.json();
    let names: BTreeSet<_> =
        each(&answer["items"]).iter().map(|item| text(&item["metadata"]["name"])).collect();
    let expected = trial.servers().iter().map(|server| server.identity().to_owned()).collect();
    ensure!(names == expected, "{names:?}");
    Ok(format!("{} Leases in kube-system", names.len()))
}

async fn fetch(trial: &Trial, server: &Server, path: &str, accept: &str) -> anyhow::Result<Answer> {
    let headers = [("accept", accept)];
    let answer = trial.admin.send(server, Method::GET, path, &headers, None).await?;
    expect(&answer, StatusCode::OK).with_context(|| format!("{path} as {accept}"))?;
    Ok(answer)
}

/// The resources of an aggregated document, as `jobs.v1.batch`.
pub(super) fn listed(answer: &Answer) -> BTreeSet<String> {
    let document = answer.json();
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

/// Ends the servers of a cluster.
pub(super) async fn end(mut cluster: Cluster) -> anyhow::Result<()> {
    for place in 0..cluster.servers.len() {
        cluster.end(place).await?;
    }
    Ok(())
}
