//! The shape of an aggregated document as it is read: borrowed, in one pass, with every known field
//! checked for its type.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::{
    DocumentError, Group, Location, Problem, Resource, Scope, Source, Subresource, Version,
};
use crate::VerbSet;

/// The shape of a group: what we read of it. Fields that we know but do not need are checked for
/// their type, so that whoever takes the bytes apart later finds what is expected there.
#[derive(Deserialize)]
pub(super) struct GroupShape<'a> {
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
    pub(super) fn name(&self) -> &str {
        &self.metadata.name.0
    }

    /// Names that are missing or come twice, at every level below the group.
    pub(super) fn complain(
        &self,
        source: Source<'_>,
        at: Location,
        complaints: &mut Vec<DocumentError>,
    ) {
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

    pub(super) fn into_group(self, raw: Bytes) -> Group {
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
