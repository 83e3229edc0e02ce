//! Random aggregated documents. They and their expectations are JSON values, independent of the types
//! under test.

use std::sync::Arc;

use bytes::Bytes;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

pub(crate) const GROUPS: [&str; 3] = ["apps", "example.com", "storage.k8s.io"];
pub(crate) const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v2"];
pub(crate) const RESOURCES: [&str; 4] = ["jobs", "namespaces", "nodes", "widgets"];
pub(crate) const SUBRESOURCES: [&str; 4] = ["exec", "proxy", "scale", "status"];
/// The verbs that routing knows, and two that it does not.
const VERBS: [&str; 10] = [
    "create",
    "delete",
    "deletecollection",
    "frobnicate",
    "get",
    "impersonate",
    "list",
    "patch",
    "update",
    "watch",
];
/// Names of fields that no version of Kubernetes has. The first and the last sort before and after
/// all known ones.
pub(crate) const UNKNOWN_FIELDS: [&str; 3] = ["aFuture", "rFuture", "zFuture \"quoted\" é"];

/// The document of one half of the API surface.
pub(crate) fn document(part: Part) -> BoxedStrategy<Value> {
    let groups = match part {
        Part::Api => option::weighted(0.9, group("")).prop_map(Vec::from_iter).boxed(),
        Part::Apis => entries(&GROUPS, 0..=3, group),
    };
    (groups, unknown())
        .prop_map(|(groups, unknown)| {
            let mut list = json!({
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": groups,
            });
            fields(&mut list).extend(unknown);
            list
        })
        .boxed()
}

/// Documents of one half, one for each server of a cluster.
pub(crate) fn document_sets(
    part: Part,
    servers: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Value>> {
    vec(document(part), servers)
}

fn group(name: &'static str) -> BoxedStrategy<Value> {
    let spelled = any::<bool>();
    (entries(&VERSIONS, 0..=3, version), absence(), spelled, unknown(), unknown())
        .prop_map(move |(versions, absence, spelled, unknown, unknown_metadata)| {
            // The core group's name is left out, or empty.
            let mut metadata = json!({"creationTimestamp": null});
            if !name.is_empty() || spelled {
                metadata["name"] = json!(name);
            }
            fields(&mut metadata).extend(unknown_metadata);
            let mut group = json!({"metadata": metadata});
            put(&mut group, "versions", versions, absence);
            fields(&mut group).extend(unknown);
            group
        })
        .boxed()
}

fn version(name: &'static str) -> BoxedStrategy<Value> {
    let freshness = option::of(select(vec!["Current", "Stale"]));
    (entries(&RESOURCES, 0..=4, resource), absence(), freshness, unknown())
        .prop_map(move |(resources, absence, freshness, unknown)| {
            let mut version = json!({"version": name});
            put(&mut version, "resources", resources, absence);
            if let Some(freshness) = freshness {
                version["freshness"] = json!(freshness);
            }
            fields(&mut version).extend(unknown);
            version
        })
        .boxed()
}

fn resource(name: &'static str) -> BoxedStrategy<Value> {
    let scope = select(vec![json!("Namespaced"), json!("Cluster"), json!("Galaxy"), Value::Null]);
    let subresources = entries(&SUBRESOURCES, 0..=2, subresource);
    let names = (option::of(Just("widget")), names(&["w", "wd"]), names(&["all", "some"]));
    (scope, verbs(), subresources, (absence(), absence()), names, kind(), unknown())
        .prop_map(move |(scope, verbs, subresources, absences, names, kind, unknown)| {
            let (singular, short_names, categories) = names;
            let mut resource = json!({"resource": name});
            put(&mut resource, "verbs", verbs, absences.0);
            put(&mut resource, "subresources", subresources, absences.1);
            put(&mut resource, "shortNames", short_names, Absence::Absent);
            put(&mut resource, "categories", categories, Absence::Absent);
            if !scope.is_null() {
                resource["scope"] = scope;
            }
            if let Some(singular) = singular {
                resource["singularResource"] = json!(singular);
            }
            fields(&mut resource).extend(kind);
            fields(&mut resource).extend(unknown);
            resource
        })
        .boxed()
}

fn subresource(name: &'static str) -> BoxedStrategy<Value> {
    (verbs(), absence(), kind(), unknown())
        .prop_map(move |(verbs, absence, kind, unknown)| {
            let mut subresource = json!({"subresource": name});
            put(&mut subresource, "verbs", verbs, absence);
            fields(&mut subresource).extend(kind);
            fields(&mut subresource).extend(unknown);
            subresource
        })
        .boxed()
}

/// Some elements of a pool, each once, in any order.
fn entries(
    pool: &'static [&'static str],
    count: std::ops::RangeInclusive<usize>,
    entry: fn(&'static str) -> BoxedStrategy<Value>,
) -> BoxedStrategy<Vec<Value>> {
    subsequence(pool, count)
        .prop_shuffle()
        .prop_flat_map(move |names| names.into_iter().map(entry).collect::<Vec<_>>())
        .boxed()
}

fn names(pool: &'static [&'static str]) -> impl Strategy<Value = Vec<Value>> {
    subsequence(pool, 0..=pool.len())
        .prop_shuffle()
        .prop_map(|names| names.into_iter().map(Value::from).collect())
}

