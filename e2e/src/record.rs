//! Records the documents of real servers, for tests and servers that run without one.

pub(crate) mod releases;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::process::until;

use crate::client::Answer;
use crate::cluster::{Cluster, ClusterSpec, ServerSpec};
use crate::programs::{Minor, Programs};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const APIS: &str = "api/all=true";

/// Records every discovery document of each version into `FOLDER/vX.Y.Z.json`.
pub(crate) async fn record(folder: &Path) -> anyhow::Result<bool> {
    ensure!(folder.is_dir(), "{folder:?} is no folder");
    let programs = Programs::get()?;
    for minor in [Minor::V1_34, Minor::V1_36] {
        let version = programs.version(minor).to_owned();
        let file = folder.join(format!("{version}.json"));
        let scratch = tempfile::tempdir()?;
        let spec = ClusterSpec {
            name: "recorded",
            servers: vec![ServerSpec::new("recorded", minor, APIS)],
            native_proxy: false,
            cable: false,
        };
        let cluster = Cluster::start(&spec, &programs, scratch.path()).await?;
        let recorded = documents(&cluster, &version).await?;
        let count = recorded.legacy.len();
        std::fs::write(&file, serde_json::to_string(&recorded)?)
            .with_context(|| format!("cannot write {file:?}"))?;
        println!("{}: {count} legacy documents besides the aggregated ones", file.display());
    }
    Ok(true)
}

/// The documents of one server, byte for byte.
#[derive(Debug, Serialize)]
struct Recorded {
    provenance: Value,
    aggregated: Documents,
    legacy: Documents,
    /// Documents by path and media type, as hexadecimal digits.
    encoded: BTreeMap<String, BTreeMap<String, String>>,
}

/// Documents by path.
type Documents = BTreeMap<String, Box<RawValue>>;

async fn documents(cluster: &Cluster, version: &str) -> anyhow::Result<Recorded> {
    let to = cluster.server("recorded")?.direct();
    let client = cluster.admin.with_header("user-agent", "mvp")?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.create(to, definitions, &custom_resource()).await?.expect(201)?;
    let deadline = std::time::Duration::from_secs(20);
    until("the custom resource is served and listed", deadline, async || {
        let listed = client.get_as(to, "/apis", V2).await?.expect(200)?;
        let legacy = client.get(to, "/apis/example.com/v2").await?.expect(200)?;
        let both = listed.to_string().contains("widgets") && legacy.to_string().contains("widgets");
        Ok(both.then_some(()))
    })
    .await?;

    let (mut aggregated, mut legacy) = (Documents::new(), Documents::new());
    let mut groups = Value::Null;
    for path in ["/api", "/apis"] {
        let answer = client.get_as(to, path, V2).await?;
        groups = answer.expect(200)?;
        aggregated.insert(path.to_owned(), raw(&answer)?);
    }
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned(), "/api/v1".to_owned()];
    for group in items(&groups, "/items") {
        let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        paths.push(format!("/apis/{name}"));
        for version in items(group, "/versions") {
            let version = version.get("version").and_then(Value::as_str).unwrap_or_default();
            paths.push(format!("/apis/{name}/{version}"));
        }
    }
    for path in paths {
        let answer = client.get(to, &path).await?;
        answer.expect(200)?;
        legacy.insert(path, raw(&answer)?);
    }
    let mut encoded: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let aggregated_protobuf = V2.replace("application/json", protobuf);
    for path in ["/api", "/apis", "/api/v1", "/apis/autoscaling", "/apis/example.com/v2"] {
        let forms = if path.matches('/').count() == 1 { 2 } else { 1 };
        for accept in [protobuf, &aggregated_protobuf].into_iter().take(forms) {
            let answer = client.get_as(to, path, accept).await?;
            answer.expect(200)?;
            let hex = answer.body.iter().map(|byte| format!("{byte:02x}")).collect();
            encoded.entry(path.to_owned()).or_default().insert(accept.to_owned(), hex);
        }
    }
    let said = client.get(to, "/version").await?.expect(200)?;
    let git_version = said.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
    ensure!(git_version == version, "the server says that it is {git_version}, not {version}");
    let provenance = json!({
        "server": format!("kube-apiserver {version}, --runtime-config={APIS}, alone on a fresh etcd"),
        "beside": "a CustomResourceDefinition widgets.example.com: versions v1 and v2, status and \
                   scale subresources",
        "asked_as": "system:masters by client certificate, User-Agent mvp",
        "recorded": crate::report::date(),
        "recorded_by": "cargo run -p e2e -- record",
        "gitVersion": git_version,
    });
    Ok(Recorded { provenance, aggregated, legacy, encoded })
}

fn raw(answer: &Answer) -> anyhow::Result<Box<RawValue>> {
    let text = std::str::from_utf8(&answer.body)?.trim().to_owned();
    Ok(RawValue::from_string(text)?)
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn custom_resource() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}
