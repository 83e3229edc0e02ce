//! Seeds that several targets use: documents of real servers, and small ones that have everything.

use serde_json::Value;

use crate::target::repository;

/// A small aggregated document of `/apis`, with everything that such documents have.
pub const AGGREGATED: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["create","get","list"],"shortNames":["deploy"],"categories":["all"],"subresources":[{"subresource":"status","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"verbs":["get","patch"]}]}],"freshness":"Current"}]}],"more":{"a":[1]}}"#;

/// The same for another server, which has other verbs, another order and one more version.
pub const OTHER: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1","metadata":{},"items":[{"metadata":{"name":"batch"},"versions":[{"version":"v1","resources":null}]},{"metadata":{"name":"apps"},"versions":[{"version":"v2","resources":[]},{"version":"v1","resources":[{"resource":"scales","scope":"Cluster","verbs":["get"]},{"resource":"deployments","scope":"Namespaced","verbs":["watch"],"subresources":[{"subresource":"scale","verbs":["get"]},{"subresource":"status","verbs":["update"]}]}],"freshness":"Stale"}]}]}"#;

/// The core group.
pub const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","watch"],"subresources":[{"subresource":"exec","verbs":["create","get"]}]}],"freshness":"Current"}]}]}"#;

/// Legacy documents: `/api`, `/apis`, `/apis/G`, `/apis/G/V`.
pub const LEGACY: [&str; 4] = [
    r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#,
    r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}"#,
    r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
    r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get"],"shortNames":["deploy"],"categories":["all"],"storageVersionHash":"8aSe+NMegvE="},{"name":"deployments/status","singularName":"","namespaced":true,"kind":"Deployment","verbs":null}]}"#,
];

pub const INDEX: &str = r#"{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=AB01"},"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=CD"},".well-known/openid":{"serverRelativeURL":""}}}"#;

pub const SWAGGER: [&str; 2] = [
    r#"{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1.36.0"},"paths":{"/api/":{"get":{}},"/apis/apps/v1/x":{}},"definitions":{"io.k8s.A":{"type":"object"}},"securityDefinitions":{"t":{}}}"#,
    r#"{"swagger":"2.0","info":{"version":"v1.35.0"},"paths":{"/api/":{"put":{}},"/b":null},"definitions":{"io.k8s.A":{},"B":{"x":1}},"parameters":{"p":{}},"x-more":[]}"#,
];

pub const VERSION: &str = r#"{"major":"1","minor":"36","gitVersion":"v1.36.4","emulationMajor":"1","emulationMinor":"35"}"#;

/// The documents of a real server, whole. They are large: the first ones of each kind are enough.
pub fn recorded(count: usize) -> Vec<Vec<u8>> {
    let path = repository("crates/mvp-core/tests/fixtures/recorded/v1.36.4.json");
    let text = std::fs::read_to_string(path).expect("the fixture");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let of = |name: &str| {
        let documents = all[name].as_object().into_iter().flatten().map(|(_, document)| document);
        documents.map(Value::to_string).filter(|text| text.len() < 8000).take(count)
    };
    of("aggregated").chain(of("legacy")).map(String::into_bytes).collect()
}

/// Every document above.
pub fn documents() -> Vec<Vec<u8>> {
    let small = [AGGREGATED, OTHER, CORE, INDEX, VERSION].into_iter();
    let small = small.chain(LEGACY).chain(SWAGGER);
    small.map(|text| text.as_bytes().to_vec()).chain(recorded(6)).collect()
}

/// Words of JSON documents of discovery.
pub const WORDS: &[&str] = &[
    "\"kind\":",
    "\"apiVersion\":",
    "\"metadata\":",
    "\"items\":",
    "\"name\":",
    "\"versions\":",
    "\"version\":",
    "\"resources\":",
    "\"resource\":",
    "\"scope\":",
    "\"verbs\":",
    "\"get\"",
    "\"subresources\":",
    "\"subresource\":",
    "\"responseKind\":",
    "\"freshness\":",
    "\"Current\"",
    "\"groups\":",
    "\"groupVersion\":",
    "\"preferredVersion\":",
    "\"namespaced\":",
    "\"v1\"",
    "null",
    "true",
    "[]",
    "{}",
    "\\u0000",
    "\\ud800",
    "\"paths\":",
    "\"swagger\":\"2.0\"",
    "\"definitions\":",
    "APIGroupDiscoveryList",
    "apidiscovery.k8s.io/v2beta1",
    "APIResourceList",
    "1e999",
    "\0",
];
