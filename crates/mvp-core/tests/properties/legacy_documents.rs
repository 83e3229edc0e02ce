//! Random legacy documents, and their round trips through the types.

use bytes::Bytes;
use mvp_core::discovery::convert::{
    api_versions, core_group, from_legacy, group_list, resource_list,
};
use mvp_core::discovery::legacy::{
    ApiGroup, ApiGroupList, ApiResourceList, ApiVersions, LegacyDocument, parse,
};
use mvp_core::discovery::{Limits, Source};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config;
use crate::contents::{list, text};

const SOURCE: Source<'_> = Source { server: "apiserver-a", document: "/apis" };

fn api_versions_documents() -> impl Strategy<Value = Value> {
    (subsequence(vec!["v1", "v1beta3", "v2"], 0..=3), unknown()).prop_map(|(versions, unknown)| {
        let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]);
        let document = json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": addresses,
        });
        extended(document, unknown)
    })
}

/// An `APIGroup`, as a document or as an entry of a list.
fn group_documents(name: &'static str, entry: bool) -> BoxedStrategy<Value> {
    let versions = subsequence(vec!["v1", "v1beta1", "v2"], 1..=3).prop_shuffle();
    (versions, any::<prop::sample::Index>(), unknown(), unknown())
        .prop_map(move |(versions, preferred, unknown, version_unknown)| {
            let version = |version: &&str| {
                json!({"groupVersion": format!("{name}/{version}"), "version": version})
            };
            let mut listed: Vec<Value> = versions.iter().map(version).collect();
            let preferred = preferred.get(&listed).clone();
            listed[0] = extended(listed[0].take(), version_unknown);
            let group = json!({"name": name, "versions": listed, "preferredVersion": preferred});
            let kind = json!({"kind": "APIGroup", "apiVersion": "v1"});
            let kind = if entry { Map::new() } else { kind.as_object().unwrap().clone() };
            extended(extended(group, kind), unknown)
        })
        .boxed()
}

fn group_list_documents() -> impl Strategy<Value = Value> {
    let names = subsequence(vec!["apps", "batch", "example.com"], 0..=3).prop_shuffle();
    let groups = names.prop_flat_map(|names| {
        names.into_iter().map(|name| group_documents(name, true)).collect::<Vec<_>>()
    });
    (groups, unknown()).prop_map(|(groups, unknown)| {
        let document = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
        extended(document, unknown)
    })
}

fn resource_list_documents(group_version: String) -> impl Strategy<Value = Value> {
    let names = subsequence(vec!["jobs", "nodes", "widgets"], 0..=3).prop_shuffle();
    let resources =
        names.prop_flat_map(|names| names.into_iter().map(resource_documents).collect::<Vec<_>>());
    resources.prop_map(move |resources| {
        let mut document = json!({
            "kind": "APIResourceList",
            "groupVersion": group_version,
            "resources": resources.concat(),
        });
        // Servers leave it out for the core group.
        if group_version.contains('/') {
            document["apiVersion"] = json!("v1");
        }
        document
    })
}

/// A resource and its subresources; sometimes only the subresources.
fn resource_documents(name: &'static str) -> BoxedStrategy<Vec<Value>> {
    let subresources = subsequence(vec!["scale", "status"], 0..=2).prop_shuffle();
    let whole = (verbs(), text_lists(), option::of(Just("aGFzaA==")), kinds(), unknown());
    let below = vec((verbs(), option::of(Just("c3Vi")), kinds(), unknown()), 2);
    (subresources, whole, below, any::<bool>(), prop::bool::weighted(0.9))
        .prop_map(move |(subresources, whole, below, namespaced, has_whole)| {
            let (verbs, (short_names, categories), hash, kind, unknown) = whole;
            let resource = json!({
                "name": name,
                "singularName": name.trim_end_matches('s'),
                "namespaced": namespaced,
                "kind": "Widget",
                "verbs": verbs,
            });
            let mut resource = extended(extended(resource, kind), unknown);
            let hash_of = |hash: Option<&str>| hash.map(Value::from).into_iter().collect();
            put_list(&mut resource, "storageVersionHash", hash_of(hash));
            put_list(&mut resource, "shortNames", short_names);
            put_list(&mut resource, "categories", categories);
            let mut resources = if has_whole { vec![resource] } else { Vec::new() };
            for (subresource, (verbs, hash, kind, unknown)) in subresources.iter().zip(below) {
                let subresource = json!({
                    "name": format!("{name}/{subresource}"),
                    "singularName": "",
                    "namespaced": namespaced,
                    "kind": "Scale",
                    "verbs": verbs,
                });
                let mut subresource = extended(extended(subresource, kind), unknown);
                put_list(&mut subresource, "storageVersionHash", hash_of(hash));
                resources.push(subresource);
            }
            resources
        })
        .boxed()
}

fn verbs() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["create", "frobnicate", "get", "list", "patch"], 1..=5)
}

