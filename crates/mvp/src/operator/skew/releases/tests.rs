//! Steps from recorded documents of real servers to recorded releases. Expectations are computed from the
//! documents' JSON, not from the code under test.

use std::collections::BTreeSet;

use bytes::Bytes;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use serde_json::Value;

use super::*;
use crate::operator::skew::compare::tests::server;
use crate::operator::skew::server::Answer;

/// What a real server with every API on sent: its documents, and a server that serves them.
fn recorded(version: &str) -> (Value, Server) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../mvp-core/tests/fixtures/recorded");
    let text = std::fs::read_to_string(format!("{folder}/{version}.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut surface = Surface::default();
    for part in Part::ALL {
        let text = document["aggregated"][part.path()].to_string();
        let source = Source { server: version, document: part.path() };
        let parsed = GroupList::parse(source, part, Bytes::from(text), &Limits::default());
        surface.add(&parsed.unwrap().value);
    }
    let (name, release) = (version.to_owned(), Some(version.to_owned()));
    (document, Server { name, release, answer: Answer::Serves(surface), way: None })
}

/// The resources of a document, straight from its JSON.
fn resources(document: &Value) -> BTreeSet<String> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut names = BTreeSet::new();
    for path in ["/api", "/apis"] {
        for group in list(&document["aggregated"][path], "items") {
            let name = text(&group["metadata"], "name");
            for version in list(&group, "versions") {
                for resource in list(&version, "resources") {
                    let version = text(&version, "version");
                    names.insert(format!("{name}/{version}/{}", text(&resource, "resource")));
                }
            }
        }
    }
    names
}

fn name(api: &Api) -> String {
    format!("{}/{}/{}", api.group, api.version, api.resource)
}

fn removed(step: &Step) -> BTreeSet<String> {
    let whole = step.removed.iter().filter(|finding| finding.api.subresource.is_none());
    whole.map(|finding| name(&finding.api)).collect()
}

#[test]
fn a_release_changes_nothing_for_its_own_servers() {
    let (_, server) = recorded("v1.34.10");
    let step = Releases::recorded().step("1.34", &[server]).unwrap();
    assert_eq!((step.added, step.removed), (Vec::new(), Vec::new()));
    // The two versions of the custom resource beside it.
    assert_eq!((step.git_version.as_str(), step.not_judged), ("v1.34.10", 2));
}

#[test]
fn an_upgrade_removes_what_the_newer_server_lacks() {
    let ((old, server), (new, _)) = (recorded("v1.34.10"), recorded("v1.36.4"));
    let step = Releases::recorded().step("v1.36.1", &[server]).unwrap();
    let expected: BTreeSet<String> =
        resources(&old).difference(&resources(&new)).cloned().collect();
    assert!(!expected.is_empty(), "the test needs a removed API");
    assert_eq!(removed(&step), expected);
    assert!(step.removed.iter().all(|finding| finding.kind == Kind::All), "{:?}", step.removed);
    // Every addition is new to the old server, and the new one has it.
    let added: BTreeSet<String> =
        step.added.iter().filter(|api| api.subresource.is_none()).map(name).collect();
    assert!(added.is_subset(&resources(&new)) && added.is_disjoint(&resources(&old)), "{added:?}");
    let policies = "admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    assert!(added.contains(policies), "{added:?}");
}

#[test]
fn an_api_that_is_on_by_flag_stays_on_and_one_that_is_off_stays_off() {
    let releases = Releases::recorded();
    let beta = "admissionregistration.k8s.io/v1beta1";
    let policies = format!("{beta} mutatingadmissionpolicies get,list");
    // 1.34 and 1.35 have it, off by default.
    let on = server("a", "v1.34.10", &[&policies]);
    let step = releases.step("1.35", std::slice::from_ref(&on)).unwrap();
    assert_eq!(removed(&step), BTreeSet::new());
    // It serves no Jobs although 1.34 does by default: they are switched off, not new.
    assert!(!step.added.iter().any(|api| api.resource == "jobs"), "{:?}", step.added);
    // Of a release that is not recorded nothing is known.
    let unknown = Server { release: Some("v1.33.0".to_owned()), ..on };
    let step = releases.step("1.35", &[unknown]).unwrap();
    let kinds: Vec<Kind> = step.removed.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::OffByDefault]);
    assert!(step.added.iter().any(|api| api.resource == "jobs"));
}

#[test]
fn an_api_behind_a_feature_gate_is_not_judged() {
    let releases = Releases::recorded();
    let gated = server("a", "v1.34.10", &["batch/v9 things get,list"]);
    let step = releases.step("1.36", std::slice::from_ref(&gated)).unwrap();
    assert_eq!((removed(&step), step.not_judged), (BTreeSet::new(), 1));
    let old = Server { release: Some("v1.20.0".to_owned()), ..gated };
    let step = releases.step("1.36", &[old]).unwrap();
    assert_eq!((removed(&step).len(), step.not_judged), (1, 0));
}

#[test]
fn an_unknown_release_is_a_usage_error() {
    for version in ["1.20", "latest", ""] {
        let error = Releases::recorded().step(version, &[]).unwrap_err();
        assert!(
            matches!(&error, Mistake::Usage(text) if text.contains("use 1.34, 1.35")),
            "{error}"
        );
    }
}
