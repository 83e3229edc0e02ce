//! Merged documents. The scenarios of Kubernetes' own tests are among them: a peer adds nothing, a
//! resource, a version, a group, a verb, a subresource; groups in another order; no peers; an empty
//! local server; the same bytes from every member; an ETag that changes only with the content.

use std::sync::Arc;

use crate::builder::{Cluster, NOW, confirmed_at, member, second, unseen};
use mvp_core::Snapshot;
use mvp_core::discovery::negotiate::Form;
use mvp_core::member::{Member, Presence, ViewState};
use mvp_core::request::DiscoveryPath;
use mvp_core::snapshot::Document;
use serde_json::Value;

/// The entries of an aggregated document in order: `group/version/resource/subresource verb…`.
fn listed(document: &Document) -> Vec<String> {
    let document: Value = serde_json::from_slice(&document.json.body).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    for group in each(&document["items"]) {
        let group_name = text(&group["metadata"]["name"]);
        for version in each(&group["versions"]) {
            for resource in each(&version["resources"]) {
                let name = [&group_name, &text(&version["version"]), &text(&resource["resource"])]
                    .map(String::as_str)
                    .join("/");
                let verbs: Vec<String> = each(&resource["verbs"]).iter().map(text).collect();
                lines.push(format!("{name} {}", verbs.join(",")));
                for subresource in each(&resource["subresources"]) {
                    lines.push(format!("{name}/{}", text(&subresource["subresource"])));
                }
            }
        }
    }
    lines
}

fn apis(snapshot: &Snapshot) -> &Document {
    snapshot.document(&DiscoveryPath::Apis, Form::AggregatedV2).expect("always there")
}

fn merged<const N: usize>(members: [Member; N]) -> Vec<String> {
    listed(apis(&Cluster::beside(members).snapshot()))
}

const GET: &str = "apps/v1/deployments:get";

#[test]
fn no_peers() {
    assert_eq!(merged([member("a", "", &[GET])]), ["apps/v1/deployments get"]);
}

#[test]
fn a_peer_adds_nothing() {
    let members = [member("a", "", &[GET]), member("b", "", &[GET])];
    assert_eq!(merged(members), ["apps/v1/deployments get"]);
}

#[test]
fn a_peer_adds_a_resource_a_version_a_group() {
    let resource = [member("a", "", &[GET]), member("b", "", &[GET, "apps/v1/daemonsets:get"])];
    assert_eq!(merged(resource), ["apps/v1/deployments get", "apps/v1/daemonsets get"]);
    let version = [member("a", "", &[GET]), member("b", "", &["apps/v2/deployments:get"])];
    assert_eq!(merged(version), ["apps/v1/deployments get", "apps/v2/deployments get"]);
    let group = [member("a", "", &[GET]), member("b", "", &["batch/v1/jobs:get"])];
    assert_eq!(merged(group), ["apps/v1/deployments get", "batch/v1/jobs get"]);
}

#[test]
fn a_peer_adds_a_verb_or_a_subresource() {
    let verb = [member("a", "", &[GET]), member("b", "", &["apps/v1/deployments:list"])];
    assert_eq!(merged(verb), ["apps/v1/deployments get,list"]);
    let subresource =
        [member("a", "", &[GET]), member("b", "", &[GET, "apps/v1/deployments/scale:get"])];
    assert_eq!(merged(subresource), ["apps/v1/deployments get", "apps/v1/deployments/scale"]);
}

#[test]
fn a_peer_with_its_groups_in_another_order() {
    let (x, y, z) = ("x.io/v1/a:get", "y.io/v1/a:get", "z.io/v1/a:get");
    // Names that a list orders keep their order; the others are sorted.
    let agree = [member("a", "", &[z, x]), member("b", "", &[z, y])];
    assert_eq!(merged(agree), ["z.io/v1/a get", "x.io/v1/a get", "y.io/v1/a get"]);
    // A list with all names is the result; the first one, if there are several.
    let contradict = [member("a", "", &[z, x, y]), member("b", "", &[x, y, z])];
    assert_eq!(merged(contradict), ["z.io/v1/a get", "x.io/v1/a get", "y.io/v1/a get"]);
    // Otherwise, a contradiction sorts all names.
    let cycle = [member("a", "", &[z, y]), member("b", "", &[y, z]), member("c", "", &[x])];
    assert_eq!(merged(cycle), ["x.io/v1/a get", "y.io/v1/a get", "z.io/v1/a get"]);
}

#[test]
fn an_empty_local_server_and_several_peers() {
    let members = [
        member("a", "", &[]),
        member("b", "", &[GET]),
        member("c", "", &["batch/v1/jobs:get"]),
        unseen("d"),
    ];
    assert_eq!(merged(members), ["apps/v1/deployments get", "batch/v1/jobs get"]);
}

