//! Row 9: the local server is down, or not ready yet.

use crate::builder::{Cluster, NOW, confirmed_at, member, ready, unseen};
use mvp_core::decide::{Asked, LocalHealth::Unreachable, LocalHealth::Unready, Origin};
use mvp_core::member::{Release, Version};

const LIST: &str = "GET /api/v1/namespaces/x/pods";
const WATCH: &str = "GET /api/v1/pods?watch=1";
const CREATE: &str = "POST /api/v1/namespaces/x/pods";
const DELETE: &str = "DELETE /api/v1/namespaces/x/pods/y";
const PODS: [&str; 1] = ["/v1/pods"];

fn cluster() -> Cluster {
    Cluster::beside([
        confirmed_at(member("local", "v1.35.0", &PODS), NOW - 90),
        member("newer", "v1.36.0", &PODS),
        member("same", "v1.35.4", &PODS),
        member("older", "v1.34.0", &PODS),
        member("unknown", "?", &PODS),
    ])
}

#[test]
fn reads_go_to_any_peer_and_writes_to_no_older_one() {
    for (state, reason) in [(Unreachable, "local-down"), (Unready, "local-not-ready")] {
        let any = format!("peers newer,same,older,unknown: {reason}, next unless object 404");
        assert_eq!(cluster().while_local_is(state, LIST), any);
        assert_eq!(cluster().while_local_is(state, WATCH), any);
        let not_older = format!("peers newer,same: {reason}, next unless object 404");
        assert_eq!(cluster().while_local_is(state, CREATE), not_older);
        assert_eq!(cluster().while_local_is(state, DELETE), not_older);
    }
}

