//! The shape of an aggregated document for parsing: borrowed, in one pass, with a type check of every
//! known field.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::model::MAX_FAULTS;
use super::{
    DocumentError, Group, Location, Problem, Resource, Scope, Source, Subresource, Version,
};
use crate::VerbSet;

/// The shape of a group. Known fields that routing does not need are checked for their type, because
/// other code parses the same bytes later.
#[derive(Deserialize)]
pub(super) struct GroupShape<'a> {
    #[serde(borrow, default)]
    metadata: Nullable<Mapped<MetadataShape<'a>>>,
    #[serde(borrow, default)]
    versions: Nullable<Vec<Mapped<VersionShape<'a>>>>,
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
    resources: Nullable<Vec<Mapped<ResourceShape<'a>>>>,
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
    subresources: Nullable<Vec<Mapped<SubresourceShape<'a>>>>,
    #[serde(default, rename = "responseKind")]
    _response_kind: Nullable<Mapped<KindShape>>,
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
    _response_kind: Nullable<Mapped<KindShape>>,
    #[serde(default, rename = "acceptedTypes")]
    _accepted_types: Nullable<Vec<Mapped<KindShape>>>,
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

    /// The missing and duplicate names at every level below the group, up to one more than are
    /// reported one by one.
    pub(super) fn faults(&self, source: Source<'_>, at: Location) -> Vec<DocumentError> {
        let mut faults = Vec::new();
        let complaints = &mut faults;
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
        faults
    }

    pub(super) fn into_group(self, raw: Bytes) -> Group {
        let versions = self.versions.0.into_iter().map(|Mapped(version)| Version {
            name: version.version.0.into(),
            resources: version
                .resources
                .0
                .into_iter()
                .map(|Mapped(resource)| Resource {
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
                        .map(|Mapped(subresource)| Subresource {
                            name: subresource.subresource.0.into(),
                            verbs: subresource.verbs.0,
                        })
                        .collect(),
                })
                .collect(),
        });
        Group {
            name: Arc::from(&*self.metadata.name.0),
            versions: versions.collect(),
            raw,
            legacy: None,
        }
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
        if complaints.len() > MAX_FAULTS {
            return;
        }
        let name = &*name(entry).0;
        if name.is_empty() {
            complaints.push(source.error(place(index), Problem::MissingName(what)));
        } else if entries.len() > 1 && !seen.insert(name) {
            let name = name.into();
            complaints.push(source.error(place(index), Problem::Duplicate { what, name }));
        }
    }
}

/// A name, borrowed if it has no escapes; empty for `null`.
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

/// A string whose content does not matter.
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

/// A structure that must be a JSON object. Without this, serde also accepts an array of its fields.
#[derive(Default)]
pub(super) struct Mapped<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Mapped<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
            type Value = Mapped<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Mapped)
            }
        }
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

impl<T> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for Nullable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A verb: a string, never `null`.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value that Go writes as `null` if it is empty.
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
                while let Some(Word(verb)) = verbs.next_element()? {
                    set.insert_listed(&verb);
                }
                Ok(set)
            }
        }
        deserializer.deserialize_seq(VerbsVisitor)
    }
}