#[test]
fn every_member_has_the_same_bytes_and_etags() {
    let members = || {
        [
            member("c", "v1.36.0", &["/v1/pods", "batch/v1/jobs", "apps/v1/deployments/scale"]),
            member("a", "v1.34.0", &["/v1/pods", "apps/v1/deployments"]),
            member("b", "v1.35.0", &["apps/v2/deployments", GET]),
        ]
    };
    let [c, a, b] = members();
    let standpoints = [
        Cluster::beside(members()).snapshot(),
        Cluster::beside([a.clone(), b.clone(), c.clone()]).snapshot(),
        Cluster::before([b, c, a]).snapshot(),
    ];
    let paths = [
        DiscoveryPath::Api,
        DiscoveryPath::Apis,
        DiscoveryPath::Group("apps".into()),
        DiscoveryPath::GroupVersion("apps".into(), "v1".into()),
        DiscoveryPath::GroupVersion("".into(), "v1".into()),
    ];
    for path in &paths {
        for form in [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy] {
            let tags: Vec<_> = standpoints
                .iter()
                .map(|snapshot| snapshot.document(path, form).map(|d| (&d.json.body, &d.etag)))
                .collect();
            assert!(tags.windows(2).all(|pair| pair[0] == pair[1]), "{path:?} {form:?}");
            let root = matches!(path, DiscoveryPath::Api | DiscoveryPath::Apis);
            assert_eq!(tags[0].is_some(), root || form == Form::Legacy, "{path:?} {form:?}");
        }
    }
}

#[test]
fn the_etag_changes_only_with_the_content() {
    let first = Cluster::beside([member("a", "", &[GET]), member("b", "", &[])]);
    let snapshot = first.snapshot();
    let tag = apis(&snapshot).etag.clone();
    assert_eq!(tag.len(), 130, "SHA-512 in upper-case hexadecimal digits, and quotes");
    assert!(
        tag.trim_matches('"').bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b))
    );

    // Parsed again, with another member, another local server and later: same content, same ETag.
    let again = Cluster::beside([member("b", "", &[GET]), member("z", "", &[])]);
    assert_eq!(apis(&again.snapshot()).etag, tag);
    let changed = Cluster::beside([member("a", "", &[GET]), member("b", "", &["b.io/v1/x:get"])]);
    assert_ne!(apis(&changed.snapshot()).etag, tag);
}

#[test]
fn a_custom_resource_is_listed_until_its_last_server_drops_it() {
    let crd = ["apps/v1/deployments:get", "example.com/v1/widgets:get"];
    let nowhere = Cluster::beside([member("a", "", &crd[..1]), member("b", "", &crd[..1])]);
    let somewhere = Cluster::beside([member("a", "", &crd[..1]), member("b", "", &crd)]);
    let first = nowhere.snapshot();
    let second = Snapshot::build(somewhere.0.clone(), Some(&first));
    let third = Snapshot::build(nowhere.0.clone(), Some(&second));
    assert_eq!(listed(apis(&first)), ["apps/v1/deployments get"]);
    let both = ["apps/v1/deployments get", "example.com/v1/widgets get"];
    assert_eq!(listed(apis(&second)), both);
    assert_eq!(listed(apis(&third)), ["apps/v1/deployments get"]);
}

#[test]
fn a_member_that_is_down_or_left_keeps_its_apis_listed() {
    let mut left = member("b", "", &["batch/v1/jobs:get"]);
    left.presence = Presence::Left;
    let down = confirmed_at(member("c", "", &["policy/v1/budgets:get"]), 1);
    let all = ["apps/v1/deployments get", "batch/v1/jobs get", "policy/v1/budgets get"];
    assert_eq!(merged([member("a", "", &[GET]), left, down]), all);
}

#[test]
fn unchanged_parts_are_reused() {
    let cluster =
        Cluster::beside([member("a", "v1.34.0", &["/v1/pods", GET]), member("b", "", &[])]);
    let first = cluster.snapshot();

    // A round in which every member answers "not modified".
    let mut inputs = cluster.0.clone();
    inputs.now = second(NOW + 1);
    inputs.members = inputs.members.into_iter().map(|m| confirmed_at(m, NOW + 1)).collect();
    let second_round = Snapshot::build(inputs.clone(), Some(&first));
    assert_eq!(apis(&first).json.body.as_ptr(), apis(&second_round).json.body.as_ptr());

    // One member changed one of its documents: the other half is reused.
    let changed = member("b", "", &["batch/v1/jobs:get"]);
    inputs.members[1].view.apis = changed.view.apis;
    let third_round = Snapshot::build(inputs, Some(&second_round));
    let api = |snapshot: &Snapshot| {
        let document = snapshot.document(&DiscoveryPath::Api, Form::AggregatedV2);
        document.expect("always there").json.body.as_ptr()
    };
    assert_eq!(api(&first), api(&third_round));
    assert_ne!(apis(&first).etag, apis(&third_round).etag);
    assert_eq!(listed(apis(&third_round)), ["apps/v1/deployments get", "batch/v1/jobs get"]);
}

#[test]
fn a_snapshot_has_the_state_of_each_view() {
    let mut cluster = Cluster::beside([
        member("a", "v1.34.0", &[]),
        confirmed_at(member("b", "v1.36.0", &[]), NOW - 6),
        unseen("c"),
    ]);
    // Of two entries with the same ID, the one heard from last counts.
    let mut older = member("b", "v1.30.0", &[]);
    older.heard = second(NOW - 9);
    cluster.0.members.insert(0, older);
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.view_state("a"), Some(ViewState::Fresh));
    assert_eq!(snapshot.view_state("b"), Some(ViewState::Stale(std::time::Duration::from_secs(6))));
    assert_eq!(snapshot.view_state("c"), Some(ViewState::Unknown));
    assert_eq!(snapshot.view_state("d"), None);
    assert_eq!(snapshot.local().map(|member| Arc::clone(&member.id)), Some("a".into()));
    let blocking: Vec<&str> =
        snapshot.blocking(mvp_core::discovery::Part::Apis).map(|m| &*m.id).collect();
    assert_eq!(blocking, ["b", "c"]);
}
