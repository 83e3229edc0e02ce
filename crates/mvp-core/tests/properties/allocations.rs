//! Ordinary requests are parsed and decided without an allocation.

use std::sync::Arc;

use allocation_counter::measure;
use mvp_core::decide::{Action, Asked, Denial, LocalHealth, Origin, Reason};
use mvp_core::discovery::Part;
use mvp_core::{RequestInfo, decide};
use serde_json::{Value, json};

use crate::clusters::{Cluster, NOW, at};
use crate::documents::parse;

fn document(groups: &[(&str, &[&str])]) -> Value {
    let resource = |name: &&str| {
        json!({
            "resource": name,
            "scope": if *name == "nodes" { "Cluster" } else { "Namespaced" },
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{"subresource": "status", "verbs": ["get", "patch", "update"]}],
        })
    };
    let group = |(name, resources): &(&str, &[&str])| {
        let resources: Vec<Value> = resources.iter().map(resource).collect();
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]})
    };
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": groups.iter().map(group).collect::<Vec<_>>(),
    })
}

#[test]
fn ordinary_requests_allocate_nothing() {
    let core = parse(Part::Api, &document(&[("", &["pods", "nodes"])]));
    let old = parse(Part::Apis, &document(&[("apps", &["deployments"])]));
    let new = parse(Part::Apis, &document(&[("apps", &["deployments"]), ("new.io", &["widgets"])]));
    let mut cluster =
        Cluster::healthy(&[(core.clone(), old.clone()), (core.clone(), new), (core, old)]);
    cluster.local = Some("apiserver-a".into());
    let snapshot = cluster.snapshot();

    let requests = [
        ("GET", "/api/v1/namespaces/default/pods/web-0", None),
        ("GET", "/api/v1/namespaces/default/pods", Some("limit=500&resourceVersion=0")),
        ("GET", "/api/v1/pods", Some("watch=true&allowWatchBookmarks=true&timeoutSeconds=300")),
        ("PATCH", "/api/v1/nodes/one/status", Some("fieldManager=kubelet&force=true")),
        ("DELETE", "/apis/apps/v1/namespaces/default/deployments", None),
        ("PUT", "/apis/apps/v1/namespaces/default/deployments/web", None),
        ("POST", "/apis/new.io/v1/namespaces/default/widgets", None),
        ("GET", "/apis/new.io/v1/watch/widgets", None),
        ("GET", "/apis/unheard.of/v1/things/one", None),
        ("OPTIONS", "/api/v1/nodes", None),
        ("GET", "/apis", None),
        ("GET", "/api/v1", None),
        ("GET", "/openapi/v3/apis/apps/v1", None),
        ("GET", "/healthz", Some("verbose")),
    ];
    for origin in [Origin::Client, Origin::Peer] {
        for local in [LocalHealth::Ready, LocalHealth::Unreachable] {
            let asked = Asked { origin, nopeer: false, arrived: at(NOW), local, denials: &[] };
            for (method, path, query) in requests {
                let measured = measure(|| {
                    let info = RequestInfo::parse(method, path, query);
                    let decision = decide(&info, &snapshot, asked);
                    if let Action::Peers(candidates) = decision.action {
                        std::hint::black_box(candidates.iter().count());
                    }
                    std::hint::black_box(decision.reason);
                });
                assert_eq!(measured.count_total, 0, "{method} {path} {query:?}");
            }
        }
    }

    // Nor does the last decision before a 404 passes through, which checks records.
    let unseen = &mut cluster.servers.last_mut().expect("a member").member;
    (unseen.view.apis, unseen.address) = (None, None);
    let thing = ["unheard.of", "v1", "things"].map(str::to_owned);
    unseen.view.recorded = Some(Arc::new([thing.into()].into_iter().collect()));
    let snapshot = cluster.snapshot();
    let denials = [Denial { member: "apiserver-a", at: at(NOW), listed: false }];
    let (origin, local) = (Origin::Client, LocalHealth::Ready);
    let asked = Asked { origin, nopeer: false, arrived: at(NOW), local, denials: &denials };
    for (path, reason) in [
        ("/apis/unheard.of/v1/things/one", Reason::Recorded),
        ("/openapi/v3/apis/unheard.of/v1", Reason::Recorded),
        ("/apis/unheard.of/v1/others", Reason::ConfirmedNotFound),
    ] {
        let measured = measure(|| {
            let info = RequestInfo::parse("GET", path, None);
            assert!(decide(&info, &snapshot, asked).reason == reason, "{path}");
        });
        assert_eq!(measured.count_total, 0, "{path}");
    }

    // The counter works: a percent-encoded path is decoded into a new string.
    let measured = measure(|| {
        std::hint::black_box(RequestInfo::parse("GET", "/api/v1/%70ods", None));
    });
    assert!(measured.count_total > 0);
}
