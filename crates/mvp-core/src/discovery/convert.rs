//! Conversion between legacy and aggregated documents.
//!
//! [`from_legacy`] builds a [`GroupList`] from the documents of a server before 1.26. [`api_versions`],
//! [`group_list`], [`group`] and [`resource_list`] write legacy documents from a [`GroupList`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::legacy::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupVersion,
    joined_group_version,
};
use super::model::unite_duplicates;
use super::{DocumentError, Group, GroupList, Location, Parsed, Part, Problem, Source};

/// The fields that only legacy documents have, by version and name of the resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LegacyExtras(BTreeMap<(String, String), LegacyExtra>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct LegacyExtra {
    storage_version_hash: String,
    unknown: Map<String, Value>,
}

impl LegacyExtras {
    /// The union; for a resource in both, the first counts.
    pub(super) fn united(&self, other: &LegacyExtras) -> LegacyExtras {
        let mut united = other.clone();
        united.0.extend(self.0.iter().map(|(key, extra)| (key.clone(), extra.clone())));
        united
    }
}

/// Converts the legacy documents of a server: the groups in order, and the resources of each version.
/// A version without a resource list is not served, so it is left out.
pub fn from_legacy(
    source: Source<'_>,
    groups: &[ApiGroup],
    resources: &[ApiResourceList],
) -> Result<Parsed<GroupList>, DocumentError> {
    let lists: HashMap<&str, &ApiResourceList> =
        resources.iter().map(|list| (list.group_version.as_str(), list)).collect();
    let mut served_groups = Vec::new();
    let mut complaints = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let preferred = &group.preferred_version.version;
        let (first, rest): (Vec<_>, Vec<_>) =
            group.versions.iter().partition(|version| version.version == *preferred);

        let mut versions = Vec::new();
        let mut extras = LegacyExtras::default();
        for version in first.into_iter().chain(rest) {
            let name = joined_group_version(&group.name, &version.version);
            if let Some(served) = lists.get(name.as_str()) {
                versions.push(aggregated_version(&version.version, served));
                extras.take(&version.version, served);
            }
        }
        if versions.is_empty() {
            continue;
        }
        let at = Location { group: Some(index), ..Location::default() };
        let aggregated = AggregatedGroup {
            metadata: Metadata { name: Some(group.name.clone()).filter(|name| !name.is_empty()) },
            versions: Some(versions),
        };
        let raw = serde_json::to_vec(&aggregated)
            .map_err(|error| source.error(at, Problem::shape(&error)))?;
        let part = Part::of_group(&group.name);
        if let Some(mut group) = Group::read(source, part, at, raw.into(), &mut complaints)? {
            group.legacy = Some(Arc::new(extras));
            served_groups.push(Arc::new(group));
        }
    }
    let groups = unite_duplicates(source, served_groups, &mut complaints);
    Ok(Parsed { value: GroupList { groups, ..GroupList::default() }, complaints })
}

/// The core group as an entry of a group list, for [`from_legacy`].
pub fn core_group(versions: &ApiVersions) -> ApiGroup {
    ApiGroup {
        versions: versions.versions.iter().map(|version| GroupVersion::new("", version)).collect(),
        ..ApiGroup::default()
    }
}

/// The legacy document at `/api`, from the core group.
pub fn api_versions(list: &GroupList) -> ApiVersions {
    ApiVersions {
        kind: "APIVersions".to_owned(),
        versions: list
            .group("")
            .iter()
            .flat_map(|group| &group.versions)
            .map(|version| version.name.to_string())
            .collect(),
        server_address_by_client_cidrs: Value::Array(Vec::new()),
        ..ApiVersions::default()
    }
}

/// The legacy document at `/apis`, from the named groups.
pub fn group_list(list: &GroupList) -> ApiGroupList {
    ApiGroupList {
        kind: "APIGroupList".to_owned(),
        api_version: "v1".to_owned(),
        groups: list.groups.iter().map(|group| group_entry(group)).collect(),
        unknown: Map::new(),
    }
}

/// The legacy document at `/apis/G`.
pub fn group(group: &Group) -> ApiGroup {
    ApiGroup { kind: "APIGroup".to_owned(), api_version: "v1".to_owned(), ..group_entry(group) }
}

/// The legacy document at `/apis/G/V` or `/api/V`; `None` if the group has no such version.
pub fn resource_list(group: &Group, version: &str) -> Option<ApiResourceList> {
    // Parsing the group before has checked every field below.
    let aggregated: AggregatedGroup = serde_json::from_slice(&group.raw).ok()?;
    let versions = aggregated.versions.unwrap_or_default();
    let aggregated = versions.into_iter().find(|entry| entry.version == version)?;
    let mut resources = Vec::new();
    for resource in aggregated.resources.unwrap_or_default() {
        let namespaced = resource.scope.as_deref() == Some("Namespaced");
        let parent = resource.resource.clone();
        let subresources = resource.subresources;
        // A parent without verbs exists only for its subresources.
        if resource.verbs.as_ref().is_some_and(|verbs| !verbs.is_empty()) || subresources.is_none()
        {
            resources.push(ApiResource {
                name: resource.resource,
                singular_name: resource.singular_resource.unwrap_or_default(),
                namespaced,
                verbs: resource.verbs.unwrap_or_default(),
                short_names: resource.short_names.unwrap_or_default(),
                categories: resource.categories.unwrap_or_default(),
                ..ApiResource::of_kind(resource.response_kind, &group.name, version)
            });
        }
        for subresource in subresources.unwrap_or_default() {
            resources.push(ApiResource {
                name: format!("{parent}/{}", subresource.subresource),
                namespaced,
                verbs: subresource.verbs.unwrap_or_default(),
                ..ApiResource::of_kind(subresource.response_kind, &group.name, version)
            });
        }
    }
    if let Some(extras) = &group.legacy {
        for resource in &mut resources {
            extras.give(version, resource);
        }
    }
    Some(ApiResourceList {
        kind: "APIResourceList".to_owned(),
        // As real servers do, left out for the core group.
        api_version: if group.name.is_empty() { "" } else { "v1" }.to_owned(),
        group_version: joined_group_version(&group.name, version),
        resources,
        unknown: Map::new(),
    })
}

