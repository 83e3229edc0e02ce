//! Servers of many versions in one cluster, the oldest without aggregated discovery: the APIs of
//! each are served through all, and discovery is the same.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::discovery::{V2, items, resources, text};
use super::objects::{self, Kind};
use super::routing::{life, not_routed};
use crate::cluster::{Cluster, Server};
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            full Versions,
            "versions/routing",
            routing,
            "servers of four versions, the oldest without aggregated discovery"
        ),
        case!(
            full Versions,
            "versions/one-truth",
            one_truth,
            "the same servers return the same bytes, with every API of every server"
        ),
        case!(
            full Cbor,
            "versions/cbor",
            cbor,
            "404s in CBOR: an object 404 passes, an unrouted one only if all members confirm it"
        ),
    ]
}

const NAMESPACE: &str = "versions";

async fn routing(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    // A starting server removes APIs that it does not serve from the legacy lists of all others.
    cluster.server_mut("a")?.process()?.kill();
    cluster.heal().await?;
    let d = cluster.server("d")?.direct();
    let own = cluster.admin.get(d, &old_autoscaler("one").collection).await?;
    own.expect(200).context("the oldest itself")?;
    let listed = cluster.admin.get(d, "/apis").await?.expect(200)?.to_string();
    ensure!(!listed.contains("autoscaling/v2beta2"), "its own list is true, and shows nothing");
    let lacking = [
        ("a", objects::disruption_budget(NAMESPACE, "one")),
        ("b", objects::job(NAMESPACE, "one")),
        ("c", objects::autoscaler(NAMESPACE, "one")),
        ("d", objects::mutating_policy("e2e-versions")),
        // Removed in 1.26: only the oldest server serves it.
        ("a", old_autoscaler("one")),
        ("b", old_autoscaler("one")),
        ("c", old_autoscaler("one")),
    ];
    let mut requests = 0;
    for (name, kind) in lacking {
        let server = cluster.server(name)?;
        let version = cluster.programs.version(server.spec.minor);
        let context = format!("{} through {name}, {version}", kind.name);
        not_routed(&cluster.admin, server.direct(), &kind).await.context(context.clone())?;
        requests += life(&cluster.admin, server.through(), &kind).await.context(context)?;
    }
    Ok(format!("{}: {requests} requests as directly", described(cluster)))
}

fn described(cluster: &Cluster) -> String {
    let versions = cluster.servers.iter().map(|s| cluster.programs.version(s.spec.minor));
    versions.collect::<Vec<_>>().join(", ")
}

fn old_autoscaler(name: &str) -> Kind {
    let mut kind = objects::autoscaler(NAMESPACE, name);
    kind.name = "horizontalpodautoscalers.v2beta2.autoscaling";
    kind.collection = kind.collection.replace("/v2/", "/v2beta2/");
    if let Some(version) = kind.object.get_mut("apiVersion") {
        *version = json!("autoscaling/v2beta2");
    }
    kind
}

async fn one_truth(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut counts = Vec::new();
    for path in ["/api", "/apis"] {
        // Every group version that any server lists: each server gets a request for all of them.
        let mut spoken_of = BTreeSet::new();
        for server in &cluster.servers {
            let document = cluster.admin.get_as(server.direct(), path, &any_form()).await?;
            spoken_of.extend(versions(path, &document.expect(200)?));
            // Its lists may be incomplete; its root path lists all paths.
            let root = cluster.admin.get(server.direct(), "/").await?.expect(200)?;
            let depth = if path == "/api" { 2 } else { 3 };
            let is_version = |p: &&str| {
                p.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                    && p.matches('/').count() == depth
            };
            let paths = items(&root, "/paths").filter_map(Value::as_str).filter(is_version);
            spoken_of.extend(paths.map(str::to_owned));
        }
        let mut union = BTreeSet::new();
        for server in &cluster.servers {
            let own = own(cluster, server, path, &spoken_of).await?;
            counts.push(format!("{} {}", server.name(), own.len()));
            union.extend(own);
        }
        let mut bytes = None;
        for server in &cluster.servers {
            let answer = cluster.admin.get_as(server.through(), path, V2).await?;
            let merged: BTreeSet<String> = resources(&answer.expect(200)?).into_keys().collect();
            let differ: Vec<_> = merged.symmetric_difference(&union).collect();
            ensure!(differ.is_empty(), "{path} through {}: {differ:?}", server.name());
            let first = bytes.get_or_insert_with(|| answer.body.clone());
            ensure!(*first == answer.body, "{path}: members give different bytes");
        }
        counts.push(format!("{path} {}", union.len()));
    }
    let oldest = cluster.server("d")?;
    let said = cluster.admin.get_as(oldest.direct(), "/apis", &any_form()).await?;
    let form = text(&said.json(), "/kind").to_owned();
    Ok(format!(
        "{}, the same bytes from {} members; the oldest says {form}",
        counts.join(", "),
        cluster.servers.len()
    ))
}