#[test]
fn writes_are_refused_if_all_peers_are_older() {
    let local = member("local", "v1.36.0", &PODS);
    let old = Cluster::beside([local, member("older", "v1.34.0", &PODS)]);
    assert_eq!(old.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
    // The release of a server that was never asked is unknown.
    let unknown = Cluster::beside([member("local", "?", &PODS), member("older", "v1.34.0", &PODS)]);
    assert_eq!(unknown.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
}

#[test]
fn an_unready_server_is_asked_if_no_peer_can_serve() {
    let alone = Cluster::beside([member("local", "v1.36.0", &PODS)]);
    let local = "local: served-locally, refresh unless object 404";
    assert_eq!(alone.while_local_is(Unready, LIST), local);
    assert_eq!(alone.while_local_is(Unready, CREATE), local);
    assert_eq!(alone.while_local_is(Unreachable, LIST), "refuse: local-down");
}

#[test]
fn a_request_from_a_peer_is_refused_while_local_is_down() {
    let from_peer = |local| Asked { origin: Origin::Peer, local, ..ready() };
    assert_eq!(cluster().asked(LIST, from_peer(Unreachable)), "refuse: local-down");
    assert_eq!(cluster().asked(LIST, from_peer(Unready)), "refuse: local-not-ready");
    let marked = |local| Asked { origin: Origin::Marked, local, ..ready() };
    assert_eq!(cluster().asked(LIST, marked(Unreachable)), "refuse: local-down");
    let local = "local: served-locally, refresh unless object 404";
    assert_eq!(cluster().asked(LIST, marked(Unready)), local);
}

#[test]
fn a_request_from_a_peer_goes_to_an_unready_server_if_no_other_serves_it() {
    let from_peer = |local| Asked { origin: Origin::Peer, local, ..ready() };
    let local = "local: served-locally, refresh unless object 404";
    let alone =
        Cluster::beside([member("local", "v1.36.0", &PODS), member("other", "v1.36.0", &[])]);
    assert_eq!(alone.asked(LIST, from_peer(Unready)), local);
    assert_eq!(alone.asked(LIST, from_peer(Unreachable)), "refuse: local-down");
    // An older server would erase fields that it does not know.
    let newest =
        Cluster::beside([member("local", "v1.36.0", &PODS), member("older", "v1.35.0", &PODS)]);
    assert_eq!(newest.asked(CREATE, from_peer(Unready)), local);
    assert_eq!(newest.asked(LIST, from_peer(Unready)), "refuse: local-not-ready");
}

#[test]
fn an_emulated_version_counts_for_writes() {
    let emulating = |id, binary, emulated| {
        let mut member = member(id, binary, &PODS);
        let release = Release::parse(binary).expect("a release");
        let emulated = Version::parse(emulated).expect("a version");
        member.view.release = Some(release.emulating(emulated));
        member
    };
    let down = |local, peers| {
        let [a, b] = peers;
        Cluster::beside([local, a, b]).while_local_is(Unreachable, CREATE)
    };
    // Of two peers that emulate the same version, the newer binary is newer.
    let peers = [member("b", "v1.34.0", &PODS), emulating("c", "v1.36.0", "1.34")];
    let both = "peers c,b: local-down, next unless object 404";
    assert_eq!(down(member("a", "v1.34.0", &PODS), peers.clone()), both);
    let newer = "peers c: local-down, next unless object 404";
    assert_eq!(down(emulating("a", "v1.35.0", "1.34"), peers.clone()), newer);
    assert_eq!(down(member("a", "v1.35.0", &PODS), peers), "refuse: peers-too-old");
}

#[test]
fn requests_that_local_never_served_still_go_to_peers() {
    let cluster = Cluster::beside([
        member("local", "v1.36.0", &PODS),
        member("older", "v1.34.0", &["batch/v1/jobs"]),
    ]);
    let create = "POST /apis/batch/v1/namespaces/x/jobs";
    let peers = "peers older: served-by-peer, next unless object 404";
    assert_eq!(cluster.while_local_is(Unreachable, create), peers);
}

#[test]
fn the_404s_of_backends_still_pass_through_while_peers_serve() {
    let pods = ["/v1/pods", "/v1/pods/proxy"];
    let cluster =
        Cluster::beside([member("local", "v1.35.0", &pods), member("peer", "v1.35.0", &pods)]);
    let proxy = "GET /api/v1/namespaces/x/pods/y/proxy/some/path";
    for (state, reason) in [(Unreachable, "local-down"), (Unready, "local-not-ready")] {
        assert_eq!(cluster.while_local_is(state, proxy), format!("peers peer: {reason}"));
    }
}

#[test]
fn an_unlisted_request_is_refused_while_local_is_down() {
    let unlisted = "GET /apis/a.io/v1/things";
    assert_eq!(cluster().while_local_is(Unreachable, unlisted), "refuse: local-down");
    assert_eq!(
        cluster().while_local_is(Unready, unlisted),
        "ask-local: unlisted, refresh unless object 404"
    );
}

#[test]
fn a_local_server_without_a_view_may_serve_anything() {
    let cluster = Cluster::beside([unseen("local"), member("b", "v1.36.0", &PODS)]);
    let peers = "peers b: local-down, next unless object 404";
    assert_eq!(cluster.while_local_is(Unreachable, LIST), peers);
    assert_eq!(cluster.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
    let unlisted = "GET /apis/a.io/v1/things";
    assert_eq!(cluster.while_local_is(Unreachable, unlisted), "refuse: local-down");
}

#[test]
fn non_resource_requests_are_refused_while_local_is_down() {
    for path in ["GET /livez", "GET /readyz", "GET /version"] {
        assert_eq!(cluster().while_local_is(Unreachable, path), "refuse: local-down");
        assert_eq!(cluster().while_local_is(Unready, path), "local: non-resource");
    }
}

#[test]
fn discovery_is_answered_while_local_is_down() {
    let merged = "answer: discovery-merged";
    assert_eq!(cluster().while_local_is(Unreachable, "GET /api"), merged);
    let nopeer = Asked { nopeer: true, local: Unreachable, ..ready() };
    assert_eq!(cluster().asked("GET /api", nopeer), "refuse: local-down");
}