fn group_entry(group: &Group) -> ApiGroup {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|version| GroupVersion::new(&group.name, &version.name))
        .collect();
    ApiGroup {
        name: group.name.to_string(),
        preferred_version: versions.first().cloned().unwrap_or_default(),
        versions,
        ..ApiGroup::default()
    }
}

impl ApiResource {
    /// A resource with the kind. Its group and version are set only if they differ from the list's.
    fn of_kind(kind: Option<Kind>, group: &str, version: &str) -> ApiResource {
        let kind = kind.unwrap_or_default();
        let (kind_group, kind_version) =
            (kind.group.unwrap_or_default(), kind.version.unwrap_or_default());
        let foreign = !kind_version.is_empty() && (kind_group != group || kind_version != version);
        ApiResource {
            kind: kind.kind.unwrap_or_default(),
            group: if foreign { kind_group } else { String::new() },
            version: if foreign { kind_version } else { String::new() },
            ..ApiResource::default()
        }
    }
}

impl LegacyExtras {
    fn take(&mut self, version: &str, list: &ApiResourceList) {
        for resource in &list.resources {
            let extra = LegacyExtra {
                storage_version_hash: resource.storage_version_hash.clone(),
                unknown: resource.unknown.clone(),
            };
            if extra != LegacyExtra::default() {
                self.0.insert((version.to_owned(), resource.name.clone()), extra);
            }
        }
    }

    fn give(&self, version: &str, resource: &mut ApiResource) {
        if let Some(extra) = self.0.get(&(version.to_owned(), resource.name.clone())) {
            resource.storage_version_hash.clone_from(&extra.storage_version_hash);
            resource.unknown.clone_from(&extra.unknown);
        }
    }
}

fn aggregated_version(version: &str, list: &ApiResourceList) -> AggregatedVersion {
    let mut resources: Vec<AggregatedResource> = Vec::new();
    let (subresources, whole): (Vec<_>, Vec<_>) =
        list.resources.iter().partition(|resource| resource.name.contains('/'));
    for resource in whole {
        resources.push(AggregatedResource {
            resource: resource.name.clone(),
            response_kind: Some(Kind::of(resource)),
            scope: Some(scope(resource)),
            singular_resource: Some(resource.singular_name.clone()),
            verbs: Some(resource.verbs.clone()),
            short_names: some_if_any(&resource.short_names),
            categories: some_if_any(&resource.categories),
            subresources: None,
        });
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, resource) in resources.iter().enumerate() {
        places.entry(resource.resource.clone()).or_insert(place);
    }
    for subresource in subresources {
        let (parent, name) = subresource.name.split_once('/').unwrap_or_default();
        let entry = AggregatedSubresource {
            subresource: name.to_owned(),
            response_kind: Some(Kind::of(subresource)),
            verbs: Some(subresource.verbs.clone()),
        };
        // A subresource without its resource still needs a parent.
        let place = *places.entry(parent.to_owned()).or_insert_with(|| {
            resources.push(AggregatedResource {
                resource: parent.to_owned(),
                response_kind: Some(Kind::default()),
                scope: Some(scope(subresource)),
                ..AggregatedResource::default()
            });
            resources.len() - 1
        });
        if let Some(parent) = resources.get_mut(place) {
            parent.subresources.get_or_insert_default().push(entry);
        }
    }
    AggregatedVersion {
        version: version.to_owned(),
        resources: Some(resources),
        freshness: Some("Current".to_owned()),
    }
}

fn scope(resource: &ApiResource) -> String {
    let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
    scope.to_owned()
}

fn some_if_any(names: &[String]) -> Option<Vec<String>> {
    (!names.is_empty()).then(|| names.to_vec())
}

#[derive(Serialize, Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Metadata,
    versions: Option<Vec<AggregatedVersion>>,
}

#[derive(Serialize, Deserialize, Default)]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct AggregatedVersion {
    version: String,
    resources: Option<Vec<AggregatedResource>>,
    freshness: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: Option<Kind>,
    scope: Option<String>,
    singular_resource: Option<String>,
    verbs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    categories: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresources: Option<Vec<AggregatedSubresource>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedSubresource {
    subresource: String,
    response_kind: Option<Kind>,
    verbs: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize, Default)]
struct Kind {
    group: Option<String>,
    version: Option<String>,
    kind: Option<String>,
}

impl Kind {
    fn of(resource: &ApiResource) -> Kind {
        Kind {
            group: Some(resource.group.clone()),
            version: Some(resource.version.clone()),
            kind: Some(resource.kind.clone()),
        }
    }
}
