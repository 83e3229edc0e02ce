//! Rows 3 to 6, 12 and 13: which member serves a request, and whether it may be proxied.

use crate::builder::{Cluster, NOW, member, ready, second, unseen};
use mvp_core::RequestInfo;
use mvp_core::decide::{Asked, Denial, LocalHealth, Origin, local_lacks};
use mvp_core::member::Presence;

const JOBS: &str = "GET /apis/batch/v1/namespaces/default/jobs";
const LOCAL: &str = "local: served-locally, refresh unless object 404";

fn old_and_new() -> Cluster {
    Cluster::beside([
        member("old", "v1.34.1", &["/v1/pods", "apps/v1/deployments"]),
        member("new", "v1.36.0", &["/v1/pods", "apps/v1/deployments", "batch/v1/jobs"]),
    ])
}

#[test]
fn row_3_non_resource_requests_go_to_local() {
    for path in ["/healthz", "/livez", "/readyz?verbose", "/version", "/metrics", "/", "/logs/x"] {
        let request = format!("GET {path}");
        assert_eq!(old_and_new().client(&request), "local: non-resource", "{path}");
        assert_eq!(old_and_new().peer(&request), "local: non-resource", "{path}");
    }
    assert_eq!(old_and_new().client("POST /apis"), "local: non-resource");
}

#[test]
fn row_3_malformed_requests_go_to_local() {
    for path in ["/api/v1/watch", "/apis/batch/v1/proxy", "/api/v1/%zz"] {
        assert_eq!(old_and_new().client(&format!("GET {path}")), "local: non-resource", "{path}");
    }
}

#[test]
fn row_4_requests_that_local_lists_go_to_local() {
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
fn row_4_a_method_without_a_verb_needs_only_the_resource() {
    let cluster = Cluster::beside([member("a", "v1.36.0", &["batch/v1/jobs:create"])]);
    assert_eq!(cluster.client(&JOBS.replace("GET", "OPTIONS")), LOCAL);
}

#[test]
fn row_5_requests_that_only_a_peer_lists_go_to_it() {
    let cluster = old_and_new();
    let peers = "peers new: served-by-peer, next unless object 404";
    assert_eq!(cluster.client(JOBS), peers);
    assert_eq!(cluster.client("POST /apis/batch/v1/namespaces/default/jobs"), peers);
    assert_eq!(cluster.client("GET /apis/batch/v1/jobs?watch=true"), peers);
}

#[test]
fn row_5_subresource_and_verb_count() {
    let cluster = Cluster::beside([
        member("a", "v1.34.0", &["batch/v1/jobs:get,list"]),
        member("b", "v1.36.0", &["batch/v1/jobs", "batch/v1/jobs/status:get"]),
    ]);
    assert_eq!(cluster.client(JOBS), LOCAL);
    let peers = "peers b: served-by-peer, next unless object 404";
    assert_eq!(cluster.client("DELETE /apis/batch/v1/namespaces/x/jobs/y"), peers);
    assert_eq!(cluster.client("GET /apis/batch/v1/namespaces/x/jobs/y/status"), peers);
}

#[test]
fn row_5_peers_are_sorted_by_release_then_id() {
    let jobs = ["batch/v1/jobs"];
    let cluster = Cluster::beside([
        member("local", "v1.33.0", &[]),
        member("d", "v1.36.0", &jobs),
        member("c", "not a version", &jobs),
        member("b", "v1.34.9", &jobs),
        member("a", "v1.36.9", &jobs),
    ]);
    let peers = "peers a,d,b,c: served-by-peer, next unless object 404";
    assert_eq!(cluster.client(JOBS), peers);
}

#[test]
fn row_5_only_unreachable_members_list_it_503() {
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
        "peers z: served-by-peer, next unless object 404",
    );
}

