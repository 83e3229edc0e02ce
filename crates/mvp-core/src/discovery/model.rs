//! Aggregated discovery, the document that every server since 1.26 gives in one piece.
//!
//! A [`Group`] is its bytes plus what routing needs of them: names, verbs and subresources. Because
//! the bytes are kept, a field that we do not know survives whatever we do with the group.
//! Entry item: [`GroupList::parse`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::convert::LegacyExtras;
use super::json::{self, Object};
use super::merge;
use super::{DocumentError, Location, Part, Problem};
use crate::VerbSet;

/// The kind of every aggregated document.
pub const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";
/// The API group of every aggregated document.
pub const AGGREGATED_GROUP: &str = "apidiscovery.k8s.io";

/// What a server, or a cluster, serves in one half of the API surface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupList {
    /// The groups in the order of their priority.
    pub groups: Vec<Arc<Group>>,
    /// Fields of the list itself beside `kind`, `apiVersion`, `metadata` and `items`, as JSON.
    pub(super) unknown: Vec<(String, String)>,
}

/// An API group.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name; empty for the core group.
    pub name: Arc<str>,
    /// Its versions, the preferred one first.
    pub versions: Box<[Version]>,
    /// The group as compact JSON, with all that we do not know.
    pub raw: Bytes,
    /// What only older documents say of it.
    pub(super) legacy: Option<Arc<LegacyExtras>>,
}

/// A version of a group.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name, such as `v1beta1`.
    pub name: Arc<str>,
    /// What it has.
    pub resources: Box<[Resource]>,
}

/// A resource of a version.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its plural name.
    pub name: Arc<str>,
    /// Where its objects live.
    pub scope: Scope,
    /// What can be asked of it.
    pub verbs: VerbSet,
    /// Its subresources.
    pub subresources: Box<[Subresource]>,
}

/// Where the objects of a resource live, and so at which paths a server routes requests for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// In the cluster as a whole.
    Cluster,
    /// The document does not say.
    #[default]
    Unknown,
}

/// A subresource of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Its name, such as `status`.
    pub name: Arc<str>,
    /// What can be asked of it.
    pub verbs: VerbSet,
}

/// Who sent a document, and what it was asked by: the opening of every error about it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The server's ID.
    pub server: &'a str,
    /// The path.
    pub document: &'a str,
}

/// How much of a document we are willing to take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the whole document.
    pub max_bytes: usize,
    /// Levels of nesting. Real documents have ten.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_bytes: 64 << 20, max_depth: 64 }
    }
}

/// A document that was read, and what was mended in it on the way.
#[derive(Debug)]
pub struct Parsed<T> {
    /// What it says.
    pub value: T,
    /// Entries without a name and entries listed twice. They take nothing from the rest of the
    /// document: one faulty extension server must not cost us the view of a whole member.
    pub complaints: Vec<DocumentError>,
}

impl GroupList {
    /// Reads an aggregated document, v2 or v2beta1.
    pub fn parse(
        source: Source<'_>,
        part: Part,
        document: Bytes,
        limits: &Limits,
    ) -> Result<Parsed<GroupList>, DocumentError> {
        let whole = |problem| source.error(Location::default(), problem);
        let document = json::prepare(document, limits).map_err(whole)?;
        let text = std::str::from_utf8(&document)
            .map_err(|error| whole(Problem::NotUtf8 { offset: error.valid_up_to() }))?;
        let list = Object::parse(text).map_err(|error| whole(Problem::syntax(&error)))?;
        check_kind(&list).map_err(whole)?;
        let items = list.array("items").map_err(|error| whole(Problem::shape(&error)))?;

        let mut groups = Vec::with_capacity(items.len());
        let mut complaints = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let at = Location { group: Some(index), ..Location::default() };
            let raw = document.slice_ref(item.as_bytes());
            groups.extend(Group::read(source, part, at, raw, &mut complaints)?.map(Arc::new));
        }
        let groups = unite_duplicates(source, groups, &mut complaints);

        let unknown = list
            .fields()
            .filter(|(key, _)| !["kind", "apiVersion", "metadata", "items"].contains(key))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Ok(Parsed { value: GroupList { groups, unknown }, complaints })
    }

    /// The document, aggregated, in the given version of its API (`v2` or `v2beta1`; the two
    /// differ in nothing but that name).
    pub fn to_aggregated_json(&self, version: &str) -> Bytes {
        let items: usize = self.groups.iter().map(|group| group.raw.len() + 1).sum();
        let mut text = Vec::with_capacity(items + 256);
        let head = format!(
            r#"{{"kind":"{AGGREGATED_KIND}","apiVersion":"{AGGREGATED_GROUP}/{version}","metadata":{{}},"items":["#
        );
        text.extend_from_slice(head.as_bytes());
        for (index, group) in self.groups.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&group.raw);
        }
        text.push(b']');
        for (key, value) in &self.unknown {
            text.extend_from_slice(format!(",{}:{value}", json::quoted(key)).as_bytes());
        }
        text.push(b'}');
        text.into()
    }

    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| &*group.name == name)
    }
}

