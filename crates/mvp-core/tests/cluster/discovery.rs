//! Rows 1 and 2: discovery and OpenAPI.

use crate::builder::{Cluster, NOW, member, ready, second, unseen};
use mvp_core::RequestInfo;
use mvp_core::decide::{Asked, Origin};
use mvp_core::discovery::{Limits, Source};
use mvp_core::member::Member;
use mvp_core::openapi::Index;

const PATHS: [&str; 9] = [
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/apis/batch",
    "/apis/batch/",
    "/apis/batch/v1",
    "/openapi/v2",
    "/openapi/v3",
];

fn cluster() -> Cluster {
    Cluster::beside([
        member("a", "v1.34.0", &["/v1/pods"]),
        member("b", "v1.36.0", &["/v1/pods", "batch/v1/jobs"]),
    ])
}

#[test]
fn row_1_clients_get_merged_documents() {
    for path in PATHS {
        let request = format!("GET {path}");
        assert_eq!(cluster().client(&request), "answer: discovery-merged", "{path}");
        assert_eq!(cluster().marked(&request), "answer: discovery-merged", "{path}");
    }
}

#[test]
fn row_1_a_schema_of_any_member_is_served() {
    let request = "GET /openapi/v3/apis/batch/v1";
    assert_eq!(cluster().client(request), "ask-local: unlisted, refresh on 404");
    // No member has an index yet, so any of them may have the schema.
    let denied = cluster().denied(request, &[("a", false)]);
    assert_eq!(denied, "refuse: unconfirmed");
    let index = r#"{"paths":{"apis/batch/v1":{"serverRelativeURL":"/openapi/v3/apis/batch/v1"}}}"#;
    let source = Source { server: "b", document: "/openapi/v3" };
    let index = Index::parse(source, index.into(), &Limits::default()).expect("an index");
    let mut b = member("b", "v1.36.0", &["batch/v1/jobs"]);
    b.view.openapi = Some(index.into());
    let cluster = Cluster::beside([member("a", "v1.34.0", &[]), b]);
    assert_eq!(cluster.client(request), "answer: discovery-merged");
    assert_eq!(cluster.marked(request), "answer: discovery-merged");
}

#[test]
fn row_8_a_404_for_a_schema_waits_for_the_index_of_members_with_a_view() {
    let indexed = |id| {
        let mut member = member(id, "v1.36.0", &[]);
        member.view.openapi = Some(Index::default().into());
        member
    };
    let request = "GET /openapi/v3/apis/batch/v1";
    for (other, expected) in [
        (indexed("b"), "pass-404: confirmed-not-found"),
        (member("b", "v1.36.0", &[]), "refuse: unconfirmed"),
        // It never answered, and nothing waits for it any more.
        (Member { joined: second(NOW - 301), ..unseen("b") }, "pass-404: confirmed-not-found"),
    ] {
        let cluster = Cluster::beside([indexed("a"), other]);
        assert_eq!(cluster.denied(request, &[("a", false)]), expected);
    }
}

#[test]
fn row_1_a_404_is_refused_after_one_refresh_while_no_member_was_seen() {
    let request = "GET /apis/no.such.group";
    let ask = "local-view-unknown, refresh on 404";
    let beside = Cluster::beside([unseen("a"), unseen("b")]);
    assert_eq!(beside.client(request), format!("ask-local: {ask}"));
    assert_eq!(beside.denied(request, &[("a", false)]), "refuse: local-view-unknown");
    let before = Cluster::before([unseen("a"), unseen("b")]);
    assert_eq!(before.client(request), format!("ask-any: {ask}"));
    assert_eq!(before.denied(request, &[("a", false)]), "refuse: unconfirmed");
}

#[test]
fn row_1_a_404_for_unserved_discovery_passes_once_confirmed() {
    for path in ["/apis/a.io", "/apis/batch/v9", "/api/v9"] {
        let request = format!("GET {path}");
        let ask = "ask-local: unlisted, refresh on 404";
        assert_eq!(cluster().client(&request), ask, "{path}");
        let denied = cluster().denied(&request, &[("a", false)]);
        assert_eq!(denied, "pass-404: confirmed-not-found", "{path}");
        let unknown = Cluster::beside([member("a", "v1.34.0", &[]), unseen("c")]);
        assert_eq!(unknown.denied(&request, &[("a", false)]), "refuse: unconfirmed", "{path}");
    }
}

