//! The API surface in every form: every document is the same through every member, and matches what
//! is served.

mod coherence;
mod hashes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use testkit::process::until;

use crate::client::Answer;
use crate::cluster::Cluster;
use crate::suite::Case;
use coherence::coherence;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "surface/every-form",
            every_form,
            "legacy documents, YAML and protobuf are also the same from every member"
        ),
        case!(
            Mixed,
            "surface/storage-version-hash",
            hashes::storage_version_hash,
            "every member returns the storage version hashes of a server that serves the resource"
        ),
        case!(
            Mixed,
            "surface/openapi",
            openapi,
            "every member returns OpenAPI v2 and v3 of all members"
        ),
        case!(
            Mixed,
            "surface/coherence",
            coherence,
            "nothing that a discovery document lists returns an unrouted 404"
        ),
        case!(
            Mixed,
            "surface/changes",
            changes,
            "an API that appears or disappears at one server does so through another"
        ),
        case!(
            Mixed,
            "surface/kubectl",
            kubectl,
            "kubectl explain and apply work for a kind that only peers serve"
        ),
    ]
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The time limit for slow servers, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Every discovery path of the cluster.
async fn discovery_paths(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let to = cluster.server("b")?.through();
    let groups = cluster.admin.get_as(to, "/apis", V2).await?.expect(200)?;
    let mut paths: Vec<String> = ["/api", "/apis", "/api/v1"].map(str::to_owned).into();
    for group in items(&groups, "/items") {
        let name = text(group, "/metadata/name");
        paths.push(format!("/apis/{name}"));
        for version in items(group, "/versions") {
            paths.push(format!("/apis/{name}/{}", text(version, "/version")));
        }
    }
    Ok(paths)
}

/// Checks that every member returns the same bytes, and returns them.
async fn same(cluster: &Cluster, path: &str, accept: &str) -> anyhow::Result<Answer> {
    let asked = cluster.servers.iter().map(|server| async {
        let answer = cluster.admin.get_as(server.through(), path, accept).await?;
        ensure!(answer.status == 200, "{path} as {accept} through {}: {answer}", server.name());
        anyhow::Ok(answer)
    });
    let answers = try_join_all(asked).await?;
    let first = answers.first().context("no member")?.clone();
    for other in &answers {
        let differ = format!("{path} as {accept}: members give different");
        ensure!(other.body == first.body, "{differ} bytes");
        for header in ["content-type", "etag", "vary"] {
            ensure!(other.headers.get(header) == first.headers.get(header), "{differ} {header}");
        }
    }
    Ok(first)
}

async fn every_form(cluster: &mut Cluster) -> anyhow::Result<String> {
    let without = cluster.server("b")?.direct();
    let missing = cluster.admin.get(without, "/apis/batch/v1").await?;
    ensure!(missing.status == 404, "the server without batch/v1 has it: {missing}");
    let paths = discovery_paths(cluster).await?;
    let (mut documents, mut different) = (0, 0);
    for path in &paths {
        if !hashes::agree(cluster, path).await? {
            different += 1;
            same_without_hashes(cluster, path).await?;
            continue;
        }
        for accept in ["application/json", "application/yaml", PROTOBUF] {
            let answer = same(cluster, path, accept).await?;
            ensure!(answer.headers.get("content-type").is_some_and(|kind| kind == accept));
            documents += 1;
        }
    }
    for path in ["/api", "/apis"] {
        same(cluster, path, V2).await?;
        same(cluster, path, &V2.replace("v=v2", "v=v2beta1")).await?;
        documents += 2;
    }
    let recipe = same(cluster, "/apis/apidiscovery.k8s.io/v2", "application/json, */*").await?;
    let names: BTreeSet<String> =
        items(&recipe.json(), "/items").map(|i| text(i, "/metadata/name").to_owned()).collect();
    ensure!(names.contains("batch") && names.contains("policy"), "the recipe lists {names:?}");

    // The documents of a server itself equal those of the gateway.
    let (mut compared, accept) = (0, "application/json;profile=nopeer");
    for server in &cluster.servers {
        for path in &paths {
            let theirs = cluster.admin.get_as(server.direct(), path, PROTOBUF).await?;
            let as_it_is = format!("{PROTOBUF};profile=nopeer");
            let ours = cluster.admin.get_as(server.through(), path, &as_it_is).await?;
            let what = format!("{path} of {} alone", server.name());
            ensure!(ours.status == theirs.status, "{what}: {} and {}", ours.status, theirs.status);
            // Its list of groups is built from APIServices, and wrong during version skew.
            if theirs.status == 200 && path.matches('/').count() == 3 {
                compared += 1;
                let json =
                    cluster.admin.get_as(server.through(), path, accept).await?.expect(200)?;
                let own = cluster.admin.get(server.direct(), path).await?.expect(200)?;
                ensure!(json == own, "{what}: {json} and {own}");
            }
        }
    }
    Ok(format!(
        "{documents} documents in 5 formats, the same bytes from 3 members; {different} differ as the \
         servers do, in storage version hashes; {compared} equal to the server's own"
    ))
}

