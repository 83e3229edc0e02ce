//! Kubernetes' merge of peers' aggregated discovery.

use bytes::Bytes;
use mvp_core::discovery::{GroupList, Limits, Part, Source, merge::merge};
use serde_json::{Value, json};

use crate::{fixture, text};

#[test]
fn documents_merge_as_in_kubernetes() {
    let (mut wrong, mut differing) = (Vec::new(), 0);
    for line in fixture("merge.jsonl", 200) {
        let name = text(&line, "/name");
        let mut servers: Vec<(&str, GroupList)> = line["servers"]
            .as_array()
            .expect("servers")
            .iter()
            .map(|server| (text(server, "/id"), parse(text(server, "/id"), &server["items"])))
            .collect();
        servers.sort_by_key(|(id, _)| *id);
        let merged = merge(servers.iter().map(|(_, list)| list));
        let ours: Value = serde_json::from_slice(&merged.to_aggregated_json("v2")).expect("JSON");

        let ours = normal(&ours["items"]);
        let theirs = normal(&line["merged"]);
        if ours == theirs || differs_on_purpose(name).is_some() {
            continue;
        }
        // Two intended differences: see `expected`.
        if ours == normal(&expected(&line)) {
            differing += 1;
            continue;
        }
        wrong.push(format!("{name}:\n mvp        {ours}\n Kubernetes {theirs}"));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(differing > 0, "the fixture has sets with intended differences");
}

/// Sets with documents that no Go server writes, and the reason for the difference.
fn differs_on_purpose(name: &str) -> Option<&'static str> {
    match name {
        "unknown fields are dropped" => Some("mvp keeps unknown fields"),
        "responseKind empty and partly given, verbs unsorted" => {
            Some("mvp compares the text, Go the meaning: verbs are sorted")
        }
        "a group twice in both servers"
        | "a version twice in one server"
        | "a resource twice in one server" => Some("mvp merges duplicate entries of one server"),
        "the group without a name" | "a resource without a name" => {
            Some("mvp ignores entries without a name")
        }
        _ => None,
    }
}

fn parse(server: &str, items: &Value) -> GroupList {
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": items,
    });
    let source = Source { server, document: "/apis" };
    let document = Bytes::from(document.to_string());
    GroupList::parse(source, Part::Apis, document, &Limits::default()).expect("a document").value
}

/// The result of Kubernetes with the intended differences: `freshness` is Current if any server says
/// so (in Kubernetes it is the first server's, or the local one's), and the verbs of a subresource are
/// those of all servers (in Kubernetes the last one's).
fn expected(line: &Value) -> Value {
    let mut merged = line["merged"].clone();
    let mut servers: Vec<&Value> = line["servers"].as_array().into_iter().flatten().collect();
    servers.sort_by_key(|server| text(server, "/id"));
    for group in merged.as_array_mut().into_iter().flatten() {
        let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            let version_name = version["version"].as_str().unwrap_or_default().to_owned();
            let said: Vec<&Value> = servers
                .iter()
                .flat_map(|server| server["items"].as_array().into_iter().flatten())
                .filter(|group| text(group, "/metadata/name") == name)
                .flat_map(|group| group["versions"].as_array().into_iter().flatten())
                .filter(|version| text(version, "/version") == version_name)
                .collect();
            if said.iter().any(|v| text(v, "/freshness") == "Current") {
                version["freshness"] = json!("Current");
            } else {
                version["freshness"] = said.first().map_or(Value::Null, |v| v["freshness"].clone());
            }
            for resource in version["resources"].as_array_mut().into_iter().flatten() {
                let resource_name = resource["resource"].as_str().unwrap_or_default().to_owned();
                for sub in resource["subresources"].as_array_mut().into_iter().flatten() {
                    let sub_name = sub["subresource"].as_str().unwrap_or_default().to_owned();
                    unite_verbs(sub, &said, &resource_name, &sub_name);
                }
            }
        }
    }
    merged
}

fn unite_verbs(sub: &mut Value, said: &[&Value], resource: &str, name: &str) {
    let entries = said
        .iter()
        .flat_map(|version| version["resources"].as_array().into_iter().flatten())
        .filter(|entry| text(entry, "/resource") == resource)
        .flat_map(|entry| entry["subresources"].as_array().into_iter().flatten())
        .filter(|entry| text(entry, "/subresource") == name);
    let mut verbs: Vec<&str> = entries
        .flat_map(|entry| entry["verbs"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    verbs.sort_unstable();
    verbs.dedup();
    let theirs = sub["verbs"].as_array().map_or(0, Vec::len);
    if theirs < verbs.len() {
        sub["verbs"] = json!(verbs);
    }
}

/// Removes empty values. Go leaves them out, while this crate keeps what the first server wrote: the
/// empty name of the core group, and empty lists.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(elements) => elements.iter().map(normal).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .filter(|(_, value)| !(value.is_null() || *value == json!([]) || *value == json!("")))
            .collect(),
        other => other.clone(),
    }
}
