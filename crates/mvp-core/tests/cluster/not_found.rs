//! Rows 7, 8, 10 and 11: whether a 404 is true.

use std::sync::Arc;
use std::time::Duration;

use crate::builder::{Cluster, NOW, confirmed_at, member, ready, second, unseen};
use mvp_core::decide::{Asked, Denial};
use mvp_core::discovery::negotiate::Form;
use mvp_core::member::{Member, Presence};
use mvp_core::request::DiscoveryPath;

const THINGS: &str = "GET /apis/a.io/v1/namespaces/x/things";
const ASK: &str = "ask-local: unlisted, refresh unless object 404";
const TRUE_404: &str = "pass-404: confirmed-not-found";
const RECORDED: &str = "refuse: recorded";
const UNCONFIRMED: &str = "refuse: unconfirmed";

fn local() -> Member {
    member("a", "v1.34.0", &["/v1/pods"])
}

#[test]
fn row_7_an_unlisted_request_goes_to_local_and_its_404_is_withheld() {
    let cluster = Cluster::beside([local(), member("b", "v1.36.0", &["/v1/pods"])]);
    assert_eq!(cluster.client(THINGS), ASK);
    assert_eq!(cluster.peer(THINGS), ASK);
    assert_eq!(cluster.marked(THINGS), ASK);
    // The same for a subresource and a version that no member lists.
    let any = "ask-local: unlisted, refresh on 404";
    assert_eq!(cluster.client("GET /api/v1/namespaces/x/pods/y/nosuch"), any);
    assert_eq!(cluster.client("GET /api/v2/namespaces/x/pods"), ASK);
}

#[test]
fn row_7_the_404_is_true_once_every_member_confirmed() {
    let cluster = Cluster::beside([local(), member("b", "v1.36.0", &[])]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
    let alone = Cluster::beside([local()]);
    assert_eq!(alone.denied(THINGS, &[("a", false)]), TRUE_404);
}

/// A source that never reports blocks 404s no longer than a member that never responds.
#[test]
fn row_8_a_404_is_refused_while_members_are_unknown() {
    let mut cluster = Cluster::beside([confirmed_at(local(), 290)]);
    cluster.0.members_known = false;
    let denials = [Denial { member: "a", at: second(290), listed: false }];
    let asked = Asked { arrived: second(290), denials: &denials, ..ready() };
    for (now, expected) in [(300, UNCONFIRMED), (301, TRUE_404)] {
        cluster.0.now = second(now);
        assert_eq!(cluster.asked(THINGS, asked), expected, "{now}");
    }
    cluster.0.now = second(29);
    assert_eq!(cluster.client("GET /apis"), "refuse: starting");
    cluster.0.now = second(30);
    assert_eq!(cluster.client("GET /apis"), "answer: discovery-merged");
}

#[test]
fn row_7_a_refresh_may_find_a_member_that_serves_it() {
    let things = ["a.io/v1/things"];
    let peer = Cluster::beside([local(), member("b", "v1.36.0", &things)]);
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(peer.denied(THINGS, &[("a", false)]), peers);
    // Local began to serve it: it is asked once more.
    let here = Cluster::beside([member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)]);
    let local = "local: served-locally, refresh unless object 404";
    assert_eq!(here.denied(THINGS, &[("a", false)]), local);
    assert_eq!(here.denied(THINGS, &[("a", false), ("a", true)]), peers);
}