impl Group {
    /// Reads a group of a server's document, mending what can be mended; nothing for a group that
    /// has no name.
    pub(super) fn read(
        source: Source<'_>,
        part: Part,
        at: Location,
        raw: Bytes,
        complaints: &mut Vec<DocumentError>,
    ) -> Result<Option<Group>, DocumentError> {
        let malformed = |error: serde_json::Error| source.error(at, Problem::shape(&error));
        let text = std::str::from_utf8(&raw)
            .map_err(|error| malformed(<serde_json::Error as Error>::custom(error)))?;
        let shape: GroupShape<'_> = serde_json::from_str(text).map_err(malformed)?;
        if part == Part::Apis && shape.metadata.name.0.is_empty() {
            complaints.push(source.error(at, Problem::MissingName("group")));
            return Ok(None);
        }
        let faults = complaints.len();
        shape.complain(source, at, complaints);
        if complaints.len() > faults {
            return merge::repaired(text).map(Some).map_err(malformed);
        }
        Ok(Some(shape.into_group(raw.clone())))
    }

    /// Reads a group that this crate wrote.
    pub(super) fn parse(raw: Bytes) -> Result<Group, serde_json::Error> {
        let text = std::str::from_utf8(&raw).map_err(<serde_json::Error as Error>::custom)?;
        let shape: GroupShape<'_> = serde_json::from_str(text)?;
        Ok(shape.into_group(raw.clone()))
    }

    /// The group's JSON as text.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.raw).unwrap_or("{}")
    }
}

impl Source<'_> {
    pub(super) fn error(&self, location: Location, problem: Problem) -> DocumentError {
        DocumentError {
            server: self.server.into(),
            document: self.document.into(),
            location: location.to_string().into(),
            problem,
        }
    }
}

fn check_kind(list: &Object<'_>) -> Result<(), Problem> {
    let kind = list.string("kind").map_err(|error| Problem::shape(&error))?;
    let api_version = list.string("apiVersion").map_err(|error| Problem::shape(&error))?;
    let version = api_version.strip_prefix(AGGREGATED_GROUP);
    if kind == AGGREGATED_KIND && matches!(version, Some("/v2" | "/v2beta1")) {
        return Ok(());
    }
    Err(Problem::WrongKind {
        kind: kind.into(),
        api_version: api_version.into(),
        expected: "APIGroupDiscoveryList of apidiscovery.k8s.io/v2 or v2beta1",
    })
}

pub(super) fn unite_duplicates(
    source: Source<'_>,
    groups: Vec<Arc<Group>>,
    complaints: &mut Vec<DocumentError>,
) -> Vec<Arc<Group>> {
    let mut places = hashbrown::HashMap::with_capacity(groups.len());
    let mut united: Vec<Arc<Group>> = Vec::with_capacity(groups.len());
    for (index, group) in groups.into_iter().enumerate() {
        let place = *places.entry(Arc::clone(&group.name)).or_insert(united.len());
        match united.get_mut(place) {
            None => united.push(group),
            Some(first) => {
                let at = Location { group: Some(index), ..Location::default() };
                let name = (*group.name).into();
                complaints.push(source.error(at, Problem::Duplicate { what: "group", name }));
                *first = merge::merge_groups(first, &group);
            }
        }
    }
    united
}

/// The shape of a group: what we read of it. Fields that we know but do not need are checked for
/// their type, so that whoever takes the bytes apart later finds what is expected there.
#[derive(Deserialize)]
struct GroupShape<'a> {
    #[serde(borrow, default)]
    metadata: MetadataShape<'a>,
    #[serde(borrow, default)]
    versions: Nullable<Vec<VersionShape<'a>>>,
}

#[derive(Deserialize, Default)]
struct MetadataShape<'a> {
    #[serde(borrow, default)]
    name: Name<'a>,
}

