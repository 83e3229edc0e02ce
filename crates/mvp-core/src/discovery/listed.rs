//! The resources that one server lists at `/apis/G/V`, with the hashes of their storage versions.
//!
//! Aggregated documents do not have these hashes, and their entity tag does not change with them: they
//! are read from the server at each request. Entry item: [`Listed::parse`].

use std::collections::BTreeMap;

use bytes::Bytes;

use super::legacy::{self, ApiResourceList};
use super::negotiate::Encoding;
use super::{Limits, Source, Version};
use crate::wire::{bytes_field, fields};

/// The names of the resources and subresources that a server lists for one version, each with the
/// hash of its storage version; empty if it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed(BTreeMap<String, String>);

impl Listed {
    /// The largest document that is read. A resource takes about 300 bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Parses an `APIResourceList`; `None` if the document is none.
    pub fn parse(document: Bytes, encoding: Encoding) -> Option<Listed> {
        match encoding {
            Encoding::Json => {
                let limits = Limits { max_bytes: Listed::MAX_BYTES, ..Limits::default() };
                let source = Source { server: "", document: "" };
                let list: ApiResourceList = legacy::parse(source, document, &limits).ok()?;
                let entry =
                    |resource: legacy::ApiResource| (resource.name, resource.storage_version_hash);
                Some(Listed(list.resources.into_iter().map(entry).collect()))
            }
            Encoding::Protobuf => from_protobuf(&document).map(Listed),
            Encoding::Yaml | Encoding::Cbor => None,
        }
    }

    /// Whether the server lists this resource or `resource/subresource`.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The hash of the storage version of a resource, if the server lists the resource.
    pub(crate) fn hash(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether the server lists exactly what is known of the version.
    pub fn agrees(&self, known: &Version) -> bool {
        let mut count = 0;
        for resource in &known.resources {
            // Legacy documents leave out a resource that exists only for its subresources.
            if self.has(&resource.name) {
                count += 1;
            } else if resource.subresources.is_empty() {
                return false;
            }
            for subresource in &resource.subresources {
                count += 1;
                if !self.has(&format!("{}/{}", resource.name, subresource.name)) {
                    return false;
                }
            }
        }
        count == self.0.len()
    }
}

/// The names and hashes in Kubernetes' protobuf envelope.
fn from_protobuf(document: &[u8]) -> Option<BTreeMap<String, String>> {
    const RAW: u64 = 2;
    const RESOURCES: u64 = 2;
    const NAME: u64 = 1;
    const STORAGE_VERSION_HASH: u64 = 10;
    let envelope = document.strip_prefix(b"k8s\0")?;
    let list = bytes_field(envelope, RAW)?;
    let mut listed = BTreeMap::new();
    for field in fields(list)?.into_iter().filter(|field| field.number == RESOURCES) {
        let resource = field.bytes?;
        let text = |number| {
            let bytes = bytes_field(resource, number).unwrap_or_default();
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        };
        listed.insert(text(NAME)?, text(STORAGE_VERSION_HASH)?);
    }
    Some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::encode::encode;
    use crate::discovery::{GroupList, Part};

    const LIST: &str = r#"{"kind":"APIResourceList","groupVersion":"g.io/v1","resources":[
        {"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get"],"storageVersionHash":"abc="},
        {"name":"things/status","singularName":"","namespaced":true,"kind":"Thing","verbs":["get"]},
        {"name":"reviews","singularName":"","namespaced":false,"kind":"Review","verbs":["create"]}]}"#;

    fn listed() -> Listed {
        Listed::parse(Bytes::from_static(LIST.as_bytes()), Encoding::Json).expect("a list")
    }

    #[test]
    fn hashes_are_the_same_from_json_and_protobuf() {
        let protobuf = encode(LIST.as_bytes(), Encoding::Protobuf).expect("protobuf");
        assert_eq!(Listed::parse(protobuf.into(), Encoding::Protobuf), Some(listed()));
        assert_eq!(listed().hash("things"), Some("abc="));
        assert_eq!(listed().hash("reviews"), Some(""), "it has none");
        assert_eq!(listed().hash("others"), None);
    }

    #[test]
    fn bad_documents_have_no_hashes() {
        let large = format!("{LIST}{}", " ".repeat(Listed::MAX_BYTES));
        let cases = ["", "404 page not found", r#"{"kind":"Status"}"#, "k8s\0\u{1}", &large];
        for document in cases {
            for encoding in [Encoding::Json, Encoding::Protobuf] {
                let document = Bytes::copy_from_slice(document.as_bytes());
                assert_eq!(Listed::parse(document, encoding), None);
            }
        }
    }

    #[test]
    fn a_list_agrees_with_the_same_names_only() {
        let version = |resources: &str| {
            let text = format!(
                r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
                {{"metadata":{{"name":"g.io"}},"versions":[{{"version":"v1","resources":[{resources}]}}]}}]}}"#
            );
            let source = Source { server: "a", document: "/apis" };
            let parsed = GroupList::parse(source, Part::Apis, text.into(), &Limits::default());
            parsed.expect("a document").value
        };
        let things =
            r#"{"resource":"things","verbs":["get"],"subresources":[{"subresource":"status"}]}"#;
        let cases = [
            (format!(r#"{things},{{"resource":"reviews"}}"#), true),
            (things.to_owned(), false),
            (r#"{"resource":"things"},{"resource":"reviews"}"#.to_owned(), false),
            (format!(r#"{things},{{"resource":"reviews"}},{{"resource":"more"}}"#), false),
            // Only for its subresource.
            (
                format!(
                    r#"{things},{{"resource":"reviews"}},{{"resource":"x","subresources":[{{"subresource":"y"}}]}}"#
                ),
                false,
            ),
        ];
        for (resources, agrees) in cases {
            let list = version(&resources);
            let version = list.groups.first().and_then(|group| group.versions.first());
            assert_eq!(listed().agrees(version.expect("a version")), agrees, "{resources}");
        }
    }
}
