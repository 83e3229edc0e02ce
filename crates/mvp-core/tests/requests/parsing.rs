//! Tables of requests and their meaning. `oracle` compares a thousand more with Kubernetes' own
//! parser; these tables are for people, and for the paths of discovery and OpenAPI, which that parser
//! does not tell apart.

use mvp_core::RequestInfo;
use mvp_core::request::{DiscoveryPath, OpenApiPath};

use crate::parse;

/// The request as `verb group/version resource/subresource in namespace named name`.
fn described(info: &RequestInfo<'_>) -> String {
    match info {
        RequestInfo::Resource(r) => {
            let verb = if r.verb.as_str().is_empty() { "-" } else { r.verb.as_str() };
            let mut text = format!("{verb} {}/{} {}", r.group, r.version, r.resource);
            for (before, part) in
                [("/", &r.subresource), (" in ", &r.namespace), (" named ", &r.name)]
            {
                if !part.is_empty() {
                    text = format!("{text}{before}{part}");
                }
            }
            text
        }
        RequestInfo::Discovery(DiscoveryPath::Api) => "discovery of core".to_owned(),
        RequestInfo::Discovery(DiscoveryPath::Apis) => "discovery of groups".to_owned(),
        RequestInfo::Discovery(DiscoveryPath::Group(group)) => format!("discovery of {group}"),
        RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, version)) => {
            format!("discovery of {group}/{version}")
        }
        RequestInfo::OpenApi(OpenApiPath::V2) => "openapi v2".to_owned(),
        RequestInfo::OpenApi(OpenApiPath::V3) => "openapi v3".to_owned(),
        RequestInfo::OpenApi(OpenApiPath::V3Document(key)) => format!("openapi v3 of {key}"),
        RequestInfo::NonResource(_) => "none".to_owned(),
        RequestInfo::Malformed => "malformed".to_owned(),
    }
}

fn check(table: &[(&str, &str)]) {
    for (request, expected) in table {
        assert_eq!(described(&parse(request)), *expected, "{request}");
    }
}

#[test]
fn methods_and_names_make_verbs() {
    check(&[
        ("GET /api/v1/pods", "list /v1 pods"),
        ("GET /api/v1/namespaces/x/pods", "list /v1 pods in x"),
        ("GET /api/v1/namespaces/x/pods/y", "get /v1 pods in x named y"),
        ("HEAD /api/v1/namespaces/x/pods/y", "get /v1 pods in x named y"),
        ("HEAD /api/v1/pods", "list /v1 pods"),
        ("POST /api/v1/namespaces/x/pods", "create /v1 pods in x"),
        ("POST /api/v1/namespaces/x/pods/y", "create /v1 pods in x named y"),
        ("PUT /api/v1/namespaces/x/pods/y", "update /v1 pods in x named y"),
        ("PATCH /api/v1/namespaces/x/pods/y", "patch /v1 pods in x named y"),
        ("DELETE /api/v1/namespaces/x/pods/y", "delete /v1 pods in x named y"),
        ("DELETE /api/v1/namespaces/x/pods", "deletecollection /v1 pods in x"),
        ("OPTIONS /api/v1/pods", "- /v1 pods"),
        ("TRACE /api/v1/pods", "- /v1 pods"),
        ("get /api/v1/pods", "- /v1 pods"),
        ("GET /apis/apps/v1/deployments", "list apps/v1 deployments"),
        ("GET /apis/apps/v1/namespaces/x/deployments/y", "get apps/v1 deployments in x named y"),
        ("PUT /apis/apps/v1/namespaces/x/deployments", "update apps/v1 deployments in x"),
        ("GET /api/v1/nodes/n", "get /v1 nodes named n"),
        ("GET /apis/a.b.c/v1alpha1/things/t", "get a.b.c/v1alpha1 things named t"),
        ("DELETE /apis/a.b.c/v1alpha1/things", "deletecollection a.b.c/v1alpha1 things"),
    ]);
}

