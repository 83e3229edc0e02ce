//! Paths in which kube-apiserver's `RequestInfo` finds a resource, although its routing answers them
//! with a 404: that 404 is true, whatever the server lists.

use crate::builder::{Cluster, NOW, confirmed_at, member, second};
use mvp_core::decide::{Asked, Denial};

const SERVED: [&str; 4] =
    ["/v1/pods", "/v1/pods/status", "!/v1/nodes", "!authentication.k8s.io/v1/tokenreviews:create"];
const TRUE_404: &str = "pass-404: confirmed-not-found";
const HERE: &str = "local: served-locally, refresh unless object 404";

#[test]
fn a_path_with_two_leading_slashes_is_left_to_the_local_server() {
    let cluster = Cluster::beside([member("a", "v1.34.0", &[]), member("b", "v1.36.0", &SERVED)]);
    for path in ["//api/v1/pods", "///api/v1/pods", "/%2fapi/v1/pods", "//apis/a.io/v1/things"] {
        for method in ["GET", "POST", "DELETE"] {
            let request = format!("{method} {path}");
            assert_eq!(cluster.client(&request), "local: non-resource", "{request}");
        }
    }
    let before = Cluster::before([member("b", "v1.36.0", &SERVED)]);
    assert_eq!(before.client("GET //api/v1/pods"), "ask-any: non-resource");
}

#[test]
fn a_404_for_an_unusual_path_is_true_if_the_server_still_lists_the_resource() {
    let cluster =
        Cluster::beside([member("a", "v1.34.0", &SERVED), member("b", "v1.36.0", &SERVED)]);
    for request in [
        "GET /api/v1/namespaces/x/pods/y/status/z",
        "GET /api/v1/namespaces/x/pods/y//status",
        "GET /api/v1/nodes/n//z",
        "POST /apis/authentication.k8s.io/v1/tokenreviews/x",
    ] {
        assert_eq!(cluster.client(request), HERE, "{request}");
        assert_eq!(cluster.denied(request, &[("a", true)]), TRUE_404, "{request}");
    }
    // The same resource at its own path: the view is suspect.
    let status = "GET /api/v1/namespaces/x/pods/y/status";
    let peer = "peers b: served-by-peer, next unless object 404";
    assert_eq!(cluster.denied(status, &[("a", true)]), peer);
}

#[test]
fn a_peer_that_denies_an_unusual_path_must_confirm_its_view() {
    let request = "GET /api/v1/namespaces/x/pods/y/status/z";
    let cluster = |b| Cluster::beside([member("a", "v1.34.0", &[]), b]);
    let b = || member("b", "v1.36.0", &SERVED);
    let peer = "peers b: served-by-peer, refresh unless object 404";
    assert_eq!(cluster(b()).client(request), peer);
    assert_eq!(cluster(b()).denied(request, &[("b", true)]), TRUE_404);
    let before = cluster(confirmed_at(b(), NOW - 1));
    assert_eq!(before.denied(request, &[("b", true)]), "refuse: view-suspect");
}

#[test]
fn a_server_that_no_longer_lists_the_resource_proves_nothing_about_the_path() {
    let request = "GET /api/v1/namespaces/x/pods/y/status/z";
    let cluster = Cluster::beside([member("a", "v1.34.0", &[]), member("b", "v1.36.0", &SERVED)]);
    let peer = "peers b: served-by-peer, refresh unless object 404";
    assert_eq!(cluster.denied(request, &[("a", true)]), peer);
}

#[test]
fn a_watch_of_one_object_by_path_needs_its_namespace() {
    let cluster = Cluster::beside([member("a", "v1.34.0", &SERVED)]);
    let other = "local: verb-unlisted, refresh unless object 404";
    assert_eq!(cluster.client("GET /api/v1/watch/pods/y"), other);
    assert_eq!(cluster.denied("GET /api/v1/watch/pods/y", &[("a", false)]), TRUE_404);
    for request in [
        "GET /api/v1/watch/pods",
        "GET /api/v1/watch/namespaces/x/pods/y",
        "GET /api/v1/watch/nodes/n",
        "GET /api/v1/pods?fieldSelector=metadata.name%3Dy",
        "GET /api/v1/pods?watch=1&fieldSelector=metadata.name%3Dy",
    ] {
        assert_eq!(cluster.client(request), HERE, "{request}");
    }
}

#[test]
fn the_path_of_a_backend_is_not_unusual() {
    let cluster = Cluster::beside([member("a", "v1.34.0", &["/v1/pods", "/v1/pods/proxy"])]);
    let request = "GET /api/v1/namespaces/x/pods/y/proxy/a/b";
    assert_eq!(cluster.client(request), "local: served-locally");
    // A denial at another time changes nothing: its 404s pass through.
    let denials = [Denial { member: "b", at: second(NOW), listed: true }];
    let asked = Asked { denials: &denials, ..crate::builder::ready() };
    assert_eq!(cluster.asked(request, asked), "local: served-locally");
}
