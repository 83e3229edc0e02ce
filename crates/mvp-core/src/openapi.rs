//! OpenAPI: the schemas of what is served, of every member together.
//!
//! Version 3 has an index of documents, one for each group and version; [`Index`] is what one
//! member says, [`OpenApi`] what all of them say together, with the member whose document counts.
//! Version 2 is one large document, put together by [`v2`].

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

/// What all members say about their schemas.
#[derive(Debug)]
pub struct OpenApi {
    sources: Vec<Source>,
    entries: BTreeMap<Arc<str>, Entry>,
    index: Document,
}

/// What it was made of, to tell whether it still stands.
#[derive(Debug, Clone)]
struct Source {
    member: Arc<str>,
    release: Option<Release>,
    index: Arc<Index>,
}

/// What a member has for a key.
struct Offer<'a> {
    member: &'a Member,
    hash: Option<&'a Arc<str>>,
    /// How much it serves of what the document describes.
    size: usize,
}

/// A document of version 3, and who has it.
#[derive(Debug)]
pub struct Entry {
    hash: Option<Arc<str>>,
    /// Those whose document is the one first, then those who have another.
    holders: Vec<Holder>,
}

/// A member that has a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its ID.
    pub member: Arc<str>,
    /// Whether its document is the one that the index names.
    pub same: bool,
}

impl OpenApi {
    /// Puts together what members say. They come in the order of their IDs; what did not change
    /// since `previous` is taken over. `surface_changed` tells whether what they serve did.
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

        let mut holders: BTreeMap<Arc<str>, Vec<Offer<'_>>> = BTreeMap::new();
        for member in members {
            let groups = groups(member);
            for (key, hash) in member.view.openapi.iter().flat_map(|index| index.entries()) {
                let offer = Offer { member, hash, size: served(&groups, key) };
                holders.entry(Arc::clone(key)).or_default().push(offer);
            }
        }
        let entries: BTreeMap<Arc<str>, Entry> =
            holders.into_iter().map(|(key, holders)| (key, Entry::new(holders))).collect();
        let paths: serde_json::Map<String, serde_json::Value> = entries
            .iter()
            .map(|(key, entry)| (key.to_string(), json!({"serverRelativeURL": entry.url(key)})))
            .collect();
        let index = Document::of(&json!({"paths": paths}));
        Arc::new(OpenApi { sources, entries, index })
    }

    /// The index of version 3; nothing where no member has one.
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
    /// The document that counts is that of the member that serves most of what it describes; of
    /// those, of the newest; of those, of the first by ID. So every gateway names the same one.
    fn new(mut offers: Vec<Offer<'_>>) -> Entry {
        offers.sort_by_cached_key(|Offer { member, size, .. }| {
            (Reverse(*size), Reverse(member.view.release), Arc::clone(&member.id))
        });
        let hash = offers.first().and_then(|offer| offer.hash).cloned();
        let holder = |offer: &Offer<'_>| Holder {
            member: Arc::clone(&offer.member.id),
            // Without a hash nobody can tell that two are the same.
            same: hash.is_some() && offer.hash == hash.as_ref(),
        };
        let mut holders: Vec<Holder> = offers.iter().map(holder).collect();
        if let Some(first) = holders.first_mut() {
            first.same = true;
        }
        holders.sort_by_key(|holder| !holder.same);
        Entry { hash, holders }
    }

    /// The hash of the document, by which clients and servers keep it.
    pub fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// Where clients find it.
    pub fn url(&self, key: &str) -> String {
        match &self.hash {
            Some(hash) => format!("/openapi/v3/{key}?hash={hash}"),
            None => format!("/openapi/v3/{key}"),
        }
    }

    /// Who has it: those with the very document first, then those with another for this key.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }
}

/// What a member serves, by the name of the group.
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

/// How much there is of what a document describes.
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
