//! Rows 3 to 6, 12 and 13: who serves it, and may the request be passed on?

use crate::builder::{Cluster, NOW, member, ready, second};
use mvp_core::decide::{Asked, Denial, LocalHealth, Origin};
use mvp_core::member::Presence;

const JOBS: &str = "GET /apis/batch/v1/namespaces/default/jobs";
const LOCAL: &str = "local: served-locally, refresh on unrouted 404";

fn old_and_new() -> Cluster {
    Cluster::beside([
        member("old", "v1.34.1", &["/v1/pods", "apps/v1/deployments"]),
        member("new", "v1.36.0", &["/v1/pods", "apps/v1/deployments", "batch/v1/jobs"]),
    ])
}

#[test]
fn row_3_what_a_server_says_of_itself_comes_from_itself() {
    for path in ["/healthz", "/livez", "/readyz?verbose", "/version", "/metrics", "/", "/logs/x"] {
        let request = format!("GET {path}");
        assert_eq!(old_and_new().client(&request), "local: non-resource", "{path}");
        assert_eq!(old_and_new().peer(&request), "local: non-resource", "{path}");
    }
    assert_eq!(old_and_new().client("POST /apis"), "local: non-resource");
}

#[test]
fn row_3_what_the_server_refuses_before_routing_it_may_refuse() {
    for path in ["/api/v1/watch", "/apis/batch/v1/proxy", "/api/v1/%zz"] {
        assert_eq!(old_and_new().client(&format!("GET {path}")), "local: non-resource", "{path}");
    }
}

#[test]
fn row_4_what_local_serves_it_serves_for_everybody() {
    let cluster = old_and_new();
    for request in [
        "GET /api/v1/namespaces/default/pods",
        "GET /api/v1/pods?watch=1",
        "POST /apis/apps/v1/namespaces/default/deployments",
        "DELETE /apis/apps/v1/namespaces/default/deployments/x",
        "PATCH /apis/apps/v1/namespaces/default/deployments/x",
    ] {
        assert_eq!(cluster.client(request), LOCAL, "{request}");
        assert_eq!(cluster.peer(request), LOCAL, "{request}");
        assert_eq!(cluster.marked(request), LOCAL, "{request}");
    }
}

#[test]
fn row_4_a_method_without_a_verb_asks_for_the_resource_alone() {
    let cluster = Cluster::beside([member("a", "v1.36.0", &["batch/v1/jobs:create"])]);
    assert_eq!(cluster.client(&JOBS.replace("GET", "OPTIONS")), LOCAL);
}

#[test]
fn row_5_what_only_a_peer_serves_goes_there() {
    let cluster = old_and_new();
    let peers = "peers new: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.client(JOBS), peers);
    assert_eq!(cluster.client("POST /apis/batch/v1/namespaces/default/jobs"), peers);
    assert_eq!(cluster.client("GET /apis/batch/v1/jobs?watch=true"), peers);
}

#[test]
fn row_5_looks_at_subresource_and_verb() {
    let cluster = Cluster::beside([
        member("a", "v1.34.0", &["batch/v1/jobs:get,list"]),
        member("b", "v1.36.0", &["batch/v1/jobs", "batch/v1/jobs/status:get"]),
    ]);
    assert_eq!(cluster.client(JOBS), LOCAL);
    let peers = "peers b: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.client("DELETE /apis/batch/v1/namespaces/x/jobs/y"), peers);
    assert_eq!(cluster.client("GET /apis/batch/v1/namespaces/x/jobs/y/status"), peers);
}

#[test]
fn row_5_the_newest_first_then_by_id() {
    let jobs = ["batch/v1/jobs"];
    let cluster = Cluster::beside([
        member("local", "v1.33.0", &[]),
        member("d", "v1.36.0", &jobs),
        member("c", "not a version", &jobs),
        member("b", "v1.34.9", &jobs),
        member("a", "v1.36.9", &jobs),
    ]);
    let peers = "peers a,d,b,c: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.client(JOBS), peers);
}

#[test]
fn row_5_members_that_left_or_have_no_address_are_not_asked_and_not_forgotten() {
    let left = |id| {
        let mut member = member(id, "v1.36.0", &["batch/v1/jobs"]);
        member.presence = Presence::Left;
        member
    };
    let mut unreachable = member("x", "v1.36.0", &["batch/v1/jobs"]);
    unreachable.address = None;
    let old = member("old", "v1.34.0", &[]);
    let refused = "refuse: nobody-reachable";
    assert_eq!(Cluster::beside([old.clone(), left("y")]).client(JOBS), refused);
    assert_eq!(Cluster::beside([old.clone(), unreachable.clone()]).client(JOBS), refused);
    let also = member("z", "v1.35.0", &["batch/v1/jobs"]);
    assert_eq!(
        Cluster::beside([old, left("y"), unreachable, also]).client(JOBS),
        "peers z: served-by-peer, next on unrouted 404",
    );
}

