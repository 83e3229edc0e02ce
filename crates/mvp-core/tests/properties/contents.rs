//! The contents of documents, read from their JSON without the code under test: the expectations.

use std::collections::BTreeSet;

use mvp_core::discovery::GroupList;
use serde_json::Value;

/// A fact of a document: a group, a version of it, a resource of that, and so on.
pub(crate) type Fact = Vec<String>;

/// All facts of an aggregated document: groups, versions, resources, subresources and verbs.
pub(crate) fn facts(document: &Value) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::new();
    for group in list(document, "items") {
        let path = vec![group_name(group).to_owned()];
        for version in list(group, "versions") {
            let path = below(&path, &[text(version, "version")]);
            for resource in list(version, "resources") {
                let path = below(&path, &[text(resource, "resource")]);
                take_verbs(&mut facts, &path, resource);
                for subresource in list(resource, "subresources") {
                    let path = below(&path, &["subresource", text(subresource, "subresource")]);
                    take_verbs(&mut facts, &path, subresource);
                    facts.insert(path);
                }
                facts.insert(path);
            }
            facts.insert(path);
        }
        facts.insert(path);
    }
    facts
}

/// The same for the parsed model, which has only eight verbs.
pub(crate) fn facts_of_model(list: &GroupList) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::new();
    for group in &list.groups {
        let path = vec![group.name.to_string()];
        for version in &group.versions {
            let path = below(&path, &[&version.name]);
            for resource in &version.resources {
                let path = below(&path, &[&resource.name]);
                facts.extend(resource.verbs.iter().map(|v| below(&path, &["verb", v.as_str()])));
                for subresource in &resource.subresources {
                    let path = below(&path, &["subresource", &subresource.name]);
                    let verbs = subresource.verbs.iter();
                    facts.extend(verbs.map(|verb| below(&path, &["verb", verb.as_str()])));
                    facts.insert(path);
                }
                facts.insert(path);
            }
            facts.insert(path);
        }
        facts.insert(path);
    }
    facts
}

/// Removes verbs that routing does not know.
pub(crate) fn routable(facts: BTreeSet<Fact>) -> BTreeSet<Fact> {
    let routable = |fact: &Fact| {
        !fact.ends_with(&["verb".to_owned(), "frobnicate".to_owned()])
            && !fact.ends_with(&["verb".to_owned(), "impersonate".to_owned()])
    };
    facts.into_iter().filter(routable).collect()
}

fn take_verbs(facts: &mut BTreeSet<Fact>, path: &[String], entry: &Value) {
    for verb in list(entry, "verbs") {
        facts.insert(below(path, &["verb", verb.as_str().expect("a verb")]));
    }
}

fn below(path: &[String], steps: &[&str]) -> Fact {
    path.iter().cloned().chain(steps.iter().map(|step| (*step).to_owned())).collect()
}

/// A list field of an object; empty if it is absent or null.
pub(crate) fn list<'v>(object: &'v Value, key: &str) -> &'v [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A string field of an object; empty if it is absent or null.
pub(crate) fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn group_name(group: &Value) -> &str {
    text(&group["metadata"], "name")
}

/// The entry of a resource, if the document lists it.
pub(crate) fn find_resource<'v>(
    document: &'v Value,
    group: &str,
    version: &str,
    resource: &str,
) -> Option<&'v Value> {
    let group = list(document, "items").iter().find(|entry| group_name(entry) == group)?;
    let version = list(group, "versions").iter().find(|entry| text(entry, "version") == version)?;
    list(version, "resources").iter().find(|entry| text(entry, "resource") == resource)
}

/// The entry of a subresource, or of the resource itself if the name is empty.
pub(crate) fn find_subresource<'v>(resource: &'v Value, name: &str) -> Option<&'v Value> {
    if name.is_empty() {
        return Some(resource);
    }
    list(resource, "subresources").iter().find(|entry| text(entry, "subresource") == name)
}

/// Every entry of a document by its place, including the list itself.
pub(crate) fn entries(document: &Value) -> Vec<(Fact, &Value)> {
    let mut entries = vec![(Vec::new(), document)];
    for group in list(document, "items") {
        let path = vec![group_name(group).to_owned()];
        for version in list(group, "versions") {
            let path = below(&path, &[text(version, "version")]);
            for resource in list(version, "resources") {
                let path = below(&path, &[text(resource, "resource")]);
                for subresource in list(resource, "subresources") {
                    let name = text(subresource, "subresource");
                    entries.push((below(&path, &["subresource", name]), subresource));
                }
                entries.push((path, resource));
            }
            entries.push((path, version));
        }
        entries.push((path, group));
    }
    entries
}
