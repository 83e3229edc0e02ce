//! Bad documents: each is rejected, or repaired and reported. The error names the server and the place
//! in the document, and the documents of other servers still count.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod hostile;
mod rejected;
mod repaired;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mvp_core::decide::{Action, Asked, LocalHealth, Origin};
use mvp_core::discovery::negotiate::Form;
use mvp_core::discovery::{DocumentError, GroupList, Limits, Parsed, Part, Source};
use mvp_core::member::{Member, MemberKind, Presence, Seen, View};
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::{Inputs, Policy};
use mvp_core::{RequestInfo, Snapshot, Timestamp, decide};

const SOURCE: Source<'_> = Source { server: "apiserver-bad", document: "/apis" };
const NOW: Timestamp = Timestamp::after_start(Duration::from_secs(1000));
const GOOD: &str = r#"{"metadata":{"name":"good.io"},"versions":[{"version":"v1","resources":[{"resource":"goods","scope":"Cluster","verbs":["get"]}]}]}"#;

fn parse(document: impl Into<Bytes>) -> Result<Parsed<GroupList>, DocumentError> {
    GroupList::parse(SOURCE, Part::Apis, document.into(), &Limits::default())
}

/// A document with these items.
fn with_items(items: &str) -> String {
    let kind = r#""kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2""#;
    format!(r#"{{{kind},"items":{items}}}"#)
}

/// A document with a good group, then one with these fields.
fn with_group(fields: &str) -> String {
    with_items(&format!(r#"[{GOOD},{{"metadata":{{"name":"bad.io"}},{fields}}}]"#))
}

fn with_resource(fields: &str) -> String {
    let resource = format!(r#"{{"resource":"bads",{fields}}}"#);
    with_group(&format!(r#""versions":[{{"version":"v1","resources":[{resource}]}}]"#))
}

fn with_subresource(fields: &str) -> String {
    with_resource(&format!(r#""subresources":[{{"subresource":"sub",{fields}}}]"#))
}

/// Checks that the text of an error has the server, the document, the place and the problem.
fn check_text(name: &str, error: &DocumentError, place: &str, problem: &str) {
    let text = error.to_string();
    let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
    let opening = format!("server \"apiserver-bad\": document /apis{at}: ");
    assert!(text.starts_with(&opening), "{name}: {text}");
    assert!(text[opening.len()..].contains(problem), "{name}: {text}, expected {problem:?}");
    assert!(text.len() < 1000, "{name}: {} bytes of text", text.len());
}

/// Checks that a cluster in which one member has this document, or none, still merges and routes the
/// others.
fn check_cluster(name: &str, list: Option<GroupList>) {
    let seen = |list: GroupList| Seen { list: Arc::new(list), confirmed: NOW };
    let good = |group: &str| seen(parse(with_items(&format!("[{group}]"))).expect("good").value);
    let member = |id: &str, apis| Member {
        id: id.into(),
        kind: MemberKind::Mvp,
        address: Some("10.0.0.1:6443".into()),
        presence: Presence::Present,
        joined: NOW,
        heard: NOW,
        awaited: true,
        view: View { api: Some(seen(GroupList::default())), apis, ..View::default() },
    };
    let other = GOOD.replace("good.io", "other.io");
    let inputs = Inputs {
        members_known: true,
        members: vec![
            member("apiserver-a", Some(good(&other))),
            member("apiserver-bad", list.map(seen)),
            member("apiserver-c", Some(good(GOOD))),
        ],
        local: Some("apiserver-a".into()),
        extension_versions: Arc::default(),
        started: Timestamp::default(),
        now: NOW,
        policy: Policy::default(),
    };
    let snapshot = Snapshot::build(inputs, None);

    for form in [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy] {
        let document = snapshot.document(&DiscoveryPath::Apis, form).expect("a merged document");
        let merged: serde_json::Value = serde_json::from_slice(&document.json.body).expect(name);
        let merged = merged.to_string();
        assert!(merged.contains("good.io") && merged.contains("other.io"), "{name}: {merged}");
    }
    let path = DiscoveryPath::GroupVersion("good.io".into(), "v1".into());
    let resources = snapshot.document(&path, Form::Legacy).expect(name);
    assert!(String::from_utf8_lossy(&resources.json.body).contains("goods"), "{name}");
    let asked = Asked {
        origin: Origin::Client,
        nopeer: false,
        arrived: NOW,
        local: LocalHealth::Ready,
        denials: &[],
    };
    let request = RequestInfo::parse("GET", "/apis/good.io/v1/goods/one", None);
    let Action::Peers(peers) = decide(&request, &snapshot, asked).action else {
        panic!("{name}: not routed");
    };
    assert!(peers.iter().any(|peer| &*peer.id == "apiserver-c"), "{name}");
    let request = RequestInfo::parse("GET", "/apis/other.io/v1/goods/one", None);
    let local = decide(&request, &snapshot, asked).action;
    assert!(matches!(local, Action::Local { nopeer: false }), "{name}: {local:?}");
}

fn check_rejected(name: &str, document: impl Into<Bytes>, place: &str, problem: &str) {
    match parse(document) {
        Err(error) => check_text(name, &error, place, problem),
        Ok(parsed) => panic!("{name}: parsed as {:?}", parsed.value),
    }
    check_cluster(name, None);
}