#[test]
fn namespaces_are_resources_too() {
    check(&[
        ("GET /api/v1/namespaces", "list /v1 namespaces"),
        ("POST /api/v1/namespaces", "create /v1 namespaces"),
        ("GET /api/v1/namespaces/x", "get /v1 namespaces in x named x"),
        ("DELETE /api/v1/namespaces/x", "delete /v1 namespaces in x named x"),
        ("GET /api/v1/namespaces/x/status", "get /v1 namespaces/status in x named x"),
        ("PATCH /api/v1/namespaces/x/status", "patch /v1 namespaces/status in x named x"),
        ("PUT /api/v1/namespaces/x/finalize", "update /v1 namespaces/finalize in x named x"),
        ("PUT /api/v1/namespaces/x/finalize/y", "update /v1 namespaces/finalize in x named x"),
        ("GET /api/v1/namespaces/x/other", "list /v1 other in x"),
        ("GET /apis/a.io/v1/namespaces/x", "get a.io/v1 namespaces in x named x"),
        ("GET /apis/a.io/v1/namespaces/x/status", "get a.io/v1 namespaces/status in x named x"),
        ("GET /api/v1/namespaces/namespaces/pods", "list /v1 pods in namespaces"),
    ]);
}

#[test]
fn subresources_follow_the_name() {
    check(&[
        ("GET /api/v1/namespaces/x/pods/y/log", "get /v1 pods/log in x named y"),
        ("POST /api/v1/namespaces/x/pods/y/exec", "create /v1 pods/exec in x named y"),
        ("GET /api/v1/namespaces/x/pods/y/exec", "get /v1 pods/exec in x named y"),
        ("POST /api/v1/namespaces/x/pods/y/attach", "create /v1 pods/attach in x named y"),
        ("GET /api/v1/namespaces/x/pods/y/portforward", "get /v1 pods/portforward in x named y"),
        ("POST /api/v1/namespaces/x/pods/y/eviction", "create /v1 pods/eviction in x named y"),
        ("POST /api/v1/namespaces/x/pods/y/binding", "create /v1 pods/binding in x named y"),
        ("PATCH /api/v1/namespaces/x/pods/y/resize", "patch /v1 pods/resize in x named y"),
        (
            "POST /api/v1/namespaces/x/serviceaccounts/y/token",
            "create /v1 serviceaccounts/token in x named y",
        ),
        (
            "GET /apis/apps/v1/namespaces/x/deployments/y/scale",
            "get apps/v1 deployments/scale in x named y",
        ),
        ("GET /api/v1/nodes/n/proxy", "get /v1 nodes/proxy named n"),
        ("GET /api/v1/nodes/n/proxy/logs/a/b", "get /v1 nodes/proxy named n"),
        ("GET /api/v1/nodes/n/proxy/a//b/../c", "get /v1 nodes/proxy named n"),
        ("OPTIONS /api/v1/nodes/n/proxy/a", "- /v1 nodes/proxy named n"),
        (
            "POST /api/v1/namespaces/x/services/https:y:443/proxy/a",
            "create /v1 services/proxy in x named https:y:443",
        ),
        ("DELETE /api/v1/namespaces/x/pods/y/proxy/z", "delete /v1 pods/proxy in x named y"),
        ("GET /api/v1/namespaces/x/pods/y/status/more", "get /v1 pods/status in x named y"),
    ]);
}

#[test]
fn legacy_prefixes_set_the_verb() {
    check(&[
        ("GET /api/v1/watch/pods", "watch /v1 pods"),
        ("GET /api/v1/watch/namespaces/x/pods", "watch /v1 pods in x"),
        ("GET /api/v1/watch/namespaces/x/pods/y", "watch /v1 pods in x named y"),
        ("POST /api/v1/watch/pods", "watch /v1 pods"),
        ("GET /api/v1/watch/namespaces", "watch /v1 namespaces"),
        ("GET /api/v1/watch/namespaces/x", "watch /v1 namespaces in x named x"),
        ("GET /apis/apps/v1/watch/deployments", "watch apps/v1 deployments"),
        ("GET /api/v1/watch/pods?watch=0", "watch /v1 pods"),
        ("GET /api/v1/watch/watch", "watch /v1 watch"),
        ("GET /api/v1/proxy/nodes/n", "proxy /v1 nodes named n"),
        ("GET /api/v1/proxy/namespaces/x/pods/y/a/b", "proxy /v1 pods in x named y"),
        ("GET /api/v1/redirect/nodes/n", "get /v1 redirect/n named nodes"),
        ("GET /api/v1/watch", "malformed"),
        ("GET /api/v1/watch/", "malformed"),
        ("GET /api/v1/proxy", "malformed"),
        ("GET /apis/apps/v1/watch", "malformed"),
    ]);
}

