//! The discovery documents of a server. They are created from its spec through the model of mvp-core,
//! so that older documents always agree with the aggregated one. Entry: [`group_list`].

use std::fmt::Write;

use bytes::Bytes;
use http::HeaderValue;
use mvp_core::Verb;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::spec::{GroupSpec, ResourceSpec, ResponseKind, VersionSpec};

/// The media type of the aggregated document.
pub(super) const CONTENT_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The aggregated document and its strong entity tag.
#[derive(Debug)]
pub(super) struct Aggregated {
    pub(super) body: Bytes,
    pub(super) etag: HeaderValue,
}

/// The groups of one half of the API surface.
pub(super) fn group_list(id: &str, groups: &[GroupSpec], part: Part) -> GroupList {
    let groups = groups.iter().filter(|group| Part::of_group(&group.name) == part);
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups.map(group).collect::<Vec<_>>(),
    });
    let source = Source { server: id, document: part.path() };
    let limits = Limits { max_bytes: usize::MAX, ..Limits::default() };
    // The document is valid; groups that the spec has twice are merged.
    GroupList::parse(source, part, document.to_string().into(), &limits)
        .map(|parsed| parsed.value)
        .unwrap_or_default()
}

impl Aggregated {
    pub(super) fn new(list: &GroupList) -> Aggregated {
        let body = list.to_aggregated_json("v2");
        let mut etag = String::with_capacity(130);
        etag.push('"');
        for byte in Sha512::digest(&body) {
            // Writing to a string cannot fail.
            let _ = write!(etag, "{byte:02X}");
        }
        etag.push('"');
        // Quotes and hexadecimal digits are valid in a header.
        let etag = HeaderValue::try_from(etag).unwrap_or(HeaderValue::from_static("\"\""));
        Aggregated { body, etag }
    }
}

fn group(group: &GroupSpec) -> Value {
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name".to_owned(), group.name.clone().into());
    }
    json!({ "metadata": metadata, "versions": group.versions.iter().map(version).collect::<Vec<_>>() })
}

fn version(version: &VersionSpec) -> Value {
    json!({
        "version": version.version,
        "resources": version.resources.iter().map(resource).collect::<Vec<_>>(),
        "freshness": "Current",
    })
}

fn resource(resource: &ResourceSpec) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(&resource.verbs),
    });
    let subresources: Vec<_> = resource
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": subresource.kind.as_ref().map_or_else(|| kind(resource), response_kind),
                "verbs": verbs(&subresource.verbs),
            })
        })
        .collect();
    let lists = [
        ("shortNames", json!(resource.short_names)),
        ("categories", json!(resource.categories)),
        ("subresources", subresources.into()),
    ];
    if let Value::Object(entry) = &mut entry {
        // Real servers omit empty fields.
        let lists = lists.into_iter().filter(|(_, list)| *list != json!([]));
        entry.extend(lists.map(|(key, list)| (key.to_owned(), list)));
    }
    entry
}

/// Real servers leave group and version empty if they are those of the list.
fn kind(resource: &ResourceSpec) -> Value {
    json!({ "group": "", "version": "", "kind": resource.kind })
}

fn response_kind(kind: &ResponseKind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn verbs(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).filter(|verb| !verb.is_empty()).collect()
}
