//! Recording: what a real server says of itself, for tests that have none at hand.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, ServerSpec};
use crate::process::until;
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
        };
        let cluster = Cluster::start(&spec, &programs, scratch.path()).await?;
        let recorded = documents(&cluster, &version).await?;
        let count = recorded.get("legacy").and_then(Value::as_object).map_or(0, |map| map.len());
        std::fs::write(&file, format!("{recorded}\n"))
            .with_context(|| format!("cannot write {file:?}"))?;
        println!("{}: {count} older documents beside the aggregated ones", file.display());
    }
    Ok(true)
}

async fn documents(cluster: &Cluster, version: &str) -> anyhow::Result<Value> {
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

    let mut aggregated = BTreeMap::new();
    let mut legacy = BTreeMap::new();
    for path in ["/api", "/apis"] {
        aggregated.insert(path.to_owned(), client.get_as(to, path, V2).await?.expect(200)?);
    }
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned(), "/api/v1".to_owned()];
    for group in items(aggregated.get("/apis"), "/items") {
        let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        paths.push(format!("/apis/{name}"));
        for version in items(Some(group), "/versions") {
            let version = version.get("version").and_then(Value::as_str).unwrap_or_default();
            paths.push(format!("/apis/{name}/{version}"));
        }
    }
    for path in paths {
        let document = client.get(to, &path).await?.expect(200)?;
        legacy.insert(path, document);
    }
    let said = client.get(to, "/version").await?.expect(200)?;
    let git_version = said.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
    ensure!(git_version == version, "the server says that it is {git_version}, not {version}");
    Ok(json!({
        "provenance": {
            "server": format!("kube-apiserver {version}, --runtime-config={APIS}, alone on a fresh etcd"),
            "beside": "a CustomResourceDefinition widgets.example.com: versions v1 and v2, status and scale subresources",
            "asked_as": "system:masters by client certificate, User-Agent mvp",
            "recorded_by": "cargo run -p e2e -- record",
            "recorded": crate::report::date(),
            "gitVersion": git_version,
        },
        "aggregated": aggregated,
        "legacy": legacy,
    }))
}

fn items<'a>(value: Option<&'a Value>, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.and_then(|value| value.pointer(pointer)).and_then(Value::as_array).into_iter().flatten()
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