#[test]
fn the_query_of_a_list_may_make_it_a_watch() {
    check(&[
        ("GET /api/v1/pods?watch=1", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=true", "watch /v1 pods"),
        ("GET /api/v1/pods?watch", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=yes", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=0", "list /v1 pods"),
        ("GET /api/v1/pods?watch=false", "list /v1 pods"),
        ("GET /api/v1/pods?watch=FALSE", "list /v1 pods"),
        ("GET /api/v1/pods?watch=0&watch=1", "list /v1 pods"),
        ("GET /api/v1/pods?watch=1&watch=0", "watch /v1 pods"),
        ("GET /api/v1/pods?a=b&watch=1", "watch /v1 pods"),
        ("GET /api/v1/pods?%77atch=1", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=%31", "watch /v1 pods"),
        ("GET /api/v1/pods?watch=%zz", "list /v1 pods"),
        ("GET /api/v1/pods?watch=1;x", "list /v1 pods"),
        ("GET /api/v1/pods?Watch=1", "list /v1 pods"),
        ("GET /api/v1/pods?xwatch=1", "list /v1 pods"),
        ("GET /api/v1/pods?watch=1&limit=x", "watch /v1 pods"),
        ("GET /api/v1/pods?", "list /v1 pods"),
        ("POST /api/v1/namespaces/x/pods?watch=1", "create /v1 pods in x"),
        ("GET /api/v1/namespaces/x/pods/y?watch=1", "get /v1 pods in x named y"),
        ("DELETE /api/v1/namespaces/x/pods?watch=1", "deletecollection /v1 pods in x"),
    ]);
}

#[test]
fn a_field_selector_may_name_one_object() {
    let table = [
        ("metadata.name=y", "list /v1 pods in x named y"),
        ("metadata.name%3Dy", "list /v1 pods in x named y"),
        ("metadata.name==y", "list /v1 pods in x named y"),
        ("metadata.name!=y", "list /v1 pods in x"),
        ("status.phase=Running,metadata.name=y", "list /v1 pods in x named y"),
        ("metadata.name=b,metadata.name=a", "list /v1 pods in x named a"),
        ("metadata.namespace=y", "list /v1 pods in x"),
        ("metadata.name=a%5C%2Cb", "list /v1 pods in x named a,b"),
        ("metadata.name=a%5Cx", "list /v1 pods in x"),
        ("metadata.name=a=b", "list /v1 pods in x"),
        ("metadata.name=..", "list /v1 pods in x"),
        ("metadata.name=a/b", "list /v1 pods in x"),
        ("metadata.name=", "list /v1 pods in x"),
        ("metadata.name", "list /v1 pods in x"),
        ("metadata.name=y&limit=x", "list /v1 pods in x"),
        ("metadata.name=y&limit=5&timeoutSeconds=9", "list /v1 pods in x named y"),
        ("metadata.name=y&watch=1", "watch /v1 pods in x named y"),
    ];
    for (selector, expected) in table {
        check(&[(&format!("GET /api/v1/namespaces/x/pods?fieldSelector={selector}"), expected)]);
    }
    check(&[(
        "DELETE /api/v1/namespaces/x/pods?fieldSelector=metadata.name=y",
        "deletecollection /v1 pods in x",
    )]);
}

#[test]
fn discovery_paths_are_recognized() {
    check(&[
        ("GET /api", "discovery of core"),
        ("GET /api/", "discovery of core"),
        ("GET /api//", "discovery of core"),
        ("HEAD /api", "discovery of core"),
        ("GET /apis", "discovery of groups"),
        ("GET /apis/", "discovery of groups"),
        ("GET /apis//", "none"),
        ("GET /api/v1", "discovery of /v1"),
        ("GET /api/v1/", "discovery of /v1"),
        ("GET /api/v1//", "discovery of /v1"),
        ("GET /apis/apps", "discovery of apps"),
        ("GET /apis/apps/", "discovery of apps"),
        ("GET /apis/apps//", "discovery of apps"),
        ("GET /apis/apps/v1", "discovery of apps/v1"),
        ("GET /apis/apps/v1/", "discovery of apps/v1"),
        ("GET /apis/apps%2Fv1", "discovery of apps/v1"),
        ("GET /%61pis", "discovery of groups"),
        ("GET /apis/apidiscovery.k8s.io/v2", "discovery of apidiscovery.k8s.io/v2"),
        ("POST /api", "none"),
        ("POST /apis", "none"),
        ("DELETE /apis/apps/v1", "none"),
        ("GET //api", "none"),
        ("GET /api//v1", "list / v1"),
        ("GET /apis//v1", "none"),
        ("GET /apis/apps//v1", "list apps/ v1"),
        ("GET /API", "none"),
        ("GET /apiss", "none"),
    ]);
}

#[test]
fn openapi_paths_are_recognized() {
    check(&[
        ("GET /openapi/v2", "openapi v2"),
        ("GET /openapi/v3", "openapi v3"),
        ("GET /openapi/v3/api/v1", "openapi v3 of api/v1"),
        ("GET /openapi/v3/apis/apps/v1?hash=AB", "openapi v3 of apis/apps/v1"),
        ("GET /openapi/v3/version", "openapi v3 of version"),
        ("GET /openapi/v2/", "none"),
        ("GET /openapi/v3/", "none"),
        ("GET /openapi/v3/api/v1/", "none"),
        ("GET /openapi", "none"),
        ("GET /openapi/v4", "none"),
        ("POST /openapi/v2", "none"),
    ]);
}

#[test]
fn odd_paths_parse_as_in_the_server() {
    let long = "a".repeat(8000);
    check(&[
        ("GET /api/v1/pods/", "list /v1 pods"),
        ("GET /api/v1/pods//", "list /v1 pods"),
        ("GET //api/v1/pods", "list /v1 pods"),
        ("GET /api//v1/pods", "get / v1 named pods"),
        ("GET /api/v1//pods", "get /v1  named pods"),
        ("GET /apis/apps//deployments", "list apps/ deployments"),
        ("GET /api/v1/namespaces//pods", "list /v1 pods"),
        ("GET /api/v1/namespaces/x//pods", "get /v1  in x named pods"),
        ("GET /api/v1/namespaces/x/pods//y", "list /v1 pods/y in x"),
        ("GET /api/v1/../v1/pods", "get /v1 ../pods named v1"),
        ("GET /api/v1/./pods", "get /v1 . named pods"),
        ("GET /api/v1/%2e%2e/pods", "get /v1 .. named pods"),
        ("GET /api/v1/%70ods", "list /v1 pods"),
        ("GET /api%2Fv1%2Fpods", "list /v1 pods"),
        ("GET /api/v1/namespaces/x%2Fpods", "list /v1 pods in x"),
        ("GET /api/v1/namespaces/x/pods/a%2Fb", "get /v1 pods/b in x named a"),
        ("GET /api/v1/pods%2f", "list /v1 pods"),
        ("GET /api/v1/namespaces/x/pods/a%20b", "get /v1 pods in x named a b"),
        ("GET /api/v1/namespaces/x/pods/a+b", "get /v1 pods in x named a+b"),
        ("GET /api/v1/namespaces/x/pods/%ff", "get /v1 pods in x named \u{fffd}"),
        ("GET /api/v1/namespaces/x/pods/%C3%A9", "get /v1 pods in x named é"),
        ("GET /api/v1/namespaces/x/pods/é", "get /v1 pods in x named é"),
        ("GET /api/v1/namespaces/x/pods/%00", "get /v1 pods in x named \0"),
        ("GET /api/v1/pods#x", "list /v1 pods#x"),
        ("GET /api/v1/pods/%zz", "malformed"),
        ("GET /api/v1/pods/%f", "malformed"),
        ("GET /api/v1/pods/%", "malformed"),
        ("GET /api/v1/pods/\u{1}", "malformed"),
        ("GET /api/v1/pods?\u{7f}", "malformed"),
        ("GET api/v1/pods", "malformed"),
        ("GET /API/v1/pods", "none"),
        ("GET /api/V1/Pods", "list /V1 Pods"),
        (&format!("GET /api/v1/pods/{long}"), &format!("get /v1 pods named {long}")),
        (&format!("GET /{long}"), "none"),
        (&format!("GET {}", "/x".repeat(4000)), "none"),
    ]);
}

#[test]
fn other_paths_are_not_resources() {
    for path in [
        "/",
        "//",
        "*",
        "/healthz",
        "/healthz/etcd",
        "/livez",
        "/readyz",
        "/version",
        "/version/",
        "/metrics",
        "/metrics/slis",
        "/logs",
        "/logs/a",
        "/swagger.json",
        "/debug/pprof/profile",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/statusz",
        "/flagz",
        "/ui",
        "/apisx/apps/v1/deployments",
        "/api1/v1/pods",
        "/x/api/v1/pods",
    ] {
        check(&[(&format!("GET {path}"), "none")]);
    }
}
