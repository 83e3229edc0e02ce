//! Merged documents, written once for each change of what is served. The aggregated one is written
//! when the snapshot is built; the rarer ones when they are first asked for.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use serde::Serialize;
use sha2::{Digest, Sha512};

use crate::discovery::merge::merge;
use crate::discovery::negotiate::Form;
use crate::discovery::{GroupList, Part, convert};

/// A document to answer with.
#[derive(Debug)]
pub struct Document {
    /// As JSON.
    pub body: Bytes,
    /// The strong entity tag, with its quotes: a SHA-512 of the body, as kube-apiserver writes it.
    pub etag: Box<str>,
    gzipped: OnceLock<Bytes>,
}

/// What all members serve of one half of the API surface.
#[derive(Debug)]
pub(super) struct MergedPart {
    sources: Vec<(Arc<str>, Arc<GroupList>)>,
    list: GroupList,
    groups: HashMap<Arc<str>, GroupDocuments>,
    v2: Document,
    v2beta1: OnceLock<Document>,
    legacy: OnceLock<Document>,
}

/// The older documents of one group.
#[derive(Debug)]
struct GroupDocuments {
    place: usize,
    group: OnceLock<Document>,
    versions: Box<[OnceLock<Option<Document>>]>,
}

impl MergedPart {
    /// Merges what members say; they come in the order of their IDs.
    pub(super) fn build<'a>(
        sources: impl Iterator<Item = (&'a Arc<str>, &'a Arc<GroupList>)>,
    ) -> MergedPart {
        let sources: Vec<_> =
            sources.map(|(id, list)| (Arc::clone(id), Arc::clone(list))).collect();
        let list = merge(sources.iter().map(|(_, list)| &**list));
        let groups = list.groups.iter().enumerate().map(|(place, group)| {
            let documents = GroupDocuments {
                place,
                group: OnceLock::new(),
                versions: group.versions.iter().map(|_| OnceLock::new()).collect(),
            };
            (Arc::clone(&group.name), documents)
        });
        MergedPart {
            groups: groups.collect(),
            v2: Document::new(list.to_aggregated_json("v2")),
            v2beta1: OnceLock::new(),
            legacy: OnceLock::new(),
            list,
            sources,
        }
    }

    /// Whether this is the merge of just these documents, by identity.
    pub(super) fn is_of<'a>(
        &self,
        sources: impl Iterator<Item = (&'a Arc<str>, &'a Arc<GroupList>)>,
    ) -> bool {
        let (mut ours, mut theirs) = (self.sources.iter(), sources);
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some((our_id, our_list)), Some((their_id, their_list)))
                    if our_id == their_id && Arc::ptr_eq(our_list, their_list) => {}
                _ => return false,
            }
        }
    }

    /// `/api` or `/apis`.
    pub(super) fn root(&self, part: Part, form: Form) -> &Document {
        match (form, part) {
            (Form::AggregatedV2, _) => &self.v2,
            (Form::AggregatedV2beta1, _) => {
                self.v2beta1.get_or_init(|| Document::new(self.list.to_aggregated_json("v2beta1")))
            }
            (Form::Legacy, Part::Api) => {
                self.legacy.get_or_init(|| Document::of(&convert::api_versions(&self.list)))
            }
            (Form::Legacy, Part::Apis) => {
                self.legacy.get_or_init(|| Document::of(&convert::group_list(&self.list)))
            }
        }
    }

    /// `/apis/G`.
    pub(super) fn group(&self, name: &str) -> Option<&Document> {
        let documents = self.groups.get(name)?;
        let group = self.list.groups.get(documents.place)?;
        Some(documents.group.get_or_init(|| Document::of(&convert::group(group))))
    }

    /// `/apis/G/V` or `/api/V`.
    pub(super) fn version(&self, group: &str, version: &str) -> Option<&Document> {
        let documents = self.groups.get(group)?;
        let group = self.list.groups.get(documents.place)?;
        let place = group.versions.iter().position(|entry| &*entry.name == version)?;
        let write = || Some(Document::of(&convert::resource_list(group, version)?));
        documents.versions.get(place)?.get_or_init(write).as_ref()
    }

    /// Whether a group is there.
    pub(super) fn has_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Whether a version of a group is there.
    pub(super) fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups
            .get(group)
            .and_then(|documents| self.list.groups.get(documents.place))
            .is_some_and(|group| group.versions.iter().any(|entry| &*entry.name == version))
    }
}

impl Document {
    /// The body packed, once for all who take it so.
    pub fn gzipped(&self) -> &Bytes {
        self.gzipped.get_or_init(|| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            // Packing into memory cannot fail.
            let _ = packer.write_all(&self.body);
            packer.finish().unwrap_or_default().into()
        })
    }

    fn new(body: Bytes) -> Document {
        let mut etag = String::with_capacity(130);
        etag.push('"');
        for byte in Sha512::digest(&body) {
            // Writing to a string cannot fail.
            let _ = write!(etag, "{byte:02X}");
        }
        etag.push('"');
        Document { body, etag: etag.into(), gzipped: OnceLock::new() }
    }

    fn of(document: &impl Serialize) -> Document {
        // Serialising our own documents, whose keys are all strings, cannot fail.
        Document::new(serde_json::to_vec(document).unwrap_or_default().into())
    }
}
