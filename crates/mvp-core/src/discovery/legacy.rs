//! Legacy discovery documents, one for each path. Unknown fields are kept. Entry item: [`parse`].

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
    /// `v1`; servers have left it out since 1.1.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The versions.
    #[serde(default, deserialize_with = "nullable")]
    pub versions: Vec<String>,
    /// The addresses of the server by client network.
    #[serde(default, rename = "serverAddressByClientCIDRs")]
    pub server_address_by_client_cidrs: Value,
    /// Unknown fields.
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
    /// Unknown fields.
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
    /// The name of the group.
    #[serde(default)]
    pub name: String,
    /// The versions.
    #[serde(default, deserialize_with = "nullable")]
    pub versions: Vec<GroupVersion>,
    /// The version for clients without a preference.
    #[serde(default, skip_serializing_if = "GroupVersion::is_empty")]
    pub preferred_version: GroupVersion,
    /// Unknown fields.
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
    /// Unknown fields.
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
    /// Unknown fields.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A resource (`pods`) or subresource (`pods/status`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// The plural name; for a subresource, a slash and its name follow.
    #[serde(default)]
    pub name: String,
    /// The singular name.
    #[serde(default)]
    pub singular_name: String,
    /// Whether the objects are in namespaces.
    #[serde(default)]
    pub namespaced: bool,
    /// The group of the kind, if it differs from that of the list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version of the kind, if it differs from that of the list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The kind of the objects.
    #[serde(default)]
    pub kind: String,
    /// The verbs that the server lists.
    #[serde(default, deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    /// Short names, such as `po`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// Names for sets of resources, such as `all`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// A hash of the storage version. Aggregated documents do not have it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage_version_hash: String,
    /// Unknown fields.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl GroupVersion {
    /// The version of a group.
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

/// A legacy document with a known kind.
pub trait LegacyDocument: DeserializeOwned {
    /// The expected kind.
    const KIND: &'static str;
    /// The kind in the document.
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

/// Parses a legacy document.
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
