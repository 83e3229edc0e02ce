//! The merge of the discovery documents of up to four servers: every gateway must write the same bytes,
//! in whatever order it heard of the members, and whichever server is local.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mvp_core::discovery::merge::merge;
use mvp_core::discovery::negotiate::Form;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::{Member, MemberKind, PerDocument, Presence, Seen, View};
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::{Inputs, Policy};
use mvp_core::{Snapshot, Timestamp};

use super::seeds;
use crate::input::{Input, joined};
use crate::target::{Target, lines};

pub const TARGET: Target = Target { name: "merge", run, seeds, words: seeds::WORDS };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let turn = input.below(4);
    let documents: Vec<&[u8]> = (0..4).map(|_| input.part()).collect();
    let lists: Vec<Arc<GroupList>> =
        documents.iter().filter_map(|document| parse(Part::Apis, document)).collect();
    if lists.is_empty() {
        return;
    }
    let merged = merge(lists.iter().map(|list| &**list));
    let text = merged.to_aggregated_json("v2");
    let again = parse(Part::Apis, &text).unwrap_or_else(|| panic!("{text:?}"));
    assert_eq!(again.to_aggregated_json("v2"), text);
    assert_eq!(merge([&merged, &merged]).to_aggregated_json("v2"), text);
    // Nothing that a server lists is lost.
    for list in &lists {
        for group in &list.groups {
            let found =
                merged.group(&group.name).unwrap_or_else(|| panic!("{} is lost", group.name));
            for version in &group.versions {
                let found = found.versions.iter().find(|other| other.name == version.name);
                let found = found.unwrap_or_else(|| panic!("{} is lost", version.name));
                for resource in &version.resources {
                    let same = found.resources.iter().find(|other| other.name == resource.name);
                    let same = same.unwrap_or_else(|| panic!("{} is lost", resource.name));
                    assert_eq!(same.verbs.union(resource.verbs), same.verbs);
                }
            }
        }
    }
    let names = ["a", "b", "c", "d"];
    let members: Vec<Member> =
        names.iter().zip(&lists).map(|(name, list)| member(name, list)).collect();
    let mut turned = members.clone();
    turned.rotate_left(turn % members.len());
    turned.reverse();
    let local = Arc::clone(&turned[0].id);
    let one = snapshot(members, Some("a".into()), None);
    let other = snapshot(turned.clone(), Some(local), None);
    // A snapshot that is built on an earlier one, of fewer members.
    let fewer = snapshot(turned[..1].to_vec(), None, None);
    let later = snapshot(turned, None, Some(&fewer));
    for form in [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy] {
        for path in paths(&merged) {
            let document = |snapshot: &Snapshot| {
                let document = snapshot.document(&path, form)?;
                Some((document.json.body.clone(), document.etag.clone()))
            };
            assert_eq!(document(&one), document(&other), "{path:?} {form:?}");
            assert_eq!(document(&one), document(&later), "{path:?} {form:?}");
        }
    }
}

fn paths(merged: &GroupList) -> Vec<DiscoveryPath<'static>> {
    let mut paths = vec![DiscoveryPath::Apis];
    for group in merged.groups.iter().take(8) {
        let name = || group.name.to_string().into();
        paths.push(DiscoveryPath::Group(name()));
        let versions = group.versions.iter().take(8).map(|version| version.name.to_string());
        paths.extend(versions.map(|version| DiscoveryPath::GroupVersion(name(), version.into())));
    }
    paths
}

pub fn parse(part: Part, document: &[u8]) -> Option<Arc<GroupList>> {
    let source = Source { server: "apiserver-a", document: part.path() };
    let document = Bytes::copy_from_slice(document);
    let parsed = GroupList::parse(source, part, document, &Limits::default()).ok()?;
    Some(Arc::new(parsed.value))
}

pub fn now() -> Timestamp {
    Timestamp::after_start(Duration::from_secs(100))
}

pub fn seen(list: &Arc<GroupList>) -> Seen {
    Seen { list: Arc::clone(list), confirmed: now() }
}

pub fn member(id: &str, apis: &Arc<GroupList>) -> Member {
    let api = parse(Part::Api, seeds::CORE.as_bytes()).expect("a document");
    Member {
        id: id.into(),
        kind: MemberKind::Mvp,
        address: Some(format!("{id}:6443").into()),
        presence: Presence::Present,
        joined: Timestamp::default(),
        heard: now(),
        awaited: false,
        view: View {
            api: Some(seen(&api)),
            apis: Some(seen(apis)),
            openapi: None,
            release: None,
            recorded: None,
            asked: PerDocument::default(),
            fetched_in: Duration::ZERO,
        },
    }
}

pub fn snapshot(
    members: Vec<Member>,
    local: Option<Arc<str>>,
    previous: Option<&Snapshot>,
) -> Snapshot {
    let inputs = Inputs {
        members,
        members_known: true,
        local,
        extension_versions: Arc::from([]),
        started: Timestamp::default(),
        now: now(),
        policy: Policy::default(),
    };
    Snapshot::build(inputs, previous)
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for line in lines("crates/mvp-core/tests/fixtures/oracle/merge.jsonl").iter().step_by(4) {
        let servers = line["servers"].as_array().into_iter().flatten();
        let document = |server: &serde_json::Value| {
            let items = &server["items"];
            let head = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;
            format!("{head}\"items\":{items}}}").into_bytes()
        };
        let documents: Vec<Vec<u8>> = servers.map(document).collect();
        let parts: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
        all.push([&[1][..], &joined(&parts)].concat());
    }
    all.retain(|seed| seed.len() < 6000);
    all.push(
        [&[1][..], &joined(&[seeds::AGGREGATED.as_bytes(), seeds::OTHER.as_bytes()])].concat(),
    );
    all
}
