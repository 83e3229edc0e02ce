//! Row 9: the local server is down, or not ready yet.

use crate::builder::{Cluster, NOW, confirmed_at, member, ready, unseen};
use mvp_core::decide::{Asked, LocalHealth::Unreachable, LocalHealth::Unready, Origin};

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
fn reads_go_to_any_peer_and_writes_to_none_that_is_older() {
    for (state, reason) in [(Unreachable, "local-down"), (Unready, "local-not-ready")] {
        let any = format!("peers newer,same,older,unknown: {reason}, next on unrouted 404");
        assert_eq!(cluster().while_local_is(state, LIST), any);
        assert_eq!(cluster().while_local_is(state, WATCH), any);
        let not_older = format!("peers newer,same: {reason}, next on unrouted 404");
        assert_eq!(cluster().while_local_is(state, CREATE), not_older);
        assert_eq!(cluster().while_local_is(state, DELETE), not_older);
    }
}

#[test]
fn writes_wait_rather_than_lose_fields() {
    let local = member("local", "v1.36.0", &PODS);
    let old = Cluster::beside([local, member("older", "v1.34.0", &PODS)]);
    assert_eq!(old.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
    // Nobody knows how new a server is that was never asked.
    let unknown = Cluster::beside([member("local", "?", &PODS), member("older", "v1.34.0", &PODS)]);
    assert_eq!(unknown.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
}

#[test]
fn a_server_that_answers_is_asked_when_nobody_else_can_be() {
    let alone = Cluster::beside([member("local", "v1.36.0", &PODS)]);
    let local = "local: served-locally, refresh on unrouted 404";
    assert_eq!(alone.while_local_is(Unready, LIST), local);
    assert_eq!(alone.while_local_is(Unready, CREATE), local);
    assert_eq!(alone.while_local_is(Unreachable, LIST), "refuse: local-down");
}

#[test]
fn no_ping_pong_between_peers() {
    let from_peer = |local| Asked { origin: Origin::Peer, local, ..ready() };
    assert_eq!(cluster().asked(LIST, from_peer(Unreachable)), "refuse: local-down");
    assert_eq!(cluster().asked(LIST, from_peer(Unready)), "refuse: local-not-ready");
    let marked = |local| Asked { origin: Origin::Marked, local, ..ready() };
    assert_eq!(cluster().asked(LIST, marked(Unreachable)), "refuse: local-down");
    let local = "local: served-locally, refresh on unrouted 404";
    assert_eq!(cluster().asked(LIST, marked(Unready)), local);
}

#[test]
fn a_peer_is_answered_by_a_server_that_is_not_ready_where_it_can_ask_nobody_else() {
    let from_peer = |local| Asked { origin: Origin::Peer, local, ..ready() };
    let local = "local: served-locally, refresh on unrouted 404";
    let alone =
        Cluster::beside([member("local", "v1.36.0", &PODS), member("other", "v1.36.0", &[])]);
    assert_eq!(alone.asked(LIST, from_peer(Unready)), local);
    assert_eq!(alone.asked(LIST, from_peer(Unreachable)), "refuse: local-down");
    // An older one would erase what it does not know.
    let newest =
        Cluster::beside([member("local", "v1.36.0", &PODS), member("older", "v1.35.0", &PODS)]);
    assert_eq!(newest.asked(CREATE, from_peer(Unready)), local);
    assert_eq!(newest.asked(LIST, from_peer(Unready)), "refuse: local-not-ready");
}

#[test]
fn what_local_never_served_is_not_affected() {
    let cluster = Cluster::beside([
        member("local", "v1.36.0", &PODS),
        member("older", "v1.34.0", &["batch/v1/jobs"]),
    ]);
    let create = "POST /apis/batch/v1/namespaces/x/jobs";
    let peers = "peers older: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.while_local_is(Unreachable, create), peers);
}

#[test]
fn without_local_nothing_that_nobody_lists_is_a_404() {
    let unlisted = "GET /apis/a.io/v1/things";
    assert_eq!(cluster().while_local_is(Unreachable, unlisted), "refuse: local-down");
    assert_eq!(
        cluster().while_local_is(Unready, unlisted),
        "ask-local: unlisted, refresh on unrouted 404"
    );
}

#[test]
fn a_server_that_was_down_from_the_start_is_treated_as_one_that_may_serve_it() {
    let cluster = Cluster::beside([unseen("local"), member("b", "v1.36.0", &PODS)]);
    let peers = "peers b: local-down, next on unrouted 404";
    assert_eq!(cluster.while_local_is(Unreachable, LIST), peers);
    assert_eq!(cluster.while_local_is(Unreachable, CREATE), "refuse: peers-too-old");
    let unlisted = "GET /apis/a.io/v1/things";
    assert_eq!(cluster.while_local_is(Unreachable, unlisted), "refuse: local-down");
}

#[test]
fn its_own_health_is_never_answered_by_another() {
    for path in ["GET /livez", "GET /readyz", "GET /version"] {
        assert_eq!(cluster().while_local_is(Unreachable, path), "refuse: local-down");
        assert_eq!(cluster().while_local_is(Unready, path), "local: non-resource");
    }
}

#[test]
fn discovery_is_still_answered_for_the_cluster() {
    let merged = "answer: discovery-merged";
    assert_eq!(cluster().while_local_is(Unreachable, "GET /api"), merged);
    let nopeer = Asked { nopeer: true, local: Unreachable, ..ready() };
    assert_eq!(cluster().asked("GET /api", nopeer), "refuse: local-down");
}
