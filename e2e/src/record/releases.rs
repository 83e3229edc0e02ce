//! Records what real releases serve, and the structure of their schemas, for `mvp-apiserver`. Entry:
//! [`record`].

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value, json};

use super::{V2, items};
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec, ServerSpec};
use crate::programs::{Minor, Needs, Programs};

const RELEASES: [(&str, Minor); 3] =
    [("1.34", Minor::V1_34), ("1.35", Minor::V1_35), ("1.36", Minor::V1_36)];

/// Writes `surfaces.json.gz` and `schemas.gz` into a folder.
pub(crate) async fn record(folder: &Path) -> anyhow::Result<bool> {
    ensure!(folder.is_dir(), "{folder:?} is no folder");
    let needs = Needs { servers: vec![Minor::V1_35], ..Needs::default() };
    let programs = Programs::get_with(&needs)?;
    let mut surfaces = BTreeMap::new();
    // The releases that have a schema, by its name and text.
    let mut schemas: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (release, minor) in RELEASES {
        let default = Server::start(&programs, minor, None).await?;
        let all = Server::start(&programs, minor, Some("api/all=true")).await?;
        let surface = json!({
            "gitVersion": programs.version(minor),
            "default": default.groups().await?,
            "all": all.groups().await?,
        });
        surfaces.insert(release, surface);
        for (name, text) in all.schemas().await? {
            schemas.entry((name, text)).or_default().push(release);
        }
    }
    write(&folder.join("surfaces.json.gz"), &serde_json::to_string(&surfaces)?)?;
    let lines = schemas
        .iter()
        .map(|((name, text), releases)| format!("{}\t{name}\t{text}\n", releases.join(",")));
    write(&folder.join("schemas.gz"), &lines.collect::<String>())?;
    Ok(true)
}

/// A server, alone on a fresh etcd.
struct Server {
    cluster: Cluster,
    to: SocketAddr,
    _scratch: tempfile::TempDir,
}

impl Server {
    async fn start(
        programs: &Programs,
        minor: Minor,
        apis: Option<&str>,
    ) -> anyhow::Result<Server> {
        let mut server = ServerSpec::new("recorded", minor, apis.unwrap_or_default());
        if apis.is_none() {
            server.flags.clear();
        }
        server.bare = true;
        let spec = ClusterSpec {
            name: "recorded",
            servers: vec![server],
            native_proxy: false,
            cable: false,
        };
        let scratch = tempfile::tempdir()?;
        let cluster = Cluster::start(&spec, programs, scratch.path()).await?;
        let to = cluster.server("recorded")?.direct();
        Ok(Server { cluster, to, _scratch: scratch })
    }

    /// The groups of aggregated discovery, without what differs between two starts.
    async fn groups(&self) -> anyhow::Result<Vec<Value>> {
        let mut groups = Vec::new();
        for path in ["/api", "/apis"] {
            let document = self.client().get_as(self.to, path, V2).await?.expect(200)?;
            for group in items(&document, "/items") {
                let versions = items(group, "/versions").map(|version| {
                    json!({
                        "version": version.get("version"),
                        "resources": items(version, "/resources").collect::<Vec<_>>(),
                    })
                });
                let name = group.pointer("/metadata/name").and_then(Value::as_str);
                let versions: Vec<_> = versions.collect();
                groups.push(json!({ "name": name.unwrap_or_default(), "versions": versions }));
            }
        }
        Ok(groups)
    }

    /// The component schemas of all documents, by name, as JSON texts.
    async fn schemas(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let index = self.client().get(self.to, "/openapi/v3").await?.expect(200)?;
        let mut schemas = BTreeMap::new();
        let paths = index.get("paths").and_then(Value::as_object).context("no paths")?;
        for (key, entry) in paths {
            let url = entry.get("serverRelativeURL").and_then(Value::as_str).context("no URL")?;
            let document = self.client().get(self.to, url).await?.expect(200)?;
            let components = document.pointer("/components/schemas").and_then(Value::as_object);
            for (name, schema) in components.into_iter().flatten() {
                let mut schema = structure(schema);
                // Each document lists its own group and version there.
                if let (true, Value::Object(fields)) = (is_of_every_group(name), &mut schema) {
                    fields.remove("x-kubernetes-group-version-kind");
                }
                let text = schema.to_string();
                let known = schemas.entry(name.clone()).or_insert_with(|| text.clone());
                ensure!(*known == text, "{key} has another {name}");
            }
        }
        Ok(schemas)
    }

    fn client(&self) -> &Client {
        &self.cluster.admin
    }
}

fn is_of_every_group(name: &str) -> bool {
    let meta = name.strip_prefix("io.k8s.apimachinery.pkg.apis.meta.v1.");
    matches!(meta, Some("DeleteOptions" | "WatchEvent"))
}

/// A schema without sentences. Keys of `properties` are names of fields, not keywords.
fn structure(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else { return schema.clone() };
    let mut kept = Map::new();
    for (keyword, value) in keywords {
        let value = match (keyword.as_str(), value) {
            ("description" | "example" | "externalDocs", _) => continue,
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, schema)| (name.clone(), structure(schema))).collect()
            }
            ("additionalProperties" | "items" | "not", value) => structure(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter().map(structure).collect()
            }
            _ => value.clone(),
        };
        kept.insert(keyword.clone(), value);
    }
    Value::Object(kept)
}

/// Writes a compressed file. The same content gives the same bytes.
fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(content.as_bytes())?;
    let bytes = encoder.finish()?;
    println!("{}: {} bytes, {} compressed", path.display(), content.len(), bytes.len());
    std::fs::write(path, bytes).with_context(|| format!("cannot write {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_dropped_and_fields_of_that_name_are_kept() {
        let schema = json!({
            "description": "a sentence",
            "properties": {
                "description": { "type": "string", "description": "another one" },
                "list": { "items": { "allOf": [{ "$ref": "#/a", "description": "x" }], "default": {} } },
            },
            "x-kubernetes-list-type": "map",
        });
        let expected = json!({
            "properties": {
                "description": { "type": "string" },
                "list": { "items": { "allOf": [{ "$ref": "#/a" }], "default": {} } },
            },
            "x-kubernetes-list-type": "map",
        });
        assert_eq!(structure(&schema), expected);
    }
}