#[derive(Deserialize)]
struct VersionShape<'a> {
    #[serde(borrow, default)]
    version: Name<'a>,
    #[serde(borrow, default)]
    resources: Nullable<Vec<ResourceShape<'a>>>,
    #[serde(default, rename = "freshness")]
    _freshness: Nullable<Text>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceShape<'a> {
    #[serde(borrow, default)]
    resource: Name<'a>,
    #[serde(default)]
    verbs: Nullable<VerbSet>,
    #[serde(borrow, default)]
    subresources: Nullable<Vec<SubresourceShape<'a>>>,
    #[serde(default, rename = "responseKind")]
    _response_kind: Nullable<KindShape>,
    #[serde(borrow, default)]
    scope: Name<'a>,
    #[serde(default, rename = "singularResource")]
    _singular_resource: Nullable<Text>,
    #[serde(default, rename = "shortNames")]
    _short_names: Nullable<Vec<Text>>,
    #[serde(default, rename = "categories")]
    _categories: Nullable<Vec<Text>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceShape<'a> {
    #[serde(borrow, default)]
    subresource: Name<'a>,
    #[serde(default)]
    verbs: Nullable<VerbSet>,
    #[serde(default, rename = "responseKind")]
    _response_kind: Nullable<KindShape>,
    #[serde(default, rename = "acceptedTypes")]
    _accepted_types: Nullable<Vec<KindShape>>,
}

#[derive(Deserialize, Default)]
struct KindShape {
    #[serde(default, rename = "group")]
    _group: Nullable<Text>,
    #[serde(default, rename = "version")]
    _version: Nullable<Text>,
    #[serde(default, rename = "kind")]
    _kind: Nullable<Text>,
}

impl GroupShape<'_> {
    /// Names that are missing or come twice, at every level below the group.
    fn complain(&self, source: Source<'_>, at: Location, complaints: &mut Vec<DocumentError>) {
        let place = |index| Location { version: Some(index), ..at };
        let versions = &self.versions.0;
        check_names(source, "version", versions, |v| &v.version, place, complaints);
        for (index, version) in versions.iter().enumerate() {
            let place = |resource| Location { resource: Some(resource), ..place(index) };
            let resources = &version.resources.0;
            check_names(source, "resource", resources, |r| &r.resource, place, complaints);
            for (index, resource) in resources.iter().enumerate() {
                let place = |sub| Location { subresource: Some(sub), ..place(index) };
                let subs = &resource.subresources.0;
                check_names(source, "subresource", subs, |s| &s.subresource, place, complaints);
            }
        }
    }

    fn into_group(self, raw: Bytes) -> Group {
        let versions = self.versions.0.into_iter().map(|version| Version {
            name: version.version.0.into(),
            resources: version
                .resources
                .0
                .into_iter()
                .map(|resource| Resource {
                    scope: match &*resource.scope.0 {
                        "Namespaced" => Scope::Namespaced,
                        "Cluster" => Scope::Cluster,
                        _ => Scope::Unknown,
                    },
                    name: resource.resource.0.into(),
                    verbs: resource.verbs.0,
                    subresources: resource
                        .subresources
                        .0
                        .into_iter()
                        .map(|subresource| Subresource {
                            name: subresource.subresource.0.into(),
                            verbs: subresource.verbs.0,
                        })
                        .collect(),
                })
                .collect(),
        });
        Group { name: self.metadata.name.0.into(), versions: versions.collect(), raw, legacy: None }
    }
}

fn check_names<T>(
    source: Source<'_>,
    what: &'static str,
    entries: &[T],
    name: impl Fn(&T) -> &Name<'_>,
    place: impl Fn(usize) -> Location,
    complaints: &mut Vec<DocumentError>,
) {
    let mut seen = hashbrown::HashSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let name = &*name(entry).0;
        if name.is_empty() {
            complaints.push(source.error(place(index), Problem::MissingName(what)));
        } else if entries.len() > 1 && !seen.insert(name) {
            let name = name.into();
            complaints.push(source.error(place(index), Problem::Duplicate { what, name }));
        }
    }
}

/// A name, borrowed where it has no escapes; empty where it is `null`.
#[derive(Default)]
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Name::default())
            }
        }
        deserializer.deserialize_any(NameVisitor)
    }
}

/// A string of which only the type matters.
#[derive(Default)]
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Text)
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A value that Go writes as `null` when it is empty.
#[derive(Default)]
struct Nullable<T>(T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| Nullable(value.unwrap_or_default()))
    }
}

impl<'de> Deserialize<'de> for VerbSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VerbsVisitor;
        impl<'de> Visitor<'de> for VerbsVisitor {
            type Value = VerbSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of verbs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut verbs: A) -> Result<VerbSet, A::Error> {
                let mut set = VerbSet::default();
                while let Some(Name(verb)) = verbs.next_element()? {
                    set.insert_listed(&verb);
                }
                Ok(set)
            }
        }
        deserializer.deserialize_seq(VerbsVisitor)
    }
}
