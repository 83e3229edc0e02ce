//! Conversions between aggregated and legacy documents, with recorded documents of real servers.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use bytes::Bytes;
use mvp_core::discovery::legacy::{ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};
use mvp_core::discovery::{GroupList, Limits, Part, Source, convert, legacy};
use serde::Serialize;
use serde_json::{Value, json};

const RECORDED: [&str; 2] = ["v1.34.10", "v1.36.4"];

#[test]
fn aggregated_documents_convert_to_legacy_ones() {
    for server in RECORDED {
        let recorded = recorded(server);
        let mut compared = 0;
        for part in Part::ALL {
            let list = aggregated(&recorded, part);
            for group in &list.groups {
                for version in &group.versions {
                    let path = path_of(&group.name, &version.name);
                    let ours = convert::resource_list(group, &version.name).expect("a version");
                    let mut theirs = recorded["legacy"][&path].clone();
                    assert!(theirs.is_object(), "{server} {path}");
                    // Aggregated documents do not have it.
                    for resource in theirs["resources"].as_array_mut().into_iter().flatten() {
                        resource.as_object_mut().expect("object").remove("storageVersionHash");
                    }
                    assert_eq!(value(&ours), theirs, "{server} {path}");
                    compared += 1;
                }
                if part == Part::Apis {
                    let path = format!("/apis/{}", group.name);
                    let theirs = &recorded["legacy"][&path];
                    assert_eq!(&value(&convert::group(group)), theirs, "{server} {path}");
                }
            }
        }
        assert!(compared > 30, "{server}: {compared} lists compared");

        let groups = convert::group_list(&aggregated(&recorded, Part::Apis));
        assert_eq!(value(&groups), recorded["legacy"]["/apis"], "{server} /apis");
        let versions = convert::api_versions(&aggregated(&recorded, Part::Api));
        let theirs: ApiVersions = parsed(&recorded, "/api");
        assert_eq!((versions.kind, versions.versions), (theirs.kind, theirs.versions));
    }
}

#[test]
fn legacy_documents_convert_and_round_trip() {
    for server in RECORDED {
        let recorded = recorded(server);
        let groups: ApiGroupList = parsed(&recorded, "/apis");
        let core = [convert::core_group(&parsed(&recorded, "/api"))];
        for (part, groups) in [(Part::Api, &core[..]), (Part::Apis, &groups.groups[..])] {
            let lists: Vec<ApiResourceList> = groups
                .iter()
                .flat_map(|group| {
                    let versions = group.versions.iter();
                    versions.map(|version| path_of(&group.name, &version.version))
                })
                .map(|path| parsed(&recorded, &path))
                .collect();
            let source = Source { server, document: part.path() };
            let list = convert::from_legacy(source, groups, &lists).expect("documents");
            assert_eq!(list.complaints, [], "{server}");

            let ours: Value =
                serde_json::from_slice(&list.value.to_aggregated_json("v2")).expect("JSON");
            let theirs = with_own_kinds_blank(&recorded["aggregated"][part.path()]);
            assert_eq!(ours, theirs, "{server} {}", part.path());

            for group in &list.value.groups {
                for version in &group.versions {
                    let path = path_of(&group.name, &version.name);
                    let again = convert::resource_list(group, &version.name).expect("a version");
                    assert_eq!(value(&again), recorded["legacy"][&path], "{server} {path}");
                }
            }
        }
    }
}

#[test]
fn unknown_fields_survive_conversion() {
    let recorded = recorded("v1.36.4");
    for (path, document) in recorded["legacy"].as_object().expect("documents") {
        let mut document = document.clone();
        document["tomorrow"] = json!({"a": [1, null]});
        for list in ["groups", "resources", "versions"] {
            let entries = document.get_mut(list).and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten().filter(|entry| entry.is_object()) {
                entry["tomorrow"] = json!([true]);
            }
        }
        let again = match document["kind"].as_str().expect("a kind") {
            "APIVersions" => again::<ApiVersions>(&document),
            "APIGroupList" => again::<ApiGroupList>(&document),
            "APIGroup" => again::<ApiGroup>(&document),
            "APIResourceList" => again::<ApiResourceList>(&document),
            other => panic!("{other}"),
        };
        assert_eq!(again, document, "{path}");
    }
}

fn again<D: legacy::LegacyDocument + Serialize>(document: &Value) -> Value {
    let source = Source { server: "a", document: "/test" };
    let document = Bytes::from(document.to_string());
    value(&legacy::parse::<D>(source, document, &Limits::default()).expect("a document"))
}

/// Removes a group and version of a kind that are those of the list. Aggregated documents have them for
/// custom resources only, legacy documents never.
fn with_own_kinds_blank(document: &Value) -> Value {
    let mut document = document.clone();
    for group in document["items"].as_array_mut().into_iter().flatten() {
        let own_group = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            let own_version = version["version"].as_str().unwrap_or_default().to_owned();
            for resource in version["resources"].as_array_mut().into_iter().flatten() {
                let is_own =
                    |kind: &Value| kind["group"] == *own_group && kind["version"] == *own_version;
                if resource.get("responseKind").is_some_and(is_own) {
                    resource["responseKind"]["group"] = json!("");
                    resource["responseKind"]["version"] = json!("");
                }
                for entry in resource
                    .get_mut("subresources")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                    .filter(|entry| is_own(&entry["responseKind"]))
                {
                    entry["responseKind"]["group"] = json!("");
                    entry["responseKind"]["version"] = json!("");
                }
            }
        }
    }
    document
}

fn recorded(server: &str) -> Value {
    let path = format!("{}/tests/fixtures/recorded/{server}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

fn aggregated(recorded: &Value, part: Part) -> GroupList {
    let source = Source { server: "recorded", document: part.path() };
    let document = Bytes::from(recorded["aggregated"][part.path()].to_string());
    let parsed = GroupList::parse(source, part, document, &Limits::default()).expect("a document");
    assert_eq!(parsed.complaints, []);
    parsed.value
}

fn parsed<D: legacy::LegacyDocument>(recorded: &Value, path: &str) -> D {
    let source = Source { server: "recorded", document: path };
    let document = Bytes::from(recorded["legacy"][path].to_string());
    legacy::parse(source, document, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("JSON")
}