#[test]
fn row_6_a_request_is_passed_on_once() {
    // Whoever passed it on may have seen more of local than we did. Local is asked, nobody else.
    let asked = "ask-local: served-elsewhere, next on unrouted 404";
    assert_eq!(old_and_new().peer(JOBS), asked);
    assert_eq!(old_and_new().marked(JOBS), asked);
    for origin in [Origin::Peer, Origin::Marked] {
        let denials = [Denial { member: "old", at: second(NOW), listed: false }];
        let denied = Asked { origin, denials: &denials, ..ready() };
        assert_eq!(old_and_new().asked(JOBS, denied), "refuse: served-elsewhere");
        let down = Asked { origin, local: LocalHealth::Unreachable, ..ready() };
        assert_eq!(old_and_new().asked(JOBS, down), "refuse: local-down");
    }
}

#[test]
fn row_6_no_404_of_a_subresource_that_only_another_lists_is_believed() {
    let cluster = Cluster::beside([
        member("old", "v1.34.1", &["batch/v1/jobs"]),
        member("new", "v1.36.0", &["batch/v1/jobs", "batch/v1/jobs/status:get,update"]),
    ]);
    let status = "GET /apis/batch/v1/namespaces/default/jobs/one/status";
    assert_eq!(cluster.peer(status), "ask-local: served-elsewhere, refresh on 404");
}

#[test]
fn row_12_without_a_local_server_any_capable_one_serves() {
    let cluster = Cluster::before([
        member("a", "v1.34.0", &["/v1/pods"]),
        member("b", "v1.36.0", &["/v1/pods", "batch/v1/jobs"]),
    ]);
    let both = "peers b,a: served-by-peer, next on unrouted 404";
    assert_eq!(cluster.client("GET /api/v1/namespaces/x/pods"), both);
    assert_eq!(cluster.client(JOBS), "peers b: served-by-peer, next on unrouted 404");
    assert_eq!(cluster.client("GET /version"), "ask-any: non-resource");
    assert_eq!(
        cluster.client("GET /apis/a.io/v1/things"),
        "ask-any: unlisted, refresh on unrouted 404"
    );
    for request in ["GET /version", "GET /apis", JOBS, "GET /apis/a.io/v1/things"] {
        assert_eq!(cluster.peer(request), "refuse: not-passed-on", "{request}");
        assert_eq!(cluster.marked(request), "refuse: not-passed-on", "{request}");
    }
}

#[test]
fn row_13_a_verb_that_nobody_lists_is_refused_by_who_has_the_resource() {
    let reads = ["batch/v1/jobs:get,list"];
    let here = Cluster::beside([member("a", "v1.34.0", &reads), member("b", "v1.36.0", &reads)]);
    let delete = "DELETE /apis/batch/v1/namespaces/x/jobs/y";
    let local = "local: verb-unlisted, refresh on unrouted 404";
    assert_eq!(here.client(delete), local);
    assert_eq!(here.peer(delete), local);

    // The 405 of a peer is the truth, the 404 of a server without the resource is not.
    let there = Cluster::beside([member("a", "v1.34.0", &[]), member("b", "v1.36.0", &reads)]);
    let peers = "peers b: verb-unlisted, refresh on unrouted 404";
    assert_eq!(there.client(delete), peers);
    assert_eq!(there.peer(delete), "refuse: served-elsewhere");
}

#[test]
fn row_13_a_member_that_left_may_have_had_the_verb() {
    let mut left = member("b", "v1.36.0", &["batch/v1/jobs:get,list"]);
    left.presence = Presence::Left;
    let cluster = Cluster::beside([member("a", "v1.34.0", &[]), left]);
    let delete = "DELETE /apis/batch/v1/namespaces/x/jobs/y";
    assert_eq!(cluster.client(delete), "refuse: nobody-reachable");
}

#[test]
fn row_13_a_path_of_the_wrong_scope_is_not_one_that_is_served() {
    let cluster = Cluster::beside([
        member("a", "v1.34.0", &["/v1/pods", "!/v1/nodes", "!/v1/namespaces"]),
        member("b", "v1.36.0", &["/v1/pods", "!/v1/nodes", "!/v1/namespaces"]),
    ]);
    let unfit = "local: verb-unlisted, refresh on unrouted 404";
    assert_eq!(cluster.client("POST /api/v1/pods"), unfit);
    assert_eq!(cluster.client("GET /api/v1/pods/x"), unfit);
    assert_eq!(cluster.client("GET /api/v1/namespaces/default/nodes"), unfit);
    assert_eq!(cluster.client("GET /api/v1/nodes/x"), LOCAL);
    assert_eq!(cluster.client("GET /api/v1/namespaces/default"), LOCAL);
    assert_eq!(cluster.client("GET /api/v1/pods"), LOCAL);
    // Its 404 is then as true as any: no member serves it.
    assert_eq!(
        cluster.denied("POST /api/v1/pods", &[("a", false)]),
        "pass-404: confirmed-not-found",
    );
}
