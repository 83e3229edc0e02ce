//! OpenAPI: the schemas of the APIs of all members.
//!
//! Version 3 has an index of documents, one for each group and version. [`Index`] is the index of one
//! member, [`OpenApi`] the merged index, with the member whose document counts. Version 2 is one
//! large document, merged by [`v2`].

mod index;
pub mod v2;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
pub use index::Index;
use serde_json::json;

use crate::discovery::{Group, Part, Version};
use crate::member::{Member, Release};
use crate::snapshot::Document;

/// The merged OpenAPI index of all members.
#[derive(Debug)]
pub struct OpenApi {
    sources: Vec<Source>,
    entries: BTreeMap<Arc<str>, Entry>,
    index: Document,
}

/// The input from one member, to tell whether the merged index is still valid.
#[derive(Debug, Clone)]
struct Source {
    member: Arc<str>,
    release: Option<Release>,
    index: Arc<Index>,
}

/// The document of one member for a key.
struct Offer<'a> {
    member: &'a Member,
    hash: Option<&'a Arc<str>>,
    /// How many of the described resources and verbs the member serves.
    size: usize,
}

/// A document of version 3, and the members that have one for its key.
#[derive(Debug)]
pub struct Entry {
    hash: Option<Arc<str>>,
    /// Members with the document of this hash first, then those with another one.
    holders: Vec<Holder>,
}

/// A member that has a document for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The ID of the member.
    pub member: Arc<str>,
    /// Whether its document is the one in the merged index.
    pub same: bool,
}

impl OpenApi {
    /// Merges the indexes of members, which must be in the order of their IDs. `previous` is reused if
    /// nothing changed; `surface_changed` tells whether their APIs did.
    pub(crate) fn build(
        members: &[Member],
        previous: Option<&Arc<OpenApi>>,
        surface_changed: bool,
    ) -> Arc<OpenApi> {
        let sources: Vec<Source> = members
            .iter()
            .filter_map(|member| {
                let index = Arc::clone(member.view.openapi.as_ref()?);
                Some(Source { member: Arc::clone(&member.id), release: member.view.release, index })
            })
            .collect();
        if let Some(previous) = previous
            && !surface_changed
            && previous.is_of(&sources)
        {
            return Arc::clone(previous);
        }

        let mut holders: HashMap<&Arc<str>, Vec<Offer<'_>>> = HashMap::new();
        for member in members {
            let groups = groups(member);
            for (key, hash) in member.view.openapi.iter().flat_map(|index| index.entries()) {
                let offer = Offer { member, hash, size: served(&groups, key) };
                holders.entry(key).or_default().push(offer);
            }
        }
        let entry =
            |(key, offers): (&Arc<str>, Vec<Offer<'_>>)| (Arc::clone(key), Entry::new(offers));
        let entries: BTreeMap<Arc<str>, Entry> = holders.into_iter().map(entry).collect();
        let paths: serde_json::Map<String, serde_json::Value> = entries
            .iter()
            .map(|(key, entry)| (key.to_string(), json!({"serverRelativeURL": entry.url(key)})))
            .collect();
        let index = Document::of(&json!({"paths": paths}));
        Arc::new(OpenApi { sources, entries, index })
    }

    /// The index of version 3; `None` if no member has one.
    pub fn index(&self) -> Option<&Document> {
        (!self.entries.is_empty()).then_some(&self.index)
    }

    /// A document of version 3, by its key in the index, such as `apis/batch/v1`.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    fn is_of(&self, sources: &[Source]) -> bool {
        let same = |(a, b): (&Source, &Source)| {
            a.member == b.member && a.release == b.release && Arc::ptr_eq(&a.index, &b.index)
        };
        self.sources.len() == sources.len() && self.sources.iter().zip(sources).all(same)
    }
}

impl Entry {
    /// Chooses the document of the member that serves most of what it describes, then of the newest
    /// release, then of the first ID. So every gateway chooses the same one.
    fn new(mut offers: Vec<Offer<'_>>) -> Entry {
        offers.sort_by_cached_key(|Offer { member, size, .. }| {
            (Reverse(*size), Reverse(member.view.release), Arc::clone(&member.id))
        });
        let hash = offers.first().and_then(|offer| offer.hash).cloned();
        let holder = |offer: &Offer<'_>| Holder {
            member: Arc::clone(&offer.member.id),
            // Without a hash, two documents cannot be compared.
            same: hash.is_some() && offer.hash == hash.as_ref(),
        };
        let mut holders: Vec<Holder> = offers.iter().map(holder).collect();
        if let Some(first) = holders.first_mut() {
            first.same = true;
        }
        holders.sort_by_key(|holder| !holder.same);
        Entry { hash, holders }
    }

    /// The hash of the document, for caches of clients and servers.
    pub fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// The URL of the document for clients.
    pub fn url(&self, key: &str) -> String {
        match &self.hash {
            Some(hash) => format!("/openapi/v3/{key}?hash={hash}"),
            None => format!("/openapi/v3/{key}"),
        }
    }

    /// The members that have a document for this key: those with this very document first.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }
}

/// The groups of a member by name.
fn groups(member: &Member) -> HashMap<&str, &Group> {
    let seen = Part::ALL.iter().filter_map(|part| member.view.part(*part));
    seen.flat_map(|seen| &seen.list.groups).map(|group| (&*group.name, &**group)).collect()
}

/// The group and version that a document of version 3 describes, by its key in the index.
pub(crate) fn group_version(key: &str) -> Option<(&str, &str)> {
    let mut parts = key.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("api"), Some(version), None, None) => Some(("", version)),
        (Some("apis"), Some(group), Some(version), None) => Some((group, version)),
        _ => None,
    }
}

/// How many of the resources and verbs that a document describes are in `groups`.
fn served(groups: &HashMap<&str, &Group>, key: &str) -> usize {
    let Some((group, version)) = group_version(key) else { return 0 };
    let versions = groups.get(group).into_iter().flat_map(|group| &group.versions);
    versions.filter(|entry| &*entry.name == version).map(size).sum()
}

fn size(version: &Version) -> usize {
    let resources = version.resources.iter().map(|resource| {
        let subresources = resource.subresources.iter().map(|sub| 1 + sub.verbs.iter().count());
        1 + resource.verbs.iter().count() + subresources.sum::<usize>()
    });
    resources.sum()
}