/// The newest server serves CBOR.
async fn cbor(cluster: &mut Cluster) -> anyhow::Result<String> {
    const CBOR: &str = "application/cbor";
    const OBJECT: &str = "/apis/apps/v1/namespaces/default/deployments/no-such-object";
    // It knows the group, so it writes a Status.
    const UNROUTED: &str = "/apis/apps/v9/namespaces/default/deployments";
    let (direct, through) = (cluster.server("a")?.direct(), cluster.server("a")?.through());
    let get = async |cluster: &Cluster, to, path, status: u16| {
        let answer = cluster.admin.get_as(to, path, CBOR).await?;
        ensure!(answer.status.as_u16() == status, "{path}: {}", answer.status);
        let form = answer.headers.get("content-type").cloned();
        // The server writes the fields of an object in any order, each time in another one.
        let mut bytes = answer.body.to_vec();
        bytes.sort_unstable();
        anyhow::Ok((form, bytes))
    };
    for path in [OBJECT, UNROUTED] {
        let own = get(cluster, direct, path, 404).await.context("directly")?;
        let is_cbor = own.0.as_ref().is_some_and(|form| form.as_bytes() == CBOR.as_bytes());
        ensure!(is_cbor, "{path} is not in CBOR directly: it shows nothing");
        let passed = get(cluster, through, path, 404).await.context("through its gateway")?;
        ensure!(own == passed, "{path} differs through the gateway");
    }
    // Without one member, nobody can confirm that no member serves it.
    cluster.server_mut("b")?.kill();
    get(cluster, through, UNROUTED, 503).await.context("while a member is down")?;
    get(cluster, through, OBJECT, 404).await.context("while a member is down")?;
    Ok("404s as directly; while a member is down, the unrouted one is 503".to_owned())
}

/// An `Accept` header that servers of every version understand.
fn any_form() -> String {
    format!("{V2},{},application/json", V2.replace("v=v2", "v=v2beta1"))
}

/// `/apis/GROUP/VERSION` of all that a document lists, in whatever form.
fn versions(path: &str, document: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    all.extend(items(document, "/versions").filter_map(Value::as_str).map(|v| format!("/api/{v}")));
    for group in items(document, "/groups") {
        let versions = items(group, "/versions").map(|v| text(v, "/groupVersion"));
        all.extend(versions.map(|version| format!("{path}/{version}")));
    }
    for group in items(document, "/items") {
        let group_path = match text(group, "/metadata/name") {
            "" => path.to_owned(),
            name => format!("{path}/{name}"),
        };
        let versions = items(group, "/versions").map(|v| text(v, "/version"));
        all.extend(versions.map(|version| format!("{group_path}/{version}")));
    }
    all
}

/// What a server itself serves, by `group/version/resource`: requested one by one, because its
/// lists may include APIs of others.
async fn own(
    cluster: &Cluster,
    server: &Server,
    path: &str,
    spoken_of: &BTreeSet<String>,
) -> anyhow::Result<BTreeSet<String>> {
    let mut own = BTreeSet::new();
    for version in spoken_of {
        let answer = cluster.admin.get(server.direct(), version).await?;
        if answer.status == 404 {
            continue;
        }
        let list = answer.expect(200)?;
        let prefix = version.strip_prefix(path).context("another half")?.trim_start_matches('/');
        let prefix = if path == "/api" { format!("/{prefix}") } else { prefix.to_owned() };
        let names = items(&list, "/resources").map(|resource| text(resource, "/name"));
        own.extend(names.filter(|n| !n.contains('/')).map(|name| format!("{prefix}/{name}")));
    }
    Ok(own)
}
