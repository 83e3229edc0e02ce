//! Aggregated discovery, which every server since 1.26 serves as one document.
//!
//! A [`Group`] is its bytes plus the facts that routing needs: names, verbs and subresources. Because
//! the bytes are kept, unknown fields survive. Entry item: [`GroupList::parse`].

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use serde::de::Error;

use super::convert::LegacyExtras;
use super::json::{self, Object};
use super::merge;
use super::places::Places;
use super::shape::{GroupShape, Mapped};
use super::{DocumentError, Location, Part, Problem};
use crate::VerbSet;

/// The kind of every aggregated document.
pub const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";
/// The API group of every aggregated document.
pub const AGGREGATED_GROUP: &str = "apidiscovery.k8s.io";

/// The limit of faults of one group that are reported one by one, and of its entries that are merged.
pub(super) const MAX_FAULTS: usize = 20;
/// The limit of faults of a document that are reported.
const MAX_COMPLAINTS: usize = 100;

/// The APIs of a server, or of a cluster, in one half of the API surface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupList {
    /// The groups in order of priority. They must not change after [`GroupList::group`].
    pub groups: Vec<Arc<Group>>,
    /// The entity tag from the server, for conditional requests.
    pub etag: Option<Box<str>>,
    /// Fields of the list other than `kind`, `apiVersion`, `metadata` and `items`, as JSON.
    pub(super) unknown: Vec<(String, String)>,
    pub(super) places: Places,
}

/// An API group.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: Arc<str>,
    /// The versions, the preferred one first.
    pub versions: Box<[Version]>,
    /// The group as compact JSON, unknown fields included.
    pub raw: Bytes,
    /// The fields that only legacy documents have.
    pub(super) legacy: Option<Arc<LegacyExtras>>,
}

/// A version of a group.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// The name, such as `v1beta1`.
    pub name: Arc<str>,
    /// The resources.
    pub resources: Box<[Resource]>,
}

/// A resource of a version.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The plural name.
    pub name: Arc<str>,
    /// The scope of its objects.
    pub scope: Scope,
    /// The verbs that the server lists.
    pub verbs: VerbSet,
    /// The subresources.
    pub subresources: Box<[Subresource]>,
}

/// The scope of a resource's objects. It decides at which paths servers route requests for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The objects are in namespaces.
    Namespaced,
    /// The objects are not in a namespace.
    Cluster,
    /// The document does not tell.
    #[default]
    Unknown,
}

/// A subresource of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: Arc<str>,
    /// The verbs that the server lists.
    pub verbs: VerbSet,
}

/// The origin of a document, for errors about it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The server's ID.
    pub server: &'a str,
    /// The path of the document.
    pub document: &'a str,
}

/// The limits for documents of servers.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum size of a document.
    pub max_bytes: usize,
    /// The maximum depth of nesting. Real documents have ten levels.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_bytes: 32 << 20, max_depth: 64 }
    }
}

/// A parsed document, and the faults that were repaired in it.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The document.
    pub value: T,
    /// Entries without a name and duplicate entries. The rest of the document still counts: one faulty
    /// extension server must not hide all APIs of a member.
    pub complaints: Vec<DocumentError>,
}

impl GroupList {
    /// Parses an aggregated document, v2 or v2beta1.
    pub fn parse(
        source: Source<'_>,
        part: Part,
        document: Bytes,
        limits: &Limits,
    ) -> Result<Parsed<GroupList>, DocumentError> {
        GroupList::parse_changed(source, part, document, limits, None)
    }

    /// As [`GroupList::parse`], with an earlier list of the same half. Groups whose text is in that
    /// list are shared with it, and only the others are parsed.
    pub fn parse_changed(
        source: Source<'_>,
        part: Part,
        document: Bytes,
        limits: &Limits,
        known: Option<&GroupList>,
    ) -> Result<Parsed<GroupList>, DocumentError> {
        let whole = |problem| source.error(Location::default(), problem);
        let document = json::prepare(document, limits).map_err(whole)?;
        let text = std::str::from_utf8(&document)
            .map_err(|error| whole(Problem::NotUtf8 { offset: error.valid_up_to() }))?;
        let list = Object::parse(text).map_err(|error| whole(Problem::syntax(&error)))?;
        check_kind(&list).map_err(whole)?;
        let items = list.array("items").map_err(|error| whole(Problem::shape(&error)))?;

        let known = known.into_iter().flat_map(|known| &known.groups);
        // The facts about a group follow from its text alone, unless it comes from legacy documents.
        let known = known.filter(|group| group.legacy.is_none());
        let known: HashMap<&[u8], &Arc<Group>> = known.map(|group| (&*group.raw, group)).collect();

        let mut groups = Vec::with_capacity(items.len());
        let mut complaints = Vec::new();
        let mut shares = false;
        for (index, item) in items.into_iter().enumerate() {
            if let Some(same) = known.get(item.as_bytes()) {
                groups.push(Arc::clone(same));
                shares = true;
                continue;
            }
            let at = Location { group: Some(index), ..Location::default() };
            let raw = document.slice_ref(item.as_bytes());
            groups.extend(Group::read(source, part, at, raw, &mut complaints)?.map(Arc::new));
        }
        let mut groups = unite_duplicates(source, groups, &mut complaints);
        if shares {
            groups.iter_mut().for_each(detach);
        }

        let unknown = list
            .fields()
            .filter(|(key, _)| !["kind", "apiVersion", "metadata", "items"].contains(key))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let value = GroupList { groups, unknown, ..GroupList::default() };
        Ok(Parsed { value, complaints })
    }

