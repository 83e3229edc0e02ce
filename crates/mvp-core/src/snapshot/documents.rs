//! Documents, written once for each change of what is served. The merged aggregated one is written
//! when the snapshot is built; the rarer ones, and rarer encodings, when they are first asked for.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use serde::Serialize;
use sha2::{Digest, Sha512};

use crate::discovery::encode::encode;
use crate::discovery::merge::merge;
use crate::discovery::negotiate::{Encoding, Form};
use crate::discovery::{GroupList, Part, convert};

/// A document to answer with.
#[derive(Debug)]
pub struct Document {
    /// As JSON.
    pub json: Encoded,
    /// The entity tag, with its quotes: a SHA-512 of the JSON, as kube-apiserver writes it. It is
    /// that of every encoding, as there.
    pub etag: Box<str>,
    yaml: OnceLock<Option<Encoded>>,
    protobuf: OnceLock<Option<Encoded>>,
}

/// A document in one encoding.
#[derive(Debug)]
pub struct Encoded {
    /// Its bytes.
    pub body: Bytes,
    gzipped: OnceLock<Bytes>,
}

/// What all members serve of one half of the API surface.
#[derive(Debug)]
pub(super) struct MergedPart {
    sources: Vec<(Arc<str>, Arc<GroupList>)>,
    list: GroupList,
    groups: HashMap<Arc<str>, GroupDocuments>,
    v2: OnceLock<Document>,
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
            v2: OnceLock::new(),
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
            (Form::AggregatedV2, _) => {
                self.v2.get_or_init(|| Document::new(self.list.to_aggregated_json("v2")))
            }
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

impl Encoded {
    /// These bytes.
    pub fn new(body: Bytes) -> Encoded {
        Encoded { body, gzipped: OnceLock::new() }
    }

    /// The body packed, once for all who take it so.
    pub fn gzipped(&self) -> &Bytes {
        self.gzipped.get_or_init(|| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            // Packing into memory cannot fail.
            let _ = packer.write_all(&self.body);
            packer.finish().unwrap_or_default().into()
        })
    }
}

/// The entity tag of a document, with its quotes, as kube-apiserver makes it.
pub fn etag(body: &[u8]) -> Box<str> {
    let mut etag = String::with_capacity(130);
    etag.push('"');
    for byte in Sha512::digest(body) {
        // Writing to a string cannot fail.
        let _ = write!(etag, "{byte:02X}");
    }
    etag.push('"');
    etag.into()
}

impl Document {
    /// The document in an encoding; nothing where it has no such form.
    pub fn encoded(&self, encoding: Encoding) -> Option<&Encoded> {
        let place = match encoding {
            Encoding::Json => return Some(&self.json),
            Encoding::Yaml => &self.yaml,
            Encoding::Protobuf => &self.protobuf,
            Encoding::Cbor => return None,
        };
        let write = || Some(Encoded::new(encode(&self.json.body, encoding)?.into()));
        place.get_or_init(write).as_ref()
    }

    fn new(body: Bytes) -> Document {
        let etag = etag(&body);
        let json = Encoded::new(body);
        Document { json, etag, yaml: OnceLock::new(), protobuf: OnceLock::new() }
    }

    /// A document of ours.
    pub(crate) fn of(document: &impl Serialize) -> Document {
        // Serialising our own documents, whose keys are all strings, cannot fail.
        Document::new(serde_json::to_vec(document).unwrap_or_default().into())
    }
}
