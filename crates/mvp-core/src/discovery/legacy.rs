//! The older discovery documents, one for each question. Fields that we do not know are kept.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::json;
use super::{DocumentError, Limits, Location, Problem, Source};

/// `/api`: the versions of the core group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiVersions {
    /// `APIVersions`
    #[serde(default)]
    pub kind: String,
    /// `v1`; absent on the wire since servers of 1.1 left it out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The versions.
    #[serde(default, deserialize_with = "nullable")]
    pub versions: Vec<String>,
    /// Where clients of a network find the server.
    #[serde(default, rename = "serverAddressByClientCIDRs")]
    pub server_address_by_client_cidrs: Value,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// `/apis`: the groups and their versions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroupList {
    /// `APIGroupList`
    #[serde(default)]
    pub kind: String,
    /// `v1`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The groups.
    #[serde(default, deserialize_with = "nullable")]
    pub groups: Vec<ApiGroup>,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// `/apis/G`: one group; also an entry of [`ApiGroupList`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroup {
    /// `APIGroup`; absent in a list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// `v1`; absent in a list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The group's name.
    #[serde(default)]
    pub name: String,
    /// Its versions.
    #[serde(default, deserialize_with = "nullable")]
    pub versions: Vec<GroupVersion>,
    /// The version that clients should take when they have no wish of their own.
    #[serde(default, skip_serializing_if = "GroupVersion::is_empty")]
    pub preferred_version: GroupVersion,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A version of a group, with and without the group's name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersion {
    /// `apps/v1`; `v1` for the core group.
    #[serde(default)]
    pub group_version: String,
    /// `v1`
    #[serde(default)]
    pub version: String,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// `/apis/G/V` and `/api/V`: the resources of a version, subresources among them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceList {
    /// `APIResourceList`
    #[serde(default)]
    pub kind: String,
    /// `v1`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The group and version that the resources belong to.
    #[serde(default)]
    pub group_version: String,
    /// The resources.
    #[serde(default, deserialize_with = "nullable")]
    pub resources: Vec<ApiResource>,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A resource (`pods`) or subresource (`pods/status`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// Plural name, and the subresource after a slash.
    #[serde(default)]
    pub name: String,
    /// Singular name.
    #[serde(default)]
    pub singular_name: String,
    /// Whether its objects live in namespaces.
    #[serde(default)]
    pub namespaced: bool,
    /// The group of its kind, where that is not the list's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version of its kind, where that is not the list's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The kind of its objects.
    #[serde(default)]
    pub kind: String,
    /// What can be asked of it.
    #[serde(default, deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    /// Abbreviations for people.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// Names for sets of resources, such as `all`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// A hash of the version that the server stores. Aggregated documents do not have it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage_version_hash: String,
    /// What we do not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl GroupVersion {
    /// A version of a group.
    pub fn new(group: &str, version: &str) -> GroupVersion {
        GroupVersion {
            group_version: joined_group_version(group, version),
            version: version.to_owned(),
            unknown: Map::new(),
        }
    }

    fn is_empty(&self) -> bool {
        *self == GroupVersion::default()
    }
}

/// `apps/v1`, or `v1` for the core group.
pub(super) fn joined_group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A legacy document with the kind that names it.
pub trait LegacyDocument: DeserializeOwned {
    /// The kind.
    const KIND: &'static str;
    /// The kind that a document of this type names.
    fn kind(&self) -> &str;
}

macro_rules! legacy_document {
    ($($document:ident $kind:literal),*) => {
        $(impl LegacyDocument for $document {
            const KIND: &'static str = $kind;
            fn kind(&self) -> &str {
                &self.kind
            }
        })*
    };
}
legacy_document!(
    ApiVersions "APIVersions",
    ApiGroupList "APIGroupList",
    ApiGroup "APIGroup",
    ApiResourceList "APIResourceList"
);

/// Reads a legacy document.
pub fn parse<D: LegacyDocument>(
    source: Source<'_>,
    document: bytes::Bytes,
    limits: &Limits,
) -> Result<D, DocumentError> {
    let whole = |problem| source.error(Location::default(), problem);
    let document = json::prepare(document, limits).map_err(whole)?;
    let parsed: D =
        serde_json::from_slice(&document).map_err(|error| whole(Problem::syntax(&error)))?;
    if parsed.kind() != D::KIND {
        return Err(whole(Problem::WrongKind {
            kind: parsed.kind().into(),
            api_version: "".into(),
            expected: D::KIND,
        }));
    }
    Ok(parsed)
}

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