fn verbs() -> impl Strategy<Value = Vec<Value>> {
    // Servers sort them, but need not.
    prop_oneof![1 => names(&VERBS[..4]), 3 => names(&VERBS)]
}

fn kind() -> impl Strategy<Value = Map<String, Value>> {
    let of = |(group, version)| json!({"group": group, "version": version, "kind": "Widget"});
    let versions = select(vec![("", ""), ("apps", "v1"), ("autoscaling", "v1")]);
    option::of(versions.prop_map(of))
        .prop_map(|kind| kind.map(|kind| ("responseKind".to_owned(), kind)).into_iter().collect())
}

fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let value = select(vec![
        json!(null),
        json!(7),
        json!("one \" quote, one \\ and  spaces, {["),
        json!({"nested": [1, {"deep": " "}], "versions": "not ours"}),
        json!([]),
    ]);
    let field = (select(UNKNOWN_FIELDS.as_slice()), value);
    prop_oneof![
        2 => Just(Map::new()),
        1 => vec(field, 1..=2)
            .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
    ]
}

/// An empty list as a server writes it.
#[derive(Debug, Clone, Copy)]
enum Absence {
    Empty,
    Null,
    Absent,
}

fn absence() -> impl Strategy<Value = Absence> {
    select(vec![Absence::Empty, Absence::Null, Absence::Absent])
}

fn put(object: &mut Value, key: &str, list: Vec<Value>, absence: Absence) {
    match absence {
        Absence::Null if list.is_empty() => object[key] = Value::Null,
        Absence::Absent if list.is_empty() => {}
        _ => object[key] = Value::Array(list),
    }
}

fn fields(object: &mut Value) -> &mut Map<String, Value> {
    object.as_object_mut().expect("an object")
}

/// The document parsed by the code under test. These documents have no faults.
pub(crate) fn parse(part: Part, document: &Value) -> Arc<GroupList> {
    parse_text(part, document.to_string())
}

pub(crate) fn parse_text(part: Part, text: String) -> Arc<GroupList> {
    let source = Source { server: "apiserver-a", document: part.path() };
    let parsed = GroupList::parse(source, part, Bytes::from(text), &Limits::default())
        .expect("a good document");
    assert!(parsed.complaints.is_empty(), "{:?}", parsed.complaints);
    Arc::new(parsed.value)
}

/// The document as the code under test writes it.
pub(crate) fn written(list: &GroupList) -> Value {
    serde_json::from_slice(&list.to_aggregated_json("v2")).expect("JSON")
}
