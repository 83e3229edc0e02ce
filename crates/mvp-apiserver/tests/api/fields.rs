//! Unknown and mistyped fields of built-in kinds.

use http::{Method, Response};
use http_body_util::Full;
use mvp_apiserver::{ApiServer, Body, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::support::{read, request, send};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn server() -> ApiServer {
    let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
    ApiServer::new(spec, Storage::new())
}

fn deployment(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": spec })
}

async fn ask(server: &ApiServer, method: Method, path: &str, body: Value) -> Response<Body> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = request(method, path).header("content-type", kind);
    send(server, request.body(Full::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn strict_validation_refuses_unknown_fields() {
    let server = server();
    let path = format!("{DEPLOYMENTS}?fieldValidation=Strict");
    let body = deployment("a", json!({ "replicas": 1, "image": "x", "paused": true, "zone": "y" }));
    let (code, status) = read(ask(&server, Method::POST, &path, body).await).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
         unknown field \"spec.image\", unknown field \"spec.zone\""
    );

    let body = deployment("a", json!({ "replicas": 1 }));
    assert_eq!(ask(&server, Method::POST, &path, body).await.status(), 201);
    let path = format!("{DEPLOYMENTS}/a?fieldValidation=Strict");
    let (code, status) =
        read(ask(&server, Method::PATCH, &path, json!({ "spec": { "zone": 1 } })).await).await;
    assert_eq!((code.as_u16(), &status["reason"]), (422, &json!("Invalid")));
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with("strict decoding error: unknown field \"spec.zone\""), "{message}");
}

#[tokio::test]
async fn unknown_fields_are_dropped_with_a_warning() {
    let server = server();
    let body = deployment("a", json!({ "replicas": 1, "image": "x" }));
    let response = ask(&server, Method::POST, DEPLOYMENTS, body.clone()).await;
    assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"spec.image\\\"\"");
    let (code, object) = read(response).await;
    assert_eq!((code.as_u16(), &object["spec"]["replicas"]), (201, &json!(1)));
    assert!(object["spec"].get("image").is_none(), "{object}");

    let path = format!("{DEPLOYMENTS}/a?fieldValidation=Ignore");
    let response = ask(&server, Method::PUT, &path, body).await;
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("warning"));
}

#[tokio::test]
async fn values_of_the_wrong_type_are_refused() {
    let body = deployment("a", json!({ "replicas": "many" }));
    let (code, status) = read(ask(&server(), Method::POST, DEPLOYMENTS, body).await).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("json: cannot unmarshal string into Go struct field"), "{message}");
}
