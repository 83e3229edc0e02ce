//! Rows 7, 8, 10 and 11: is a 404 the truth?

use std::sync::Arc;
use std::time::Duration;

use crate::builder::{Cluster, NOW, confirmed_at, member, ready, second, unseen};
use mvp_core::decide::{Asked, Denial};
use mvp_core::discovery::negotiate::Form;
use mvp_core::member::{Member, Presence};
use mvp_core::request::DiscoveryPath;

const THINGS: &str = "GET /apis/a.io/v1/namespaces/x/things";
const ASK: &str = "ask-local: unlisted, refresh on unrouted 404";
const TRUE_404: &str = "pass-404: confirmed-not-found";
const RECORDED: &str = "refuse: recorded";
const UNCONFIRMED: &str = "refuse: unconfirmed";

fn local() -> Member {
    member("a", "v1.34.0", &["/v1/pods"])
}

#[test]
fn row_7_nobody_lists_it_so_local_is_asked_but_not_believed() {
    let cluster = Cluster::beside([local(), member("b", "v1.36.0", &["/v1/pods"])]);
    assert_eq!(cluster.client(THINGS), ASK);
    assert_eq!(cluster.peer(THINGS), ASK);
    assert_eq!(cluster.marked(THINGS), ASK);
    // A subresource, a version and the old proxy prefix that nobody lists are no different.
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

/// The one who serves it may not have been named yet; a source that never says anything holds up
/// no longer than a member that never answers.
#[test]
fn row_8_while_it_is_not_known_who_the_members_are_no_404_is_true() {
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
fn row_7_the_refresh_may_find_who_serves_it() {
    let things = ["a.io/v1/things"];
    let peer = Cluster::beside([local(), member("b", "v1.36.0", &things)]);
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(peer.denied(THINGS, &[("a", false)]), peers);
    // Local itself came to serve it: it is asked again, once.
    let here = Cluster::beside([member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)]);
    let local = "local: served-locally, refresh on unrouted 404";
    assert_eq!(here.denied(THINGS, &[("a", false)]), local);
    assert_eq!(here.denied(THINGS, &[("a", false), ("a", true)]), peers);
}

#[test]
fn row_8_a_member_that_could_not_confirm_makes_it_503() {
    let before = confirmed_at(member("b", "v1.36.0", &[]), NOW - 1);
    let cluster = Cluster::beside([local(), before]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
    let cluster = Cluster::beside([local(), unseen("b")]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
}

#[test]
fn row_8_the_two_documents_confirm_for_themselves() {
    let mut half = member("b", "v1.36.0", &[]);
    half.view.api = None;
    half.joined = second(NOW);
    let cluster = Cluster::beside([local(), half]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
    let core = "GET /api/v1/namespaces/x/things";
    assert_eq!(cluster.denied(core, &[("a", false)]), UNCONFIRMED);
}

#[test]
fn row_8_only_members_that_are_alive_hold_anything_up() {
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

/// A member that cannot be asked, of which these are recorded: `a.io/v1/things`.
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
fn row_8_what_is_recorded_for_a_member_that_was_never_seen_is_no_404() {
    let things = ["a.io/v1/things", "a.io/v1/others", "/v1/nodes", "b.io/v2/things"];
    let cluster =
        Cluster::beside([local(), member("b", "v1.36.0", &["d.io/v1/x"]), recorded(&things)]);
    // Local may know better, and is asked as ever.
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
    // An answer that cannot be told from a backend's is not asked for.
    let proxy = "GET /apis/a.io/v1/namespaces/x/things/y/proxy";
    assert_eq!(cluster.client(proxy), RECORDED);
    assert_eq!(
        cluster.client("GET /apis/a.io/v2/namespaces/x/things/y/proxy"),
        "ask-local: unlisted"
    );
}

/// Nor does it hold up more than that, nor for good.
#[test]
fn row_7_what_is_recorded_gives_way_to_what_was_seen() {
    let recorded = recorded(&["a.io/v1/things", "/v1/pods"]);
    // Its own word counts, however old.
    let mut seen = confirmed_at(member("c", "v1.36.0", &["a.io/v1/others"]), NOW - 301);
    seen.view.recorded = recorded.view.recorded.clone();
    let cluster = Cluster::beside([local(), seen.clone()]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
    // The two halves of it are separate.
    seen.view.apis = None;
    seen.joined = second(NOW - 301);
    let cluster = Cluster::beside([local(), seen]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), RECORDED);
    // Of a resource that is listed it says nothing: neither verbs nor subresources.
    let cluster = Cluster::beside([local(), recorded.clone()]);
    let nosuch = "GET /api/v1/namespaces/x/pods/y/nosuch";
    assert_eq!(cluster.denied(nosuch, &[("a", false)]), TRUE_404);
    // Who serves it is asked, and nobody is who is only recorded to.
    let cluster =
        Cluster::beside([local(), member("b", "v1.36.0", &["a.io/v1/things"]), recorded.clone()]);
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), peers);
    // A load balancer knows it, too.
    let cluster = Cluster::before([member("b", "v1.36.0", &[]), recorded]);
    assert_eq!(cluster.denied(THINGS, &[("b", false)]), RECORDED);
}

/// What is not known by its own word is in no document.
#[test]
fn what_is_recorded_is_not_listed() {
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
fn row_8_how_long_a_member_holds_things_up_is_a_setting() {
    let mut cluster = Cluster::beside([local(), confirmed_at(member("b", "", &[]), NOW - 20)]);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), UNCONFIRMED);
    cluster.0.policy.blocks_for = Duration::from_secs(10);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), TRUE_404);
}