/// Checks that every member returns the same but for hashes, in which the servers differ.
async fn same_without_hashes(cluster: &Cluster, path: &str) -> anyhow::Result<()> {
    let mut first = None;
    for server in &cluster.servers {
        let list = cluster.admin.get(server.through(), path).await?.expect(200)?;
        let list = without_hashes(&list);
        let first = first.get_or_insert_with(|| list.clone());
        ensure!(*first == list, "{path} through {}: {first} and {list}", server.name());
    }
    Ok(())
}

/// Removes the hashes of storage versions.
fn without_hashes(list: &Value) -> Value {
    let mut list = list.clone();
    for resource in
        list.pointer_mut("/resources").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Some(resource) = resource.as_object_mut() {
            resource.remove("storageVersionHash");
        }
    }
    list
}

/// The documents of version 3, by key.
fn index(document: &Value) -> BTreeMap<String, String> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    paths.map(|(key, path)| (key.clone(), text(path, "/serverRelativeURL").to_owned())).collect()
}

async fn openapi(cluster: &mut Cluster) -> anyhow::Result<String> {
    let merged = index(&same(cluster, "/openapi/v3", "application/json").await?.json());
    let mut union = BTreeSet::new();
    for server in &cluster.servers {
        let own = cluster.admin.get(server.direct(), "/openapi/v3").await?.expect(200)?;
        union.extend(index(&own).into_keys());
    }
    ensure!(merged.keys().eq(&union), "the index has {:?}, all members {union:?}", merged.keys());

    let (mut bytes, mut foreign) = (0, 0);
    for (key, url) in &merged {
        let document = same(cluster, url, "application/json").await?;
        bytes += document.body.len();
        let kept = document.headers.get("cache-control").and_then(|value| value.to_str().ok());
        ensure!(kept.is_some_and(|kept| kept.contains("immutable")), "{url}: {kept:?}");
        let etag = document.headers.get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.context("no ETag")?.trim_matches('"').to_owned();
        ensure!(url.ends_with(&etag), "{url} has ETag {etag}");
        foreign += usize::from(key == "apis/batch/v1" || key == "apis/policy/v1");
    }
    ensure!(foreign == 2, "batch/v1 and policy/v1 are not among them");

    let v2 = same(cluster, "/openapi/v2", "application/json").await?;
    let names = |document: &Value, field: &str| -> BTreeSet<String> {
        let fields = document.get(field).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, _)| name.clone()).collect()
    };
    for field in ["paths", "definitions"] {
        let mut union = BTreeSet::new();
        for server in &cluster.servers {
            let own = cluster.admin.get(server.direct(), "/openapi/v2").await?.expect(200)?;
            union.extend(names(&own, field));
        }
        ensure!(names(&v2.json(), field) == union, "{field} of version 2 are not those of all");
    }
    let etag = v2.headers.get("etag").and_then(|etag| etag.to_str().ok()).context("no ETag")?;
    let to = cluster.server("c")?.through();
    let again = cluster.admin.with_header("if-none-match", etag)?.get(to, "/openapi/v2").await?;
    ensure!(again.status == 304, "with its ETag: {again}");
    let protobuf = same(cluster, "/openapi/v2", OPENAPI_PROTOBUF).await?;
    for path in ["/apis/batch/v1/namespaces/{namespace}/jobs", "/apis/policy/v1/"] {
        let found = protobuf.body.windows(path.len()).any(|part| part == path.as_bytes());
        ensure!(found, "no {path} in protobuf");
    }
    Ok(format!(
        "{} documents ({:.1} MB) and version 2 ({:.1} MB JSON, {:.1} MB protobuf), the same from 3 members",
        merged.len(),
        bytes as f64 / 1e6,
        v2.body.len() as f64 / 1e6,
        protobuf.body.len() as f64 / 1e6,
    ))
}

