//! The merge: it has exactly the entries of its sources, and every member computes the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use mvp_core::Snapshot;
use mvp_core::discovery::merge::merge;
use mvp_core::discovery::negotiate::Form;
use mvp_core::discovery::{GroupList, Part};
use mvp_core::request::DiscoveryPath;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::clusters::clusters;
use crate::config;
use crate::contents::{Fact, entries, facts, facts_of_model, list, routable, text};
use crate::documents::{GROUPS, UNKNOWN_FIELDS, VERSIONS, document_sets, parse, written};

fn sets() -> impl Strategy<Value = (Part, Vec<Value>)> {
    select(Part::ALL.to_vec())
        .prop_flat_map(|part| document_sets(part, 1..=5).prop_map(move |set| (part, set)))
}

fn merged(part: Part, documents: &[Value]) -> GroupList {
    let lists: Vec<_> = documents.iter().map(|document| parse(part, document)).collect();
    merge(lists.iter().map(|list| &**list))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_merge_has_exactly_the_entries_of_its_sources((part, documents) in sets()) {
        let merged = merged(part, &documents);
        let said: BTreeSet<Fact> = documents.iter().flat_map(facts).collect();
        prop_assert_eq!(facts(&written(&merged)), said.clone());
        prop_assert_eq!(facts_of_model(&merged), routable(said));
    }

    #[test]
    fn a_merged_document_parses((part, documents) in sets()) {
        let merged = merged(part, &documents);
        let again = parse(part, &written(&merged));
        prop_assert_eq!(facts_of_model(&again), facts_of_model(&merged));
        prop_assert_eq!(written(&again), written(&merged));
    }

    #[test]
    fn merging_again_changes_nothing((part, documents) in sets()) {
        let merged = merged(part, &documents);
        prop_assert_eq!(&merge([&merged]), &merged);
        prop_assert_eq!(&merge([&merged, &merged]), &merged);
        // Parsed again, so that the two are equal, but not the same pointer.
        let (first, second) = (parse(part, &documents[0]), parse(part, &documents[0]));
        prop_assert_eq!(&merge([&*first, &*second]), &*first);
    }

    #[test]
    fn unknown_fields_survive((part, documents) in sets()) {
        let merged = written(&merged(part, &documents));
        let merged: BTreeMap<_, _> = entries(&merged).into_iter().collect();
        for (place, key, value) in expected_unknown_fields(&documents) {
            prop_assert_eq!(&merged[&place][&key], &value, "{} of {:?}", key, place);
        }
    }

    #[test]
    fn a_version_is_current_if_any_server_says_so((part, documents) in sets()) {
        let merged = written(&merged(part, &documents));
        let says_current = |place: &Fact| {
            let said = documents.iter().flat_map(entries).filter(|(other, _)| other == place);
            said.into_iter().any(|(_, version)| text(version, "freshness") == "Current")
        };
        for (place, version) in entries(&merged).into_iter().filter(|(place, _)| place.len() == 2) {
            prop_assert_eq!(text(version, "freshness") == "Current", says_current(&place));
        }
    }

    #[test]
    fn a_merge_does_not_depend_on_arrival_order_or_local_server(
        (cluster, shuffled) in clusters().prop_flat_map(|cluster| {
            let servers = Just(cluster.servers.clone()).prop_shuffle();
            (Just(cluster), servers)
        })
    ) {
        // Each member in turn is the first, and has the same result.
        let mut other = cluster.clone();
        other.local = Some(Arc::clone(&shuffled[0].member.id));
        other.servers = shuffled;
        prop_assert_eq!(all_documents(&other.snapshot()), all_documents(&cluster.snapshot()));
    }

    #[test]
    fn legacy_and_aggregated_documents_agree(cluster in clusters()) {
        let snapshot = cluster.snapshot();
        for part in Part::ALL {
            let documents = cluster.servers.iter().filter_map(|server| server.document(part));
            let said: BTreeSet<Fact> = documents.flat_map(facts).collect();
            prop_assert_eq!(legacy_facts(&snapshot, part), visible_to_older_clients(said));
        }
    }
}

