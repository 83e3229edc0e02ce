//! Merged documents, written once for each change of the API surface. The aggregated one is written
//! when the snapshot is built; rarer documents and encodings are written on the first request.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use serde::Serialize;
use sha2::{Digest, Sha512};

use super::PerPart;
use crate::discovery::encode::encode;
use crate::discovery::legacy::ApiResourceList;
use crate::discovery::merge::merge;
use crate::discovery::negotiate::{Encoding, Form};
use crate::discovery::{GroupList, Listed, Part, Resource, convert};
use crate::request::DiscoveryPath;

/// A document to respond with.
#[derive(Debug)]
pub struct Document {
    /// The document as JSON.
    pub json: Encoded,
    /// The entity tag with its quotes: the SHA-512 of the JSON, for every encoding, as in
    /// kube-apiserver.
    pub etag: Box<str>,
    yaml: OnceLock<Option<Encoded>>,
    protobuf: OnceLock<Option<Encoded>>,
    cbor: OnceLock<Option<Encoded>>,
}

/// A document in one encoding.
#[derive(Debug)]
pub struct Encoded {
    /// The bytes, not compressed.
    pub body: Bytes,
    gzipped: OnceLock<Bytes>,
}

/// One half of the API surface of several members, merged.
#[derive(Debug)]
pub(super) struct MergedPart {
    sources: Vec<(Arc<str>, Arc<GroupList>)>,
    list: GroupList,
    groups: HashMap<Arc<str>, GroupDocuments>,
    v2: OnceLock<Document>,
    v2beta1: OnceLock<Document>,
    legacy: OnceLock<Document>,
}

/// The legacy documents of one group. They are boxed: there are thousands of groups, and clients ask
/// for the documents of few.
#[derive(Debug)]
struct GroupDocuments {
    place: usize,
    group: OnceLock<Box<Document>>,
    versions: Box<[OnceLock<Option<Box<Document>>>]>,
}

impl MergedPart {
    /// Merges documents of members, which must be in the order of the members' IDs.
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

    /// Whether this is the merge of exactly these documents, compared by pointer.
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

    /// The document at `/api` or `/apis`.
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

    /// The document at `/apis/G`.
    pub(super) fn group(&self, name: &str) -> Option<&Document> {
        let documents = self.groups.get(name)?;
        let group = self.list.groups.get(documents.place)?;
        Some(documents.group.get_or_init(|| Box::new(Document::of(&convert::group(group)))))
    }

    /// The document at `/apis/G/V` or `/api/V`.
    pub(super) fn version(&self, group: &str, version: &str) -> Option<&Document> {
        let documents = self.groups.get(group)?;
        let group = self.list.groups.get(documents.place)?;
        let place = group.versions.iter().position(|entry| &*entry.name == version)?;
        let write = || Some(Box::new(Document::of(&convert::resource_list(group, version)?)));
        documents.versions.get(place)?.get_or_init(write).as_deref()
    }

    /// The resources of a version.
    pub(super) fn resources(&self, group: &str, version: &str) -> &[Resource] {
        let group = self.groups.get(group).and_then(|of| self.list.groups.get(of.place));
        let versions = group.map_or(&[][..], |group| &group.versions);
        let version = versions.iter().find(|entry| &*entry.name == version);
        version.map_or(&[], |version| &version.resources)
    }

    /// Whether a member serves the group.
    pub(super) fn has_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Whether a member serves the version of the group.
    pub(super) fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups
            .get(group)
            .and_then(|documents| self.list.groups.get(documents.place))
            .is_some_and(|group| group.versions.iter().any(|entry| &*entry.name == version))
    }
}

impl Encoded {
    /// Wraps bytes that are not compressed.
    pub fn new(body: Bytes) -> Encoded {
        Encoded { body, gzipped: OnceLock::new() }
    }

    /// The body compressed with gzip. It is compressed on the first call.
    pub fn gzipped(&self) -> &Bytes {
        self.gzipped.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing to memory cannot fail.
            let _ = encoder.write_all(&self.body);
            encoder.finish().unwrap_or_default().into()
        })
    }
}

/// The entity tag of a document with its quotes, computed as in kube-apiserver.
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
    /// The document in an encoding; `None` if it cannot be written in that encoding.
    pub fn encoded(&self, encoding: Encoding) -> Option<&Encoded> {
        let place = match encoding {
            Encoding::Json => return Some(&self.json),
            Encoding::Yaml => &self.yaml,
            Encoding::Protobuf => &self.protobuf,
            Encoding::Cbor => &self.cbor,
        };
        let write = || Some(Encoded::new(encode(&self.json.body, encoding)?.into()));
        place.get_or_init(write).as_ref()
    }

    /// A list of resources with the hashes of their storage versions, each from the first server that
    /// lists the resource. `None` if this is no list of resources.
    pub fn with_hashes(&self, servers: &[Listed]) -> Option<Document> {
        let mut list: ApiResourceList = serde_json::from_slice(&self.json.body).ok()?;
        for resource in &mut list.resources {
            if let Some(hash) = servers.iter().find_map(|listed| listed.hash(&resource.name)) {
                hash.clone_into(&mut resource.storage_version_hash);
            }
        }
        Some(Document::of(&list))
    }

    fn new(body: Bytes) -> Document {
        let etag = etag(&body);
        let json = Encoded::new(body);
        let (yaml, protobuf, cbor) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Document { json, etag, yaml, protobuf, cbor }
    }

    /// Writes a document.
    pub(crate) fn of(document: &impl Serialize) -> Document {
        // Serializing these documents, whose keys are all strings, cannot fail.
        Document::new(serde_json::to_vec(document).unwrap_or_default().into())
    }
}

impl PerPart<Arc<MergedPart>> {
    pub(super) fn document(&self, path: &DiscoveryPath<'_>, form: Form) -> Option<&Document> {
        if let Some(form) = path.aggregated() {
            return Some(self.apis.root(Part::Apis, form));
        }
        match path {
            DiscoveryPath::Api => Some(self.api.root(Part::Api, form)),
            DiscoveryPath::Apis => Some(self.apis.root(Part::Apis, form)),
            DiscoveryPath::Group(group) if form == Form::Legacy => self.apis.group(group),
            DiscoveryPath::GroupVersion(group, version) if form == Form::Legacy => {
                self.of(Part::of_group(group)).version(group, version)
            }
            _ => None,
        }
    }
}