#[test]
fn row_8_a_refusal_for_openapi_depends_on_members_of_its_own_half() {
    let mut members = [
        member("a", "v1.34.0", &[]),
        member("no-api", "v1.36.0", &[]),
        member("no-apis", "v1.36.0", &[]),
    ];
    members[1].view.api = None;
    members[2].view.apis = None;
    for member in &mut members {
        member.joined = second(NOW);
        member.view.openapi = Some(Index::default().into());
    }
    let cluster = Cluster::beside(members);
    for (path, expected) in
        [("/openapi/v3/api/v1", "no-api"), ("/openapi/v3/apis/batch/v1", "no-apis")]
    {
        let request = format!("GET {path}");
        assert_eq!(cluster.denied(&request, &[("a", false)]), "refuse: unconfirmed", "{path}");
        let part = RequestInfo::parse("GET", path, None).part();
        let snapshot = cluster.snapshot();
        let unconfirmed = snapshot.unconfirmed(part, second(NOW));
        let ids: Vec<_> = unconfirmed.map(|member| member.id.to_string()).collect();
        assert_eq!(ids, [expected], "{path}");
    }
}

#[test]
fn row_1_waits_for_every_member_up_to_30_s() {
    let mut starting = Cluster::beside([member("a", "v1.34.0", &[]), unseen("b")]);
    starting.0.started = second(NOW - 29);
    for path in ["/api", "/apis", "/apis/batch", "/openapi/v3"] {
        let request = format!("GET {path}");
        assert_eq!(starting.client(&request), "refuse: starting", "{path}");
        assert_eq!(starting.peer(&request), "local+nopeer: discovery-local", "{path}");
    }
    starting.0.started = second(NOW - 30);
    assert_eq!(starting.client("GET /apis"), "answer: discovery-merged");

    // A member that cannot be asked does not count.
    let mut dead = Cluster::beside([member("a", "v1.34.0", &[]), unseen("b")]);
    dead.0.started = second(NOW);
    dead.0.members[1].heard = second(NOW - 41);
    assert_eq!(dead.client("GET /apis"), "answer: discovery-merged");
}

#[test]
fn row_1_each_half_waits_for_its_own_views() {
    let mut half = member("b", "v1.36.0", &[]);
    half.view.api = None;
    half.joined = second(NOW);
    let mut cluster = Cluster::beside([member("a", "v1.34.0", &[]), half]);
    cluster.0.started = second(NOW);
    assert_eq!(cluster.client("GET /api"), "refuse: starting");
    assert_eq!(cluster.client("GET /apis"), "answer: discovery-merged");
}

#[test]
fn row_1_local_is_asked_while_it_has_no_view() {
    let mut cluster =
        Cluster::beside([unseen("a"), member("b", "v1.36.0", &["/v1/pods", "batch/v1/jobs"])]);
    cluster.0.started = second(NOW);
    assert_eq!(cluster.client("GET /apis"), "refuse: starting");
    cluster.0.started = second(0);
    let ask = "ask-local: local-view-unknown, refresh on 404";
    assert_eq!(cluster.client("GET /apis"), ask);
    assert_eq!(cluster.client("GET /apis/batch/v1"), ask);
    let denied = cluster.denied("GET /apis/batch/v1", &[("a", false)]);
    assert_eq!(denied, "answer: discovery-merged");
}

#[test]
fn row_2_nopeer_and_peers_get_local_discovery() {
    for path in PATHS {
        let request = format!("GET {path}");
        let nopeer = Asked { nopeer: true, ..ready() };
        assert_eq!(cluster().asked(&request, nopeer), "local: discovery-local", "{path}");
        assert_eq!(cluster().peer(&request), "local+nopeer: discovery-local", "{path}");
        let both = Asked { nopeer: true, origin: Origin::Peer, ..ready() };
        assert_eq!(cluster().asked(&request, both), "local+nopeer: discovery-local", "{path}");
    }
}

#[test]
fn row_12_without_a_local_server() {
    let cluster = Cluster::before([member("b", "v1.36.0", &["/v1/pods", "batch/v1/jobs"])]);
    assert_eq!(cluster.client("GET /apis"), "answer: discovery-merged");
    let nopeer = Asked { nopeer: true, ..ready() };
    assert_eq!(cluster.asked("GET /apis", nopeer), "ask-any: discovery-local");
    assert_eq!(cluster.client("GET /apis/a.io"), "ask-any: unlisted, refresh on 404");
}

#[test]
fn row_12_an_empty_list_is_never_served() {
    let cluster = Cluster::before([unseen("b")]);
    for path in ["/api", "/apis"] {
        let decision = cluster.client(&format!("GET {path}"));
        assert!(decision.starts_with("ask-any: local-view-unknown"), "{path}: {decision}");
    }
}