#[test]
fn row_6_a_request_is_proxied_once() {
    // The sender may have a newer view of local. Only local is asked.
    let asked = "ask-local: served-elsewhere, next unless object 404";
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
fn row_6_a_404_for_a_subresource_that_another_member_lists_is_withheld() {
    let cluster = Cluster::beside([
        member("old", "v1.34.1", &["batch/v1/jobs"]),
        member("new", "v1.36.0", &["batch/v1/jobs", "batch/v1/jobs/status:get,update"]),
    ]);
    let status = "GET /apis/batch/v1/namespaces/default/jobs/one/status";
    assert_eq!(cluster.peer(status), "ask-local: served-elsewhere, refresh on 404");
}

#[test]
fn row_12_without_a_local_server_any_capable_member_serves() {
    let cluster = Cluster::before([
        member("a", "v1.34.0", &["/v1/pods"]),
        member("b", "v1.36.0", &["/v1/pods", "batch/v1/jobs"]),
    ]);
    let both = "peers b,a: served-by-peer, next unless object 404";
    assert_eq!(cluster.client("GET /api/v1/namespaces/x/pods"), both);
    assert_eq!(cluster.client(JOBS), "peers b: served-by-peer, next unless object 404");
    assert_eq!(cluster.client("GET /version"), "ask-any: non-resource");
    assert_eq!(
        cluster.client("GET /apis/a.io/v1/things"),
        "ask-any: unlisted, refresh unless object 404"
    );
    for request in ["GET /version", "GET /apis", JOBS, "GET /apis/a.io/v1/things"] {
        assert_eq!(cluster.peer(request), "refuse: not-passed-on", "{request}");
        assert_eq!(cluster.marked(request), "refuse: not-passed-on", "{request}");
    }
}

#[test]
fn row_13_a_member_with_the_resource_rejects_an_unlisted_verb() {
    let reads = ["batch/v1/jobs:get,list"];
    let here = Cluster::beside([member("a", "v1.34.0", &reads), member("b", "v1.36.0", &reads)]);
    let delete = "DELETE /apis/batch/v1/namespaces/x/jobs/y";
    let local = "local: verb-unlisted, refresh unless object 404";
    assert_eq!(here.client(delete), local);
    assert_eq!(here.peer(delete), local);

    // The 405 of a peer is true; the 404 of a server without the resource is not.
    let there = Cluster::beside([member("a", "v1.34.0", &[]), member("b", "v1.36.0", &reads)]);
    let peers = "peers b: verb-unlisted, refresh unless object 404";
    assert_eq!(there.client(delete), peers);
    assert_eq!(there.peer(delete), "refuse: served-elsewhere");
}

#[test]
fn row_13_only_a_member_that_left_lists_the_resource_503() {
    let mut left = member("b", "v1.36.0", &["batch/v1/jobs:get,list"]);
    left.presence = Presence::Left;
    let cluster = Cluster::beside([member("a", "v1.34.0", &[]), left]);
    let delete = "DELETE /apis/batch/v1/namespaces/x/jobs/y";
    assert_eq!(cluster.client(delete), "refuse: nobody-reachable");
}

#[test]
fn row_13_a_path_of_the_wrong_scope_is_not_served() {
    let cluster = Cluster::beside([
        member("a", "v1.34.0", &["/v1/pods", "!/v1/nodes", "!/v1/namespaces"]),
        member("b", "v1.36.0", &["/v1/pods", "!/v1/nodes", "!/v1/namespaces"]),
    ]);
    let unfit = "local: verb-unlisted, refresh unless object 404";
    assert_eq!(cluster.client("POST /api/v1/pods"), unfit);
    assert_eq!(cluster.client("GET /api/v1/pods/x"), unfit);
    assert_eq!(cluster.client("GET /api/v1/namespaces/default/nodes"), unfit);
    assert_eq!(cluster.client("GET /api/v1/nodes/x"), LOCAL);
    assert_eq!(cluster.client("GET /api/v1/namespaces/default"), LOCAL);
    assert_eq!(cluster.client("GET /api/v1/pods"), LOCAL);
    // Its 404 is true: no member serves it.
    assert_eq!(
        cluster.denied("POST /api/v1/pods", &[("a", false)]),
        "pass-404: confirmed-not-found",
    );
}

#[test]
fn local_lacks_what_its_view_does_not_list() {
    let lacks = |cluster: &Cluster, request: &str| {
        let (method, path) = request.split_once(' ').unwrap();
        match RequestInfo::parse(method, path, None) {
            RequestInfo::Resource(request) => local_lacks(&request, &cluster.snapshot()),
            other => panic!("{other:?}"),
        }
    };
    let members = || {
        let served = ["/v1/pods", "/v1/pods/status:get", "batch/v1/jobs:get,list"];
        let peer = [
            "/v1/pods",
            "/v1/pods/status:get,update",
            "batch/v1/jobs",
            "batch/v1/jobs/status:get",
            "apps/v1/deployments",
        ];
        [member("a", "v1.34.0", &served), member("b", "v1.36.0", &peer)]
    };
    let beside = Cluster::beside(members());
    for (request, expected) in [
        ("GET /api/v1/namespaces/x/pods", false),
        (JOBS, false),
        // It would say 405: it has the path, but not the verb.
        ("DELETE /apis/batch/v1/namespaces/x/jobs/y", false),
        ("PUT /api/v1/namespaces/x/pods/y/status", false),
        ("GET /api/v1/pods/y", true),
        ("GET /apis/batch/v1/namespaces/x/jobs/y/status", true),
        ("GET /apis/apps/v1/namespaces/x/deployments", true),
        ("GET /apis/made.up/v1/namespaces/x/things", true),
    ] {
        assert_eq!(lacks(&beside, request), expected, "{request}");
        assert!(!lacks(&Cluster::before(members()), request), "no local server: {request}");
    }
    let [_, peer] = members();
    let unknown = Cluster::beside([unseen("a"), peer]);
    assert!(!lacks(&unknown, JOBS), "nothing is known of it");
}