fn text_lists() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    let some = |pool: [&'static str; 2]| {
        let names = subsequence(pool.to_vec(), 0..=2).prop_shuffle();
        names.prop_map(|names| names.into_iter().map(Value::from).collect::<Vec<_>>())
    };
    (some(["w", "wd"]), some(["all", "some"]))
}

/// Sometimes a kind of another group than the list's.
fn kinds() -> impl Strategy<Value = Map<String, Value>> {
    option::weighted(0.3, Just(json!({"group": "autoscaling", "version": "v1"})))
        .prop_map(|kind| kind.map(|kind| kind.as_object().unwrap().clone()).unwrap_or_default())
}

fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let value = select(vec![json!(1), json!("text"), json!({"nested": [null, 1.5]}), json!(null)]);
    let field = (select(vec!["aFuture", "zFuture"]), value);
    let fields = vec(field, 0..=2);
    fields.prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

fn extended(mut object: Value, fields: Map<String, Value>) -> Value {
    object.as_object_mut().unwrap().extend(fields);
    object
}

/// Sets a field that Go leaves out if it is empty.
fn put_list(object: &mut Value, key: &str, mut values: Vec<Value>) {
    if key == "storageVersionHash" {
        if let Some(value) = values.pop() {
            object[key] = value;
        }
    } else if !values.is_empty() {
        object[key] = Value::Array(values);
    }
}

fn through<D: LegacyDocument + Serialize>(document: &Value) -> Value {
    let parsed: D = read(document);
    serde_json::to_value(parsed).expect("JSON")
}

fn read<D: LegacyDocument>(document: &Value) -> D {
    let text = Bytes::from(document.to_string());
    parse(SOURCE, text, &Limits::default()).expect("a good document")
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn legacy_documents_round_trip(
        versions in api_versions_documents(),
        group in group_documents("apps", false),
        groups in group_list_documents(),
        resources in resource_list_documents("apps/v1".to_owned()),
        unknown in unknown(),
    ) {
        let resources = extended(resources, unknown);
        prop_assert_eq!(through::<ApiVersions>(&versions), versions);
        prop_assert_eq!(through::<ApiGroup>(&group), group);
        prop_assert_eq!(through::<ApiGroupList>(&groups), groups);
        prop_assert_eq!(through::<ApiResourceList>(&resources), resources);
    }

    #[test]
    fn named_groups_round_trip_through_the_aggregated_form(
        (groups, resources) in group_list_documents().prop_flat_map(|groups| {
            let versions = list(&groups, "groups").iter().flat_map(|group| list(group, "versions"));
            let resources: Vec<_> = versions
                .map(|version| resource_list_documents(text(version, "groupVersion").to_owned()))
                .collect();
            (Just(groups), resources)
        })
    ) {
        let typed: ApiGroupList = read(&groups);
        let lists: Vec<ApiResourceList> = resources.iter().map(read).collect();
        let parsed = from_legacy(SOURCE, &typed.groups, &lists).expect("good documents");
        prop_assert!(parsed.complaints.is_empty());

        let back = group_list(&parsed.value);
        prop_assert_eq!(back.groups.len(), typed.groups.len());
        for (ours, theirs) in back.groups.iter().zip(&typed.groups) {
            prop_assert_eq!(&ours.name, &theirs.name);
            prop_assert_eq!(&ours.preferred_version, &theirs.preferred_version);
            // The preferred version comes first; the others keep their order.
            let rest = |group: &ApiGroup| -> Vec<String> {
                let versions = group.versions.iter().map(|version| version.group_version.clone());
                let preferred = &group.preferred_version.group_version;
                versions.filter(|version| version != preferred).collect()
            };
            prop_assert_eq!(rest(ours), rest(theirs));
        }
        for theirs in &lists {
            let (group, version) = theirs.group_version.split_once('/').expect("a group");
            let group = parsed.value.group(group).expect("the group");
            let ours = resource_list(group, version).expect("the version");
            prop_assert_eq!(sorted(ours), sorted(theirs.clone()));
        }
    }

    #[test]
    fn the_core_group_round_trips_through_the_aggregated_form(
        resources in resource_list_documents("v1".to_owned())
    ) {
        let versions = json!({"kind": "APIVersions", "versions": ["v1"]});
        let (versions, resources): (ApiVersions, ApiResourceList) = (read(&versions), read(&resources));
        let lists = [resources];
        let parsed = from_legacy(SOURCE, &[core_group(&versions)], &lists).expect("good documents");
        prop_assert!(parsed.complaints.is_empty());
        prop_assert_eq!(api_versions(&parsed.value).versions, ["v1"]);
        let group = parsed.value.group("").expect("the core group");
        let ours = resource_list(group, "v1").expect("the version");
        prop_assert_eq!(sorted(ours), sorted(lists[0].clone()));
    }
}

/// The resources with their subresources after them.
fn sorted(mut list: ApiResourceList) -> ApiResourceList {
    list.resources.sort_by(|a, b| a.name.cmp(&b.name));
    list
}
