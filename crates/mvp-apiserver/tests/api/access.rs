//! Authorization by a few fixed groups, with the texts of a real server.

use http::{Method, Request};
use http_body_util::Full;
use mvp_apiserver::{Access, Caller};
use serde_json::{Value, json};

use crate::support::{WIDGETS, read, send, server, widget};

fn caller(name: &str, groups: &[&str]) -> Caller {
    Caller { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect() }
}

async fn ask(caller: Caller, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = Request::builder().method(method).uri(path).body(Full::from(body)).unwrap();
    request.extensions_mut().insert(caller);
    let response = send(&server().with_access(Access::FixedGroups), request).await;
    let code = response.status().as_u16();
    match response.headers()["content-type"].to_str().unwrap() {
        "application/json" => (code, read(response).await.1),
        _ => (code, Value::Null),
    }
}

#[tokio::test]
async fn viewers_read_and_do_not_write() {
    let viewer = || caller("viewer", &["viewers", "system:authenticated"]);
    assert_eq!(ask(viewer(), Method::GET, WIDGETS, Value::Null).await.0, 200);
    assert_eq!(ask(viewer(), Method::GET, "/apis", Value::Null).await.0, 200);
    let (code, refusal) = ask(viewer(), Method::POST, WIDGETS, widget("one")).await;
    assert_eq!(code, 403);
    assert_eq!(
        refusal["message"],
        "widgets.example.com is forbidden: User \"viewer\" cannot create resource \"widgets\" in API \
         group \"example.com\" in the namespace \"default\""
    );
    assert_eq!(refusal["reason"], "Forbidden");
    assert_eq!(refusal["details"], json!({"group": "example.com", "kind": "widgets"}));
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(ask(viewer(), Method::POST, review, json!({})).await.0, 201);
}

#[tokio::test]
async fn anonymous_callers_see_health_and_version_only() {
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(ask(Caller::anonymous(), Method::GET, path, Value::Null).await.0, 200, "{path}");
    }
    for path in ["/", "/api", "/apis", WIDGETS, "/apis/unknown.example.com/v1/things", "/versions"]
    {
        assert_eq!(ask(Caller::anonymous(), Method::GET, path, Value::Null).await.0, 403, "{path}");
    }
    let (_, refusal) = ask(Caller::anonymous(), Method::GET, "/apis", Value::Null).await;
    let message = "forbidden: User \"system:anonymous\" cannot get path \"/apis\"";
    assert_eq!((&refusal["message"], &refusal["details"]), (&json!(message), &json!({})));
}

#[tokio::test]
async fn controllers_delete_and_do_not_create() {
    let controller = || caller("kcm", &["system:controllers", "system:authenticated"]);
    assert_eq!(ask(controller(), Method::DELETE, WIDGETS, Value::Null).await.0, 200);
    assert_eq!(ask(controller(), Method::POST, WIDGETS, widget("one")).await.0, 403);
    let master = caller("admin", &["system:masters"]);
    assert_eq!(ask(master, Method::POST, WIDGETS, widget("one")).await.0, 201);
}

#[tokio::test]
async fn an_apply_that_creates_needs_the_verb_create() {
    let controller = caller("kcm", &["system:controllers", "system:authenticated"]);
    let server = server().with_access(Access::FixedGroups);
    let apply = |caller: Caller| {
        let object = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: one\n";
        let mut request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{WIDGETS}/one?fieldManager=test"))
            .header("content-type", "application/apply-patch+yaml")
            .body(Full::from(object))
            .unwrap();
        request.extensions_mut().insert(caller);
        send(&server, request)
    };
    let (code, refusal) = read(apply(controller.clone()).await).await;
    assert_eq!(code, 403);
    assert_eq!(
        refusal["message"],
        "widgets.example.com \"one\" is forbidden: User \"kcm\" cannot create resource \"widgets\" \
         in API group \"example.com\" in the namespace \"default\""
    );
    assert_eq!(apply(caller("admin", &["system:masters"])).await.status(), 201);
    assert_eq!(apply(controller).await.status(), 200);
}
