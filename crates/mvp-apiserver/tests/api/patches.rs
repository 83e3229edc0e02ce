//! Merge patches and apply patches.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use mvp_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::{WIDGETS, make, read, request, send, server};

async fn patch(server: &ApiServer, path: &str, kind: &str, body: &str) -> (StatusCode, Value) {
    let request = request(Method::PATCH, path).header("content-type", kind);
    let body = Full::new(Bytes::from(body.to_owned()));
    read(send(server, request.body(body).unwrap()).await).await
}

/// RFC 7396, appendix A, as far as its targets are objects.
#[tokio::test]
async fn merge_patches_follow_rfc_7396() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for kind in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let server = server();
        for (index, (before, change, after)) in cases.iter().enumerate() {
            let name = format!("case-{index}");
            make(&server, &name).await;
            let path = format!("{WIDGETS}/{name}");
            // First everything is replaced, for which the merge must remove the existing fields.
            let whole = json!({ "spec": null }).to_string();
            patch(&server, &path, kind, &whole).await;
            let mut object = crate::support::get(&server, &path).await.1;
            object["spec"] = before.clone();
            crate::support::call(&server, Method::PUT, &path, object).await;

            let body = json!({ "spec": change }).to_string();
            let (code, patched) = patch(&server, &path, kind, &body).await;
            assert_eq!((code.as_u16(), &patched["spec"]), (200, after), "{change}");
        }
    }
}

#[tokio::test]
async fn a_patch_cannot_change_the_identity_of_an_object() {
    let server = server();
    let made = make(&server, "one").await;
    let path = format!("{WIDGETS}/one");
    let kind = "application/merge-patch+json; charset=utf-8";
    let cases = [
        (r#"{"metadata":{"name":"two"}}"#, 400, "BadRequest"),
        (r#"{"metadata":{"namespace":"other"}}"#, 400, "BadRequest"),
        (r#"{"metadata":{"resourceVersion":"1"}}"#, 409, "Conflict"),
        (r#"{"metadata":{"uid":"another"}}"#, 409, "Conflict"),
        (r#"{"kind":"Gear"}"#, 400, "BadRequest"),
        (r#"{"metadata":{"labels":{"a":1}}}"#, 400, "BadRequest"),
        (r#"{"metadata":7}"#, 400, "BadRequest"),
        ("[]", 400, "BadRequest"),
    ];
    for (body, code, reason) in cases {
        let (actual, status) = patch(&server, &path, kind, body).await;
        assert_eq!((actual.as_u16(), &status["reason"]), (code, &json!(reason)), "{body}");
    }
    let (code, emptied) = patch(&server, &path, kind, r#"{"metadata":null,"spec":null}"#).await;
    assert_eq!(code, 200);
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        assert_eq!(emptied["metadata"][field], made["metadata"][field], "{field}");
    }
    let (code, status) = patch(&server, &format!("{WIDGETS}/none"), kind, "{}").await;
    assert_eq!((code.as_u16(), &status["details"]["name"]), (404, &json!("none")));
}

#[tokio::test]
async fn an_apply_patch_creates_or_merges() {
    let server = server();
    let path = format!("{WIDGETS}/one?fieldManager=test");
    let kind = "application/apply-patch+yaml";
    let yaml =
        "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: one\nspec:\n  size: 3\n";
    let (code, made) = patch(&server, &path, kind, yaml).await;
    assert_eq!((code.as_u16(), &made["spec"]), (201, &json!({ "size": 3 })));

    let (code, merged) = patch(&server, &path, kind, r#"{"spec":{"color":"red"}}"#).await;
    assert_eq!((code.as_u16(), &merged["spec"]), (200, &json!({ "size": 3, "color": "red" })));

    let unnamed = format!("{WIDGETS}/one");
    let (code, status) = patch(&server, &unnamed, kind, yaml).await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().contains("fieldManager"));

    let status_path = format!("{WIDGETS}/none/status?fieldManager=test");
    assert_eq!(patch(&server, &status_path, kind, "{}").await.0, 404);
    let other = format!("{WIDGETS}/other?fieldManager=test");
    assert_eq!(patch(&server, &other, kind, yaml).await.0, 400);
    assert_eq!(patch(&server, &other, kind, "a: [").await.0, 400);
}

#[tokio::test]
async fn other_kinds_of_patches_are_refused() {
    let server = server();
    make(&server, "one").await;
    for kind in ["application/json-patch+json", "application/json", "", "text/plain"] {
        let (code, status) = patch(&server, &format!("{WIDGETS}/one"), kind, "{}").await;
        assert_eq!((code.as_u16(), &status["reason"]), (415, &json!("UnsupportedMediaType")));
    }
}
