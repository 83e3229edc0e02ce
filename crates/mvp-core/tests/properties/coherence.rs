//! Coherence: requests that a document lists are routed, and every gateway has the same OpenAPI index.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use mvp_core::decide::{LocalHealth, Origin, Reason};
use mvp_core::discovery::Part;
use mvp_core::discovery::negotiate::Form;
use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot, decide};
use proptest::prelude::*;
use serde_json::Value;

use crate::clusters::{NOW, Server, clusters};
use crate::config;
use crate::contents::{facts, find_resource, routable, text};
use crate::requests::Circumstances;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn listed_resources_are_routed(cluster in clusters()) {
        let snapshot = cluster.snapshot();
        let client = Circumstances {
            origin: Origin::Client,
            nopeer: false,
            arrived: NOW,
            local: LocalHealth::Ready,
            denials: Vec::new(),
        };
        for (method, path, query) in promises(&snapshot) {
            let info = RequestInfo::parse(method, &path, query);
            let decision = decide(&info, &snapshot, client.asked(&[]));
            let unknown = matches!(
                decision.reason, Reason::Unlisted | Reason::ConfirmedNotFound | Reason::VerbUnlisted
            );
            prop_assert!(!unknown, "{} {} is {:?}", method, path, decision.reason);
        }
    }

    #[test]
    fn openapi_prefers_the_member_that_serves_most(cluster in clusters()) {
        let snapshot = cluster.snapshot();
        let keys = |server: &Server| -> Vec<String> {
            let index = server.member.view.openapi.iter().flat_map(|index| index.entries());
            index.map(|(key, _)| key.to_string()).collect()
        };
        let all: BTreeSet<String> = cluster.servers.iter().flat_map(keys).collect();
        let index = snapshot.openapi().index().map(|index| {
            serde_json::from_slice::<Value>(&index.json.body).expect("JSON")
        });
        let named = index.as_ref().and_then(|index| index["paths"].as_object());
        let named: BTreeSet<String> = named.into_iter().flatten().map(|(key, _)| key.clone()).collect();
        prop_assert_eq!(&named, &all);

        for key in &all {
            let mut having: Vec<&Server> =
                cluster.servers.iter().filter(|server| keys(server).contains(key)).collect();
            having.sort_by_key(|server| {
                let member = &server.member;
                (Reverse(amount(server, key)), Reverse(member.view.release), member.id.clone())
            });
            let hash = |server: &Server| {
                let index = server.member.view.openapi.as_ref().expect("an index");
                index.hash(key).map(str::to_owned)
            };
            let best = hash(having[0]);
            let entry = snapshot.openapi().entry(key).expect("an entry");
            prop_assert_eq!(entry.hash(), best.as_deref());
            let holders: Vec<(&str, bool)> =
                entry.holders().iter().map(|holder| (&*holder.member, holder.same)).collect();
            prop_assert_eq!(holders[0], (&*having[0].member.id, true));
            for server in &having {
                let same = server.member.id == having[0].member.id
                    || (best.is_some() && hash(server) == best);
                prop_assert!(holders.contains(&(&*server.member.id, same)));
            }
        }
    }
}

/// Every request that a merged document lists: method, path, query.
fn promises(snapshot: &Snapshot) -> Vec<(&'static str, String, Option<&'static str>)> {
    let mut promises = Vec::new();
    for part in Part::ALL {
        let path = if part == Part::Api { DiscoveryPath::Api } else { DiscoveryPath::Apis };
        let document = snapshot.document(&path, Form::AggregatedV2).expect("a document");
        let document: Value = serde_json::from_slice(&document.json.body).expect("JSON");
        for fact in facts(&document) {
            // Servers read `namespaces/one/exec` as `exec` in the namespace `one`.
            if fact.get(2).is_some_and(|resource| resource == "namespaces") {
                continue;
            }
            // [group, version, resource, "subresource", name, "verb", verb], the subresource optional.
            let (subresource, verb) = match &fact[..] {
                [_, _, _, word, verb] if word == "verb" => ("", verb),
                [_, _, _, _, subresource, word, verb] if word == "verb" => {
                    (subresource.as_str(), verb)
                }
                _ => continue,
            };
            let resource = find_resource(&document, &fact[0], &fact[1], &fact[2]).expect("listed");
            let prefix = match fact[0].as_str() {
                "" => format!("/api/{}", fact[1]),
                group => format!("/apis/{group}/{}", fact[1]),
            };
            let namespace = match text(resource, "scope") {
                "Namespaced" => "/namespaces/default",
                _ => "",
            };
            let all = format!("{prefix}{namespace}/{}", fact[2]);
            let (one, all) = match subresource {
                "" => (format!("{all}/one"), all),
                subresource => {
                    let one = format!("{all}/one/{subresource}");
                    (one.clone(), one)
                }
            };
            promises.extend(match verb.as_str() {
                "get" => Some(("GET", one, None)),
                "list" if subresource.is_empty() => Some(("GET", all, None)),
                "watch" if subresource.is_empty() => Some(("GET", all, Some("watch=true"))),
                "create" => Some(("POST", all, None)),
                "update" => Some(("PUT", one, None)),
                "patch" => Some(("PATCH", one, None)),
                "delete" => Some(("DELETE", one, None)),
                "deletecollection" if subresource.is_empty() => Some(("DELETE", all, None)),
                _ => None,
            });
        }
    }
    promises
}

/// How many of the resources, subresources and verbs that an OpenAPI document describes a member has.
fn amount(server: &Server, key: &str) -> usize {
    let steps: Vec<&str> = key.split('/').collect();
    let (group, version) = match steps[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return 0,
    };
    let Some(document) = server.document(Part::of_group(group)) else { return 0 };
    let routable = routable(facts(document));
    let within = |fact: &&Vec<String>| fact.len() > 2 && fact[0] == group && fact[1] == version;
    routable.iter().filter(within).count()
}
