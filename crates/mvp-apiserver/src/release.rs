//! Real releases of Kubernetes: what their servers serve, and the schemas of it. Entry: [`Release`].
//!
//! Both come from documents that real servers sent (see `assets/README.md`). They stay compressed
//! until they are needed.

mod runtime_config;
mod schemas;

use std::io::Read;

use flate2::read::GzDecoder;
use mvp_core::Verb;
use serde::Deserialize;

use crate::spec::{
    GroupSpec, ResourceSpec, ResponseKind, ServerSpec, SubresourceSpec, VersionSpec,
};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub(crate) use schemas::{SchemaOf, Schemas};

/// A release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// Kubernetes 1.34.
    V1_34,
    /// Kubernetes 1.35.
    V1_35,
    /// Kubernetes 1.36.
    V1_36,
}

impl Release {
    /// All releases, the oldest first.
    pub const ALL: [Release; 3] = [Release::V1_34, Release::V1_35, Release::V1_36];

    /// The minor version, such as `1.36`.
    pub fn name(self) -> &'static str {
        match self {
            Release::V1_34 => "1.34",
            Release::V1_35 => "1.35",
            Release::V1_36 => "1.36",
        }
    }

    /// The spec of a server of this release. `config` switches APIs on and off; without it, the
    /// server has the APIs of a real server without flags. It fails if the release does not know a
    /// group or version of `config`.
    pub fn spec(self, id: &str, config: &RuntimeConfig) -> Result<ServerSpec, RuntimeConfigError> {
        let recorded = Recorded::of(self);
        config.check(|group, version| knows(&recorded.all, group, version))?;
        let enabled = |group: &str, version: &str, resource: &str| {
            let by_default = || contains(&recorded.default, group, version, resource);
            config.is_enabled(group, version, resource).unwrap_or_else(by_default)
        };
        let groups = recorded.all.iter().filter_map(|group| group.spec(&enabled)).collect();
        Ok(ServerSpec {
            id: id.to_owned(),
            git_version: recorded.git_version,
            groups,
            release: Some(self),
        })
    }

    /// The component schemas of this release.
    pub(crate) fn schemas(self) -> Schemas {
        Schemas::of(self)
    }
}

/// What servers of a release serve.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    git_version: String,
    /// With every API on.
    all: Vec<Group>,
    /// Without flags.
    default: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    name: String,
    versions: Vec<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
    resources: Vec<Resource>,
}

/// A resource as in aggregated discovery.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    response_kind: Kind,
    scope: String,
    singular_resource: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subresource {
    subresource: String,
    response_kind: Kind,
    verbs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

impl Recorded {
    fn of(release: Release) -> Recorded {
        use std::collections::HashMap;
        let mut text = String::new();
        // A test reads the asset; an unreadable one would have no groups.
        let _ = GzDecoder::new(ASSET).read_to_string(&mut text);
        let releases: HashMap<String, Recorded> = serde_json::from_str(&text).unwrap_or_default();
        releases.into_iter().find(|(name, _)| name == release.name()).unwrap_or_default().1
    }
}

const ASSET: &[u8] = include_bytes!("../assets/surfaces.json.gz");

impl Group {
    /// The resources that are on; `None` if there are none.
    fn spec(&self, enabled: &impl Fn(&str, &str, &str) -> bool) -> Option<GroupSpec> {
        let versions = self.versions.iter().filter_map(|version| {
            let on = |entry: &&Resource| enabled(&self.name, &version.version, &entry.resource);
            let resources: Vec<_> =
                version.resources.iter().filter(on).map(Resource::spec).collect();
            let version = version.version.clone();
            (!resources.is_empty()).then_some(VersionSpec { version, resources })
        });
        let versions: Vec<_> = versions.collect();
        (!versions.is_empty()).then(|| GroupSpec { name: self.name.clone(), versions })
    }
}

impl Resource {
    fn spec(&self) -> ResourceSpec {
        let subresource = |entry: &Subresource| SubresourceSpec {
            name: entry.subresource.clone(),
            verbs: verbs(&entry.verbs),
            kind: Some(ResponseKind {
                group: entry.response_kind.group.clone(),
                version: entry.response_kind.version.clone(),
                kind: entry.response_kind.kind.clone(),
            }),
        };
        ResourceSpec {
            plural: self.resource.clone(),
            singular: self.singular_resource.clone(),
            kind: self.response_kind.kind.clone(),
            namespaced: self.scope == "Namespaced",
            short_names: self.short_names.clone(),
            categories: self.categories.clone(),
            verbs: verbs(&self.verbs),
            subresources: self.subresources.iter().map(subresource).collect(),
        }
    }
}

fn verbs(names: &[String]) -> Vec<Verb> {
    names.iter().filter_map(|name| Verb::from_listed(name)).collect()
}

fn contains(groups: &[Group], group: &str, version: &str, resource: &str) -> bool {
    let groups = groups.iter().filter(|entry| entry.name == group);
    let mut versions = groups.flat_map(|group| &group.versions);
    versions.any(|entry| {
        entry.version == version && entry.resources.iter().any(|entry| entry.resource == resource)
    })
}

/// Whether a release has this version of a group. The names of versions that need a feature gate,
/// or that were removed, are not known.
fn knows(groups: &[Group], group: &str, version: &str) -> bool {
    let mut groups = groups.iter().filter(|entry| entry.name == group);
    groups.any(|group| group.versions.iter().any(|entry| entry.version == version))
}

#[cfg(test)]
mod tests;
