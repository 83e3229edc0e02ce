//! The options of writes, and what real servers set in new objects.

use http::Method;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage, Verb};
use serde_json::{Value, json};

use crate::support::{WIDGETS, call, get, make, server, widget};

#[tokio::test]
async fn options_of_writes_are_checked() {
    let server = server();
    make(&server, "one").await;
    let one = format!("{WIDGETS}/one");
    let long = "m".repeat(129);
    let cases = [
        (
            Method::POST,
            format!("{WIDGETS}?dryRun=Some"),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: \"Some\": \
             supported values: \"All\"",
        ),
        (
            Method::PUT,
            format!("{one}?fieldValidation=Maybe"),
            "UpdateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \
             \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        (
            Method::PATCH,
            format!("{one}?fieldManager={long}"),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more \
             than 128 bytes",
        ),
        (
            Method::DELETE,
            format!("{one}?dryRun=All&dryRun=None"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: \"None\": \
             supported values: \"All\"",
        ),
    ];
    for (method, path, message) in cases {
        let (code, status) = call(&server, method, &path, widget("one")).await;
        assert_eq!((code.as_u16(), &status["message"]), (422, &json!(message)), "{path}");
    }
    let path = format!("{WIDGETS}?fieldManager=test&fieldValidation=Strict&dryRun=All");
    assert_eq!(call(&server, Method::POST, &path, widget("two")).await.0, 201);
}

fn core_server() -> ApiServer {
    let question = ResourceSpec {
        verbs: vec![Verb::Create],
        ..ResourceSpec::cluster("questions", "Question")
    };
    let groups = vec![
        GroupSpec::new("").version(
            "v1",
            [
                ResourceSpec::namespaced("configmaps", "ConfigMap"),
                ResourceSpec::namespaced("pods", "Pod").with_status(),
                ResourceSpec::namespaced("services", "Service").with_status(),
                ResourceSpec::cluster("nodes", "Node").with_status(),
                ResourceSpec::cluster("namespaces", "Namespace"),
            ],
        ),
        GroupSpec::new("rbac.authorization.k8s.io")
            .version("v1", [ResourceSpec::cluster("clusterroles", "ClusterRole")]),
        GroupSpec::new("example.com").version("v1", [question]),
    ];
    ApiServer::new(ServerSpec { groups, ..ServerSpec::default() }, Storage::new())
}

#[tokio::test]
async fn new_objects_have_what_their_kind_needs() {
    let server = core_server();
    let made = async |path: &str| {
        let body = json!({ "metadata": { "name": "one" }, "status": { "phase": "Sent" } });
        let (code, made) = call(&server, Method::POST, path, body).await;
        assert_eq!(code, 201, "{made}");
        made
    };
    let default = "/api/v1/namespaces/default";
    let pod = made(&format!("{default}/pods")).await;
    assert_eq!(
        (&pod["status"], &pod["metadata"]["generation"]),
        (&json!({ "phase": "Pending" }), &json!(1))
    );
    let node = made("/api/v1/nodes").await;
    assert_eq!(
        (&node["status"]["phase"], node["metadata"].get("generation")),
        (&json!("Sent"), None)
    );

    let path = format!("{default}/configmaps");
    let config_map = made(&path).await;
    assert_eq!(config_map["metadata"].get("generation"), None);
    let change = json!({ "data": { "a": "b" } });
    let (_, changed) = call(&server, Method::PATCH, &format!("{path}/one"), change).await;
    assert_eq!((&changed["data"]["a"], changed["metadata"].get("generation")), (&json!("b"), None));
}

#[tokio::test]
async fn names_follow_the_rules_of_their_kind() {
    let server = core_server();
    let name = |name: &str| json!({ "metadata": { "name": name } });
    let (code, status) = call(&server, Method::POST, "/api/v1/namespaces", name("a.b")).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("a lowercase RFC 1123 label must"));
    let services = "/api/v1/namespaces/default/services";
    let (code, status) = call(&server, Method::POST, services, name("1st")).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("a DNS-1035 label must"));
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_eq!(call(&server, Method::POST, roles, name("system:reader")).await.0, 201);
    assert_eq!(get(&server, &format!("{roles}/system:reader")).await.0, 200);
}

#[tokio::test]
async fn a_question_is_not_stored() {
    let server = core_server();
    let path = "/apis/example.com/v1/questions";
    let (code, status) = call(&server, Method::POST, path, Value::Null).await;
    assert_eq!(code, 405);
    assert_eq!(status["message"], "create is not supported on resources of kind \"questions\"");
    assert_eq!(server.storage().resource_version(), 1);
}

#[tokio::test]
async fn metadata_is_checked() {
    let server = server();
    let owner = |owner: Value| json!({ "ownerReferences": [owner] });
    let whole = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" });
    let controller =
        json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true });
    let cases = [
        (
            json!({ "labels": { "a": "b c" } }),
            422,
            "metadata.labels: Invalid value: \"b c\": a valid label",
        ),
        (
            json!({ "labels": { "a b": "c" } }),
            422,
            "metadata.labels: Invalid value: \"a b\": name part",
        ),
        (
            json!({ "annotations": { "a": "x".repeat(300 << 10) } }),
            422,
            "metadata.annotations: Too long",
        ),
        (json!({ "finalizers": ["a/b/c"] }), 422, "metadata.finalizers: Invalid value"),
        (json!({ "finalizers": "a" }), 400, "metadata.finalizers"),
        (
            owner(json!({ "kind": "Node", "name": "n", "uid": "u" })),
            422,
            "version must not be empty",
        ),
        (
            owner(json!({ "apiVersion": "v1", "kind": "Node", "name": "n" })),
            422,
            "uid: Invalid value",
        ),
        (owner(json!("node")), 400, "metadata.ownerReferences"),
        (json!({ "ownerReferences": { "a": 1 } }), 400, "metadata.ownerReferences"),
        (
            json!({ "ownerReferences": [controller, controller] }),
            422,
            "Only one reference can have",
        ),
    ];
    for (metadata, code, message) in cases {
        let mut body = widget("one");
        for (key, value) in metadata.as_object().unwrap() {
            body["metadata"][key] = value.clone();
        }
        let (actual, status) = call(&server, Method::POST, WIDGETS, body).await;
        assert_eq!(actual, code, "{message}");
        assert!(status["message"].as_str().unwrap().contains(message), "{status}");
    }
    let mut body = widget("one");
    body["metadata"]["ownerReferences"] = json!([whole]);
    assert_eq!(call(&server, Method::POST, WIDGETS, body).await.0, 201);
}