    /// Shares every group that is equal to one of `other` with it: servers of a cluster have most groups
    /// in common.
    pub fn share(&mut self, other: &GroupList) {
        let others: HashMap<&str, &Arc<Group>> =
            other.groups.iter().map(|group| (&*group.name, group)).collect();
        let mut shares = false;
        for group in &mut self.groups {
            if let Some(same) = others.get(&*group.name).filter(|same| **same == group) {
                *group = Arc::clone(same);
                shares = true;
            }
        }
        if shares {
            self.groups.iter_mut().for_each(detach);
        }
    }

    /// The aggregated document in the given version of its API, `v2` or `v2beta1`. The two differ only
    /// in that name.
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

    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.places.find(&self.groups, name)
    }
}

impl Group {
    /// Parses a group of a server's document and repairs its faults; `None` for a group to ignore.
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
        let Mapped(shape): Mapped<GroupShape<'_>> =
            serde_json::from_str(text).map_err(malformed)?;
        let ignored = match part {
            Part::Apis if shape.name().is_empty() => Some(Problem::MissingName("group")),
            Part::Api if !shape.name().is_empty() => {
                Some(Problem::Misplaced { name: shape.name().into() })
            }
            _ => None,
        };
        if let Some(problem) = ignored {
            report(complaints, source.error(at, problem));
            return Ok(None);
        }
        let mut faults = shape.faults(source, at);
        if !faults.is_empty() {
            if faults.len() > MAX_FAULTS {
                faults = vec![too_many(source, at, shape.name())];
            }
            faults.into_iter().for_each(|fault| report(complaints, fault));
            return merge::repaired(text).map(Some).map_err(malformed);
        }
        Ok(Some(shape.into_group(raw.clone())))
    }

    /// Parses a group that this crate wrote.
    pub(super) fn parse(raw: Bytes) -> Result<Group, serde_json::Error> {
        let text = std::str::from_utf8(&raw).map_err(<serde_json::Error as Error>::custom)?;
        let Mapped(shape): Mapped<GroupShape<'_>> = serde_json::from_str(text)?;
        Ok(shape.into_group(raw.clone()))
    }

    /// The group's JSON as text.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.raw).unwrap_or("{}")
    }
}

impl Source<'_> {
    pub(crate) fn error(&self, location: Location, problem: Problem) -> DocumentError {
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

/// Copies the text of a new group out of its document, which would be kept for it as a whole.
fn detach(group: &mut Arc<Group>) {
    if let Some(group) = Arc::get_mut(group) {
        group.raw = Bytes::copy_from_slice(&group.raw);
    }
}

/// Merges groups with the same name. Only so many are merged: each merge reads all of the group.
pub(super) fn unite_duplicates(
    source: Source<'_>,
    groups: Vec<Arc<Group>>,
    complaints: &mut Vec<DocumentError>,
) -> Vec<Arc<Group>> {
    let mut places = HashMap::with_capacity(groups.len());
    let mut united: Vec<Arc<Group>> = Vec::with_capacity(groups.len());
    let mut merges = 0;
    for (index, group) in groups.into_iter().enumerate() {
        let place = *places.entry(Arc::clone(&group.name)).or_insert(united.len());
        let Some(first) = united.get_mut(place) else {
            united.push(group);
            continue;
        };
        let at = Location { group: Some(index), ..Location::default() };
        if merge::adds_nothing(first, &group) || merges < MAX_FAULTS {
            let name = (*group.name).into();
            report(complaints, source.error(at, Problem::Duplicate { what: "group", name }));
            merges += usize::from(!merge::adds_nothing(first, &group));
            *first = merge::merge_groups(first, &group);
        } else {
            report(complaints, too_many(source, at, &group.name));
        }
    }
    united
}

fn too_many(source: Source<'_>, at: Location, group: &str) -> DocumentError {
    source.error(at, Problem::TooManyFaults { group: group.into(), limit: MAX_FAULTS })
}

/// Adds a fault to those of its document, up to the limit.
fn report(complaints: &mut Vec<DocumentError>, fault: DocumentError) {
    if complaints.len() < MAX_COMPLAINTS {
        complaints.push(fault);
    }
}

#[cfg(test)]
mod tests;
