//! Reviews of what callers may do. Without access rules, everyone may do everything.

use http::Method;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage, Verb};
use serde_json::{Value, json};

use crate::support::call;

fn reviewer() -> ApiServer {
    let question = |spec: ResourceSpec| ResourceSpec { verbs: vec![Verb::Create], ..spec };
    let resources = [
        question(ResourceSpec::cluster("selfsubjectaccessreviews", "SelfSubjectAccessReview")),
        question(ResourceSpec::cluster("selfsubjectrulesreviews", "SelfSubjectRulesReview")),
        question(ResourceSpec::cluster("subjectaccessreviews", "SubjectAccessReview")),
        question(ResourceSpec::namespaced("localsubjectaccessreviews", "LocalSubjectAccessReview")),
    ];
    let groups = vec![GroupSpec::new("authorization.k8s.io").version("v1", resources)];
    ApiServer::new(ServerSpec { groups, ..ServerSpec::default() }, Storage::new())
}

async fn ask(resource: &str, spec: Value) -> (u16, Value) {
    let server = reviewer();
    let path = format!("/apis/authorization.k8s.io/v1/{resource}");
    let (code, answer) = call(&server, Method::POST, &path, json!({ "spec": spec })).await;
    assert_eq!(server.storage().resource_version(), 1);
    (code.as_u16(), answer)
}

#[tokio::test]
async fn access_reviews_return_their_question_and_the_answer() {
    let spec = json!({ "resourceAttributes": { "verb": "list", "resource": "pods" } });
    let expected = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": { "allowed": true },
    });
    assert_eq!(ask("selfsubjectaccessreviews", spec).await, (201, expected));

    let spec = json!({ "nonResourceAttributes": { "verb": "get", "path": "/version" } });
    let (code, answer) = ask("selfsubjectaccessreviews", spec).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));

    let spec =
        json!({ "user": "alice", "resourceAttributes": { "verb": "get", "namespace": "x" } });
    assert_eq!(ask("subjectaccessreviews", spec.clone()).await.0, 201);
    assert_eq!(ask("namespaces/x/localsubjectaccessreviews", spec.clone()).await.0, 201);
    let (code, status) = ask("namespaces/y/localsubjectaccessreviews", spec).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().ends_with("must match metadata.namespace"));
}

#[tokio::test]
async fn incomplete_reviews_are_invalid() {
    let attributes = json!({ "verb": "get" });
    let cases = [
        (
            "selfsubjectaccessreviews",
            json!({}),
            "SelfSubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.resourceAttributes: \
             Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be \
             specified",
        ),
        (
            "subjectaccessreviews",
            json!({ "resourceAttributes": attributes }),
            "SubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \
             \"\": at least one of user or group must be specified",
        ),
    ];
    for (resource, spec, message) in cases {
        let (code, status) = ask(resource, spec).await;
        assert_eq!((code, &status["message"]), (422, &json!(message)));
    }
}

#[tokio::test]
async fn rules_name_everything_that_is_allowed() {
    let (code, answer) = ask("selfsubjectrulesreviews", json!({ "namespace": "default" })).await;
    assert_eq!(code, 201);
    let expected = json!({
        "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
        "incomplete": false,
    });
    assert_eq!(answer["status"], expected);
    assert_eq!(ask("selfsubjectrulesreviews", json!({})).await.0, 400);
}