#[test]
fn row_8_what_local_serves_must_have_been_seen() {
    let cluster = Cluster::beside([unseen("a"), member("b", "v1.36.0", &["/v1/pods"])]);
    let ask = "ask-local: local-view-unknown, refresh on unrouted 404";
    assert_eq!(cluster.client(THINGS), ask);
    // Peers are not burdened with what local may well serve itself; they are once it said no.
    let pods = "GET /api/v1/namespaces/x/pods";
    assert_eq!(cluster.client(pods), ask);
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.denied(pods, &[("a", false)]), peers);
    assert_eq!(cluster.denied(THINGS, &[("a", false)]), "refuse: local-view-unknown");
}

#[test]
fn row_8_nobody_speaks_for_a_local_server_that_was_not_heard() {
    // A peer listed it otherwise, denied it, and lists it no more; local was last heard before.
    let quiet = confirmed_at(local(), NOW - 10);
    let cluster = Cluster::beside([quiet, member("b", "v1.36.0", &[])]);
    assert_eq!(cluster.denied(THINGS, &[("b", false)]), ASK);
    assert_eq!(cluster.denied(THINGS, &[("b", false), ("a", false)]), TRUE_404);
}

#[test]
fn row_10_a_write_that_local_denies_goes_to_no_older_server() {
    let things = ["a.io/v1/things"];
    let patch = "PATCH /apis/a.io/v1/namespaces/x/things/y";
    let older = [member("a", "v1.36.0", &things), member("b", "v1.34.0", &things)];
    assert_eq!(Cluster::beside(older).denied(patch, &[("a", true)]), "refuse: view-suspect");
    let newer = [member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)];
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(Cluster::beside(newer).denied(patch, &[("a", true)]), peers);
}

#[test]
fn row_10_local_denies_what_it_lists() {
    let things = ["a.io/v1/things"];
    let alone = Cluster::beside([member("a", "v1.34.0", &things)]);
    assert_eq!(alone.denied(THINGS, &[("a", true)]), "refuse: view-suspect");
    let two = Cluster::beside([member("a", "v1.34.0", &things), member("b", "v1.36.0", &things)]);
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(two.denied(THINGS, &[("a", true)]), peers);
    // After the refresh it lists it no more.
    assert_eq!(Cluster::beside([local()]).denied(THINGS, &[("a", true)]), TRUE_404);
}

#[test]
fn row_11_a_peer_denies_what_it_lists() {
    let things = ["a.io/v1/things"];
    let cluster = Cluster::beside([
        local(),
        member("b", "v1.36.0", &things),
        member("c", "v1.36.0", &things),
    ]);
    let next = "peers c: served-by-peer, next on unrouted 404";
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
fn answers_of_backends_and_extension_servers_are_never_taken_for_routing() {
    let pods = ["/v1/pods", "/v1/pods/proxy"];
    let metrics = ["metrics.k8s.io/v1/pods"];
    let here = member("a", "v1.34.0", &[pods[0], pods[1], metrics[0]]);
    let proxy = "GET /api/v1/namespaces/x/pods/y/proxy/some/path";
    let usage = "GET /apis/metrics.k8s.io/v1/namespaces/x/pods";
    let mut cluster = Cluster::beside([here, member("b", "v1.36.0", &[])]);
    assert_eq!(cluster.client(proxy), "local: served-locally");
    assert_eq!(cluster.client(usage), "local: served-locally, refresh on unrouted 404");
    cluster.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(cluster.client(usage), "local: served-locally");

    let mut there = Cluster::beside([local(), member("b", "v1.36.0", &[pods[1], metrics[0]])]);
    there.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(there.client(proxy), "peers b: served-by-peer");
    assert_eq!(there.client(usage), "peers b: served-by-peer");

    // Nobody lists it: local's word is taken, unless a member could still turn out to serve it.
    let mut nowhere = Cluster::beside([local(), member("b", "v1.36.0", &[])]);
    nowhere.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(nowhere.client(usage), "ask-local: unlisted");
    let mut unknown = Cluster::beside([local(), unseen("b")]);
    unknown.0.extension_versions = Arc::new([("metrics.k8s.io".into(), "v1".into())]);
    assert_eq!(unknown.client(usage), UNCONFIRMED);
}