#[test]
fn row_8_a_404_is_refused_while_a_member_cannot_confirm() {
    let before = confirmed_at(member("b", "v1.36.0", &[]), NOW - 1);
    let cluster = Cluster::beside([local(), before]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
    let cluster = Cluster::beside([local(), unseen("b")]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
}

#[test]
fn row_8_each_half_is_confirmed_separately() {
    let mut half = member("b", "v1.36.0", &[]);
    half.view.api = None;
    half.joined = second(NOW);
    let cluster = Cluster::beside([local(), half]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
    let core = "GET /api/v1/namespaces/x/things";
    assert_eq!(cluster.denied(core, &[("a", false)]), UNCONFIRMED);
}

#[test]
fn row_8_only_live_members_block_404s() {
    let mut silent = unseen("b");
    silent.heard = second(NOW - 41);
    let mut no_address = unseen("b");
    no_address.address = None;
    let mut left = unseen("b");
    left.presence = Presence::Left;
    let mut forged = unseen("b");
    forged.joined = second(NOW - 301);
    let mut dead = confirmed_at(member("b", "v1.36.0", &[]), NOW - 301);
    dead.heard = second(NOW);
    for harmless in [silent, no_address, left, forged, dead] {
        let cluster = Cluster::beside([local(), harmless.clone()]);
        assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404, "{harmless:?}");
    }
    let mut just_alive = confirmed_at(member("b", "v1.36.0", &[]), NOW - 300);
    just_alive.heard = second(NOW - 40);
    let cluster = Cluster::beside([local(), just_alive]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
}

/// A member that cannot be asked, with recorded resources such as `a.io/v1/things`.
fn recorded(resources: &[&str]) -> Member {
    let mut member = unseen("c");
    member.address = None;
    let records = resources.iter().map(|resource| {
        let steps: Vec<&str> = resource.split('/').collect();
        (steps[0].to_owned(), steps[1].to_owned(), steps[2].to_owned())
    });
    member.view.recorded = Some(Arc::new(records.collect()));
    member
}

#[test]
fn row_8_a_404_is_refused_if_recorded_for_a_member_without_a_view() {
    let things = ["a.io/v1/things", "a.io/v1/others", "/v1/nodes", "b.io/v2/things"];
    let cluster =
        Cluster::beside([local(), member("b", "v1.36.0", &["d.io/v1/x"]), recorded(&things)]);
    // Local may serve it, so it is asked as usual.
    assert_eq!(cluster.client(THINGS), ASK);
    for (request, expected) in [
        (THINGS, RECORDED),
        ("POST /apis/a.io/v1/namespaces/x/things", RECORDED),
        ("GET /apis/a.io/v1/namespaces/x/things/y/status", RECORDED),
        ("GET /apis/b.io/v2/things", RECORDED),
        ("GET /api/v1/nodes", RECORDED),
        ("GET /apis/a.io/v1", RECORDED),
        ("GET /apis/a.io", RECORDED),
        ("GET /openapi/v3/apis/a.io/v1", RECORDED),
        ("GET /apis/b.io/v1/things", TRUE_404),
        ("GET /apis/a.io/v1/namespaces/x/thing", TRUE_404),
        ("GET /apis/a.io/v2", TRUE_404),
        ("GET /apis/a", TRUE_404),
        ("GET /api/v1/things", TRUE_404),
        ("GET /api/v2", TRUE_404),
    ] {
        assert_eq!(cluster.denied(request, &[("a", false)]), expected, "{request}");
    }
    // A 404 that may be a backend's cannot be withheld, so the request is refused at once.
    let proxy = "GET /apis/a.io/v1/namespaces/x/things/y/proxy";
    assert_eq!(cluster.client(proxy), RECORDED);
    assert_eq!(
        cluster.client("GET /apis/a.io/v2/namespaces/x/things/y/proxy"),
        "ask-local: unlisted"
    );
}

#[test]
fn row_7_a_view_overrides_a_record() {
    let recorded = recorded(&["a.io/v1/things", "/v1/pods"]);
    // The member's own view counts, however old.
    let mut seen = confirmed_at(member("c", "v1.36.0", &["a.io/v1/others"]), NOW - 301);
    seen.view.recorded = recorded.view.recorded.clone();
    let cluster = Cluster::beside([local(), seen.clone()]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
    // Each half counts separately.
    seen.view.apis = None;
    seen.joined = second(NOW - 301);
    let cluster = Cluster::beside([local(), seen]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), RECORDED);
    // A record does not count for a listed resource: it has no verbs and no subresources.
    let cluster = Cluster::beside([local(), recorded.clone()]);
    let nosuch = "GET /api/v1/namespaces/x/pods/y/nosuch";
    assert_eq!(cluster.denied(nosuch, &[("a", false)]), TRUE_404);
    // The request goes to a member that lists it, never to one with only a record.
    let cluster =
        Cluster::beside([local(), member("b", "v1.36.0", &["a.io/v1/things"]), recorded.clone()]);
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), peers);
    // The same without a local server.
    let cluster = Cluster::before([member("b", "v1.36.0", &[]), recorded]);
    assert_eq!(cluster.denied(THINGS, &[("b", false)]), RECORDED);
}

#[test]
fn recorded_resources_are_not_in_documents() {
    let with = Cluster::beside([local(), recorded(&["a.io/v1/things"])]).snapshot();
    let without = Cluster::beside([local()]).snapshot();
    for path in [DiscoveryPath::Api, DiscoveryPath::Apis] {
        let [with, without] = [&with, &without].map(|snapshot| {
            let document = snapshot.document(&path, Form::AggregatedV2);
            document.map(|document| (&document.json.body, &document.etag))
        });
        assert!(with.is_some() && with == without, "{path:?}");
    }
}

#[test]
fn row_8_the_blocking_time_is_configurable() {
    let mut cluster = Cluster::beside([local(), confirmed_at(member("b", "", &[]), NOW - 20)]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
    cluster.0.policy.blocks_for = Duration::from_secs(10);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
}

#[test]
fn row_8_a_404_is_refused_while_local_has_no_view() {
    let cluster = Cluster::beside([unseen("a"), member("b", "v1.36.0", &["/v1/pods"])]);
    let ask = "ask-local: local-view-unknown, refresh unless object 404";
    assert_eq!(cluster.client(THINGS), ask);
    // A peer is asked only after local denied it, because local may serve it.
    let pods = "GET /api/v1/namespaces/x/pods";
    assert_eq!(cluster.client(pods), ask);
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(cluster.denied(pods, &[("a", false)]), peers);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), "refuse: local-view-unknown");
}