async fn changes(cluster: &mut Cluster) -> anyhow::Result<String> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "colour": {"type": "string", "description": "of the paint"},
    }}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "paints.surface.example.com"},
        "spec": {
            "group": "surface.example.com", "scope": "Namespaced",
            "names": {"plural": "paints", "singular": "paint", "kind": "Paint"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let (a, b) = (cluster.server("a")?, cluster.server("b")?);
    let says = async |to: SocketAddr, path: &str, wanted: bool| {
        let accept = if path == "/apis" { V2 } else { "application/json" };
        let answer = cluster.admin.get_as(to, path, accept).await?;
        let found = String::from_utf8_lossy(&answer.body).contains("surface.example.com");
        anyhow::Ok((found == wanted).then_some(()))
    };
    let mut figures = Vec::new();
    for (wanted, word) in [(true, "there"), (false, "gone")] {
        if wanted {
            cluster.admin.create(a.direct(), definitions, &definition).await?.expect(201)?;
        } else {
            let path = format!("{definitions}/paints.surface.example.com");
            cluster.admin.delete(a.direct(), &path).await?.expect(200)?;
        }
        for path in ["/apis", "/openapi/v3", "/openapi/v2"] {
            // Measured from when the first server adds it, or the last one removes it.
            let speakers = cluster.servers.iter().take(if wanted { 1 } else { 3 });
            for server in speakers {
                let to = server.direct();
                until("the server says so", PATIENCE, async || says(to, path, wanted).await)
                    .await?;
            }
            let began = Instant::now();
            until("every member says so", PATIENCE, async || says(b.through(), path, wanted).await)
                .await
                .with_context(|| format!("{path}: {word}"))?;
            figures.push(format!("{path} {word} {:.1} s", began.elapsed().as_secs_f64()));
        }
        if wanted {
            let explained = cluster
                .kubectl(b.through())?
                .run(["explain", "paints.surface.example.com.colour"], None)
                .await?;
            ensure!(explained.contains("of the paint"), "explain printed {explained}");
        }
    }
    Ok(format!("after the server itself: {}", figures.join(", ")))
}

async fn kubectl(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("explain").await?;
    let b = cluster.server("b")?;
    let (directly, through) = (cluster.kubectl(b.direct())?, cluster.kubectl(b.through())?);
    let said = directly.try_run(&["explain", "jobs"], None).await?;
    ensure!(!said.ok, "the server without batch/v1 explains jobs: {said:?}");

    // Compared with a server that serves it.
    let whole = cluster.kubectl(cluster.server("c")?.direct())?;
    let mut commands = 0;
    for arguments in [
        &["explain", "jobs"][..],
        &["explain", "jobs", "--recursive"],
        &["explain", "jobs.spec.backoffLimit"],
        &["explain", "cronjobs.spec", "--recursive"],
    ] {
        let ours = through.run(arguments.iter().copied(), None).await?;
        let theirs = whole.run(arguments.iter().copied(), None).await?;
        ensure!(ours == theirs, "{arguments:?}: {ours} and {theirs}");
        commands += 1;
    }

    let mut wrong = super::objects::job("explain", "wrong").object;
    if let Some(spec) = wrong.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("backofLimit".to_owned(), json!(1));
    }
    let wrong = wrong.to_string();
    for arguments in [
        &["-n", "explain", "apply", "-f", "-"][..],
        &["-n", "explain", "apply", "--server-side", "-f", "-"],
        &["-n", "explain", "create", "-f", "-"],
    ] {
        let ours = through.try_run(arguments, Some(&wrong)).await?;
        let theirs = whole.try_run(arguments, Some(&wrong)).await?;
        ensure!(!ours.ok && ours.errors.contains("backofLimit"), "{arguments:?}: {ours:?}");
        ensure!(ours.errors == theirs.errors, "{arguments:?}: {ours:?} and {theirs:?}");
        commands += 1;
    }
    let right = super::objects::job("explain", "right").object.to_string();
    let made = through.run(["-n", "explain", "apply", "-f", "-"], Some(&right)).await?;
    ensure!(made.contains("created"), "{made}");
    let again = through.run(["-n", "explain", "apply", "-f", "-"], Some(&right)).await?;
    ensure!(again.contains("unchanged"), "{again}");
    through.run(["-n", "explain", "delete", "job", "right"], None).await?;
    for arguments in [&["api-versions"][..], &["api-resources", "-o", "name"]] {
        let ours = through.run(arguments.iter().copied(), None).await?;
        ensure!(ours.contains("batch") && ours.contains("policy"), "{arguments:?}: {ours}");
        commands += 1;
    }
    Ok(format!(
        "{} commands through a server without the kind, as at one that serves it",
        commands + 3
    ))
}
