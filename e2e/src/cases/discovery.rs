//! Merged discovery through every member.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;

use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "discovery/one-truth",
            one_truth,
            "every member returns the same bytes, with every API of every server"
        ),
        case!(
            Mixed,
            "discovery/nopeer",
            nopeer,
            "profile=nopeer returns the document of the local server"
        ),
        case!(
            Mixed,
            "discovery/switched-off",
            switched_off,
            "a disabled gateway, or one without peers, returns the local document"
        ),
        case!(
            Native,
            "discovery/as-kubernetes-own",
            as_kubernetes_own,
            "merged /apis equals that of the proxy in kube-apiserver 1.36"
        ),
    ]
}

pub(super) const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const NOPEER: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

/// Every resource of a document, by `group/version/resource`, with its details.
pub(super) fn resources(document: &Value) -> BTreeMap<String, Value> {
    let mut resources = BTreeMap::new();
    for group in items(document, "/items") {
        let name = text(group, "/metadata/name");
        for version in items(group, "/versions") {
            for resource in items(version, "/resources") {
                let key =
                    format!("{name}/{}/{}", text(version, "/version"), text(resource, "/resource"));
                resources.insert(key, resource.clone());
            }
        }
    }
    resources
}

pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn one_truth(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut figures = Vec::new();
    for path in ["/api", "/apis"] {
        let mut union = BTreeMap::new();
        let mut seen: Vec<(Value, Option<http::HeaderValue>, bytes::Bytes)> = Vec::new();
        for server in &cluster.servers {
            let own = cluster.admin.get_as(server.direct(), path, V2).await?.expect(200)?;
            union.extend(resources(&own).into_keys().map(|key| (key, server.name())));
            let answer = cluster.admin.get_as(server.through(), path, V2).await?;
            let etag = answer.headers.get(http::header::ETAG).cloned();
            seen.push((answer.expect(200)?, etag, answer.body));
        }
        let first = seen.first().context("no server")?;
        ensure!(first.1.is_some(), "{path} has no ETag");
        for other in &seen {
            ensure!(other.2 == first.2, "{path}: members give different bytes");
            ensure!(other.1 == first.1, "{path}: members give different ETags");
        }
        let merged = resources(&first.0);
        for (resource, server) in &union {
            ensure!(merged.contains_key(resource), "{path} lacks {resource} of {server}");
        }
        ensure!(merged.len() == union.len(), "{path} lists more than anyone serves");
        figures.push(format!("{path} {} resources", merged.len()));
        // A request with the ETag gets 304.
        let etag = first.1.as_ref().and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        let client = cluster.admin.with_header("if-none-match", etag)?;
        let to = cluster.server("b")?.through();
        let again = client.get_as(to, path, V2).await?;
        ensure!(again.status == 304, "{path} with a matching ETag: {again}");
    }
    Ok(format!("{}, the same bytes and ETag from 3 members; 304", figures.join(", ")))
}

async fn nopeer(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut counts = Vec::new();
    for server in &cluster.servers {
        let own = cluster.admin.get_as(server.direct(), "/apis", NOPEER).await?.expect(200)?;
        let ours = cluster.admin.get_as(server.through(), "/apis", NOPEER).await?.expect(200)?;
        ensure!(own == ours, "nopeer through {} differs from its own", server.name());
        counts.push(format!("{} {}", server.name(), resources(&own).len()));
        // A profile that nobody knows counts as none.
        let unknown = NOPEER.replace("nopeer", "unheard-of");
        let merged = cluster.admin.get_as(server.through(), "/apis", V2).await?;
        let answer = cluster.admin.get_as(server.through(), "/apis", &unknown).await?;
        ensure!(answer.body == merged.body, "an unknown profile is not as none");
    }
    Ok(format!("resources of each alone: {}", counts.join(", ")))
}

/// The changed flags of a gateway.
type Change<'a> = Box<dyn FnOnce(&mut Vec<String>) + 'a>;

/// A gateway that merges nothing passes through the local documents and 404s.
async fn switched_off(cluster: &mut Cluster) -> anyhow::Result<String> {
    let admin = &cluster.admin;
    let b = cluster.server("b")?;
    let own = admin.get_as(b.direct(), "/apis", V2).await?.expect(200)?;
    let ca = format!("--local-ca-file={}", cluster.pki.files().ca().display());
    let without = |arguments: &mut Vec<String>, flag: &str| {
        arguments.retain(|argument| !argument.starts_with(flag));
    };
    let off = "--feature-gates=UnknownVersionInteroperabilityProxy=false".to_owned();
    let ways: [(&str, Change<'_>); 3] = [
        ("the gate is off", Box::new(|arguments| arguments.push(off))),
        (
            "no --peer-ca-file",
            Box::new(|arguments| {
                without(arguments, "--peer-ca-file");
                arguments.push(ca);
            }),
        ),
        (
            "no peers",
            Box::new(|arguments| {
                without(arguments, "--peer=");
                arguments.push("--membership=static".to_owned());
            }),
        ),
    ];
    let count = ways.len();
    for (how, change) in ways {
        let (mut process, to) = cluster.another_gateway("b", change)?;
        until("it answers", Duration::from_secs(20), async || {
            process.check()?;
            admin.get_as(to, "/apis", V2).await?.expect(200).map(Some)
        })
        .await
        .context(how)?;
        let ours = admin.get_as(to, "/apis", V2).await?.expect(200)?;
        ensure!(ours == own, "{how}: it shows more than its server's own");
        let jobs = admin.get(to, "/apis/batch/v1/jobs").await?;
        ensure!(jobs.status == 404, "{how}: {jobs}");
        admin.get(to, "/api/v1/namespaces/default").await?.expect(200).context(how)?;
    }
    Ok(format!(
        "{count} configurations without merging: only the {} resources of b",
        resources(&own).len()
    ))
}

async fn as_kubernetes_own(cluster: &mut Cluster) -> anyhow::Result<String> {
    let b = cluster.server("b")?;
    // Kubernetes' own proxy needs some seconds to discover its peers.
    let (theirs, ours) = until("both merge all members", Duration::from_secs(60), async || {
        let theirs = cluster.admin.get_as(b.direct(), "/apis", V2).await?.expect(200)?;
        let ours = cluster.admin.get_as(b.through(), "/apis", V2).await?.expect(200)?;
        let same = resources(&theirs).keys().eq(resources(&ours).keys());
        Ok(same.then_some((theirs, ours)))
    })
    .await
    .context("the two list different resources")?;
    let (their_resources, our_resources) = (resources(&theirs), resources(&ours));
    for (key, resource) in &their_resources {
        let own = our_resources.get(key);
        ensure!(own == Some(resource), "{key}: Kubernetes says {resource}, we say {own:?}");
    }
    for key in ["batch/v1/jobs", "autoscaling/v2/horizontalpodautoscalers"] {
        ensure!(our_resources.contains_key(key), "no {key}: nothing was merged");
    }
    let order = |document: &Value| -> Vec<String> {
        let groups = items(document, "/items");
        groups.map(|group| text(group, "/metadata/name").to_owned()).collect()
    };
    ensure!(
        order(&ours) == order(&theirs),
        "the order of groups differs: {:?} and {:?}",
        order(&ours),
        order(&theirs)
    );
    let same = if ours == theirs { "equal as whole documents" } else { "equal item by item" };
    Ok(format!("{} resources in {} groups, {same}", our_resources.len(), order(&ours).len()))
}