/// The unknown fields that a merge must have, with the value of the first server that has the field at
/// that place; for a subresource, of the last one.
fn expected_unknown_fields(documents: &[Value]) -> Vec<(Fact, String, Value)> {
    let mut expected: BTreeMap<(Fact, String), Value> = BTreeMap::new();
    for (place, entry) in documents.iter().flat_map(entries) {
        let of_subresource = place.len() > 3;
        for key in UNKNOWN_FIELDS {
            let Some(value) = entry.get(key) else { continue };
            let slot = expected.entry((place.clone(), key.to_owned()));
            let value = value.clone();
            if of_subresource {
                *slot.or_default() = value;
            } else {
                slot.or_insert(value);
            }
        }
    }
    expected.into_iter().map(|((place, key), value)| (place, key, value)).collect()
}

/// The body and the entity tag of every document at every path, in every form.
pub(crate) fn all_documents(snapshot: &Snapshot) -> Vec<(String, Option<(Bytes, String)>)> {
    let mut paths = vec![DiscoveryPath::Api, DiscoveryPath::Apis];
    paths.extend(GROUPS.map(|group| DiscoveryPath::Group(group.into())));
    for group in GROUPS.into_iter().chain([""]) {
        let path =
            |version: &'static str| DiscoveryPath::GroupVersion(group.into(), version.into());
        paths.extend(VERSIONS.map(path));
    }
    let mut documents = Vec::new();
    for path in paths {
        for form in [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy] {
            let document = snapshot.document(&path, form);
            let content = document.map(|found| (found.json.body.clone(), found.etag.to_string()));
            documents.push((format!("{path:?} {form:?}"), content));
        }
    }
    let index = snapshot.openapi().index();
    let index = index.map(|found| (found.json.body.clone(), found.etag.to_string()));
    documents.push(("OpenAPI".to_owned(), index));
    documents
}

/// The facts of the legacy documents of one half, as in [`facts`].
fn legacy_facts(snapshot: &Snapshot, part: Part) -> BTreeSet<Fact> {
    let groups: Vec<(String, Vec<String>)> = match part {
        Part::Api => {
            let versions = read(snapshot, &DiscoveryPath::Api);
            let versions = list(&versions, "versions").iter();
            vec![(String::new(), versions.map(|v| v.as_str().unwrap().to_owned()).collect())]
        }
        Part::Apis => list(&read(snapshot, &DiscoveryPath::Apis), "groups")
            .iter()
            .map(|entry| {
                let group = DiscoveryPath::Group(text(entry, "name").into());
                assert_eq!(read(snapshot, &group)["versions"], entry["versions"]);
                let versions = list(entry, "versions").iter();
                let versions = versions.map(|version| text(version, "version").to_owned());
                (text(entry, "name").to_owned(), versions.collect())
            })
            .collect(),
    };
    let mut facts = BTreeSet::new();
    for (group, versions) in groups {
        for version in versions {
            let path = vec![group.clone(), version.clone()];
            let document = DiscoveryPath::GroupVersion(group.clone().into(), version.into());
            for resource in list(&read(snapshot, &document), "resources") {
                let mut path = path.clone();
                let name = text(resource, "name");
                path.push(name.split('/').next().unwrap().to_owned());
                if let Some((_, subresource)) = name.split_once('/') {
                    path.extend(["subresource".to_owned(), subresource.to_owned()]);
                }
                for verb in list(resource, "verbs") {
                    let mut fact = path.clone();
                    fact.extend(["verb".to_owned(), verb.as_str().unwrap().to_owned()]);
                    facts.insert(fact);
                }
            }
            facts.insert(path);
        }
        if part == Part::Apis {
            facts.insert(vec![group]);
        }
    }
    facts
}

fn read(snapshot: &Snapshot, path: &DiscoveryPath<'_>) -> Value {
    let document = snapshot.document(path, Form::Legacy).expect("a document");
    serde_json::from_slice(&document.json.body).expect("JSON")
}

/// Groups, versions and verbs. Entries without a verb are not compared; and the legacy `/api` cannot
/// show a core group without versions.
fn visible_to_older_clients(facts: BTreeSet<Fact>) -> BTreeSet<Fact> {
    let visible = |fact: &Fact| {
        fact.len() <= 2 && *fact != [""] || fact.iter().rev().nth(1).is_some_and(|s| s == "verb")
    };
    facts.into_iter().filter(visible).collect()
}