#[test]
fn row_8_local_must_confirm_its_own_404() {
    // A peer denied it and no longer lists it; local was confirmed before the request.
    let quiet = confirmed_at(local(), NOW - 10);
    let cluster = Cluster::beside([quiet, member("b", "v1.36.0", &[])]);
    assert_eq!(cluster.denied(THINGS, &[("b", false)]), ASK);
    assert_eq!(cluster.denied(THINGS, &[("b", false), ("a", false)]), TRUE_404);
}

#[test]
fn row_10_a_write_that_local_denies_goes_to_no_older_peer() {
    let things = ["a.io/v1/things"];
    let patch = "PATCH /apis/a.io/v1/namespaces/x/things/y";
    let older = [member("a", "v1.36.0", &things), member("b", "v1.34.0", &things)];
    assert_eq!(Cluster::beside(older).denied(patch, &[("a", true)]), "refuse: view-suspect");
    let newer = [member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)];
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(Cluster::beside(newer).denied(patch, &[("a", true)]), peers);
}

#[test]
fn row_10_local_denies_a_listed_request() {
    let things = ["a.io/v1/things"];
    let alone = Cluster::beside([member("a", "v1.34.0", &things)]);
    assert_eq!(alone.denied(THINGS, &[("a", true)]), "refuse: view-suspect");
    let two = Cluster::beside([member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)]);
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(two.denied(THINGS, &[("a", true)]), peers);
    // After the refresh, local no longer lists it.
    assert_eq!(Cluster::beside([local()]).denied(THINGS, &[("a", true)]), TRUE_404);
}

#[test]
fn row_11_a_peer_denies_a_listed_request() {
    let things = ["a.io/v1/things"];
    let cluster = Cluster::beside([
        local(),
        member("b", "v1.36.0", &things),
        member("c", "v1.36.0", &things),
    ]);
    let next = "peers c: served-by-peer, next unless object 404";
    assert_eq!(cluster.denied(THINGS, &[("b", true)]), next);
    assert_eq!(cluster.denied(THINGS, &[("b", true), ("c", true)]), "refuse: view-suspect");
}

#[test]
fn a_confirmation_that_began_before_the_denial_gives_no_second_chance() {
    let things = ["a.io/v1/things"];
    let cluster = Cluster::beside([member("a", "v1.34.0", &things)]);
    let denials = [Denial { member: "a", at: second(NOW + 1), listed: false }];
    let asked = Asked { denials: &denials, ..ready() };
    assert_eq!(cluster.asked(THINGS, asked), "refuse: nobody-reachable");
}

#[test]
fn not_founds_of_kubelets_backends_and_extension_servers_pass_through() {
    let pod = |subresource: &str| format!("/v1/pods/{subresource}");
    for subresource in ["exec", "attach", "portforward", "proxy"] {
        let here = member("a", "v1.34.0", &["/v1/pods", &pod(subresource), "/v1/pods/log"]);
        let cluster = Cluster::beside([here, member("b", "v1.36.0", &[])]);
        let of = |subresource| format!("POST /api/v1/namespaces/x/pods/y/{subresource}");
        assert_eq!(cluster.client(&of(subresource)), "local: served-locally");
        // The server itself writes the 404 for a container without a log.
        let log = "local: served-locally, refresh unless object 404";
        assert_eq!(cluster.client(&of("log")), log);
    }
    let pods = ["/v1/pods", "/v1/pods/proxy"];
    let metrics = ["metrics.k8s.io/v1/pods"];
    let here = member("a", "v1.34.0", &[pods[0], pods[1], metrics[0]]);
    let proxy = "GET /api/v1/namespaces/x/pods/y/proxy/some/path";
    let usage = "GET /apis/metrics.k8s.io/v1/namespaces/x/pods";
    let mut cluster = Cluster::beside([here, member("b", "v1.36.0", &[])]);
    assert_eq!(cluster.client(proxy), "local: served-locally");
    assert_eq!(cluster.client(usage), "local: served-locally, refresh unless object 404");
    cluster.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(cluster.client(usage), "local: served-locally");

    let mut there = Cluster::beside([local(), member("b", "v1.36.0", &[pods[1], metrics[0]])]);
    there.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(there.client(proxy), "peers b: served-by-peer");
    assert_eq!(there.client(usage), "peers b: served-by-peer");

    // No member lists it: local's 404 passes through, unless a member may still turn out to serve it.
    let mut nowhere = Cluster::beside([local(), member("b", "v1.36.0", &[])]);
    nowhere.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(nowhere.client(usage), "ask-local: unlisted");
    let mut unknown = Cluster::beside([local(), unseen("b")]);
    unknown.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(unknown.client(usage), UNCONFIRMED);
}
