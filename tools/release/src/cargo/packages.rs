//! The packages that `mvp` is built from. Entry: [`Inputs::packages`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use super::Inputs;

/// A package in the dependency graph of `mvp`.
#[derive(Debug)]
pub(crate) struct Package {
    /// The crate's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, an SPDX expression.
    pub licence: Option<String>,
    /// Where its source is.
    pub directory: PathBuf,
    /// Whether it is compiled into the binary. Else only a build script uses it.
    pub is_linked: bool,
    /// The SHA-256 of its source in the registry. None for crates of this workspace.
    pub checksum: Option<String>,
    /// The package URLs of its dependencies.
    pub dependencies: BTreeSet<String>,
}

impl Package {
    /// The package URL.
    pub(crate) fn purl(&self) -> String {
        purl(&self.name, &self.version)
    }
}

impl Inputs {
    /// The packages by package URL.
    pub(crate) fn packages(&self) -> anyhow::Result<BTreeMap<String, Package>> {
        let checksums = checksums(&self.lock);
        let list = |pointer: &str| {
            let list = self.metadata.pointer(pointer).and_then(Value::as_array);
            list.with_context(|| format!("cargo metadata has no {pointer}"))
        };
        let mut urls = BTreeMap::new();
        let mut packages = BTreeMap::new();
        for package in list("/packages")? {
            let (name, version) = (text(package, "name")?, text(package, "version")?);
            let key = format!("{name} v{version}");
            if !self.built.contains(&key) {
                continue;
            }
            urls.insert(text(package, "id")?, purl(name, version));
            let manifest = Path::new(text(package, "manifest_path")?);
            let found = Package {
                name: name.to_owned(),
                version: version.to_owned(),
                // The old form `A/B` means `A OR B`.
                licence: text(package, "license")
                    .ok()
                    .map(|l| l.replace(" / ", "/").replace('/', " OR ")),
                directory: manifest.parent().map(Path::to_owned).unwrap_or_default(),
                is_linked: self.linked.contains(&key),
                checksum: checksums.get(&key).cloned(),
                dependencies: BTreeSet::new(),
            };
            packages.insert(found.purl(), found);
        }
        for node in list("/resolve/nodes")? {
            let Some(url) = urls.get(text(node, "id")?) else { continue };
            let edges = node.get("deps").and_then(Value::as_array).into_iter().flatten();
            let edges = edges.filter(|edge| !is_for_tests(edge));
            let below = edges.filter_map(|edge| urls.get(edge.get("pkg")?.as_str()?).cloned());
            if let Some(package) = packages.get_mut(url) {
                package.dependencies = below.collect();
            }
        }
        Ok(packages)
    }
}

/// The package URL of a crate.
pub(crate) fn purl(name: &str, version: &str) -> String {
    // Only `+` of a version needs to be escaped.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// Whether an edge of the graph is a dev-dependency alone.
fn is_for_tests(edge: &Value) -> bool {
    let kinds = edge.get("dep_kinds").and_then(Value::as_array);
    kinds.is_some_and(|kinds| {
        kinds.iter().all(|kind| kind.get("kind").is_some_and(|kind| kind == "dev"))
    })
}

/// The checksums in Cargo.lock, by `NAME vVERSION`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let checksum = |package: &str| {
        let field = |name: &str| {
            let value =
                package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
            Some(value.trim_matches('"').to_owned())
        };
        Some((format!("{} v{}", field("name")?, field("version")?), field("checksum")?))
    };
    lock.split("[[package]]").filter_map(checksum).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    let found = value.get(field).and_then(Value::as_str);
    found.with_context(|| format!("cargo metadata has a package or node without {field}"))
}
