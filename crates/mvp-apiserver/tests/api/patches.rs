//! Patches of objects: merge, JSON and strategic merge patches.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use mvp_apiserver::{ApiServer, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::support::{WIDGETS, make, read, request, send, server};

pub(crate) async fn patch(
    server: &ApiServer,
    path: &str,
    kind: &str,
    body: &str,
) -> (StatusCode, Value) {
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
    let kind = "application/merge-patch+json";
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

#[tokio::test]
async fn a_json_patch_sees_the_whole_object_and_changes_all_or_nothing() {
    let server = server();
    let made = make(&server, "one").await;
    let path = format!("{WIDGETS}/one");
    let kind = "application/json-patch+json";
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let body = json!([
        { "op": "test", "path": "/kind", "value": "Widget" },
        { "op": "test", "path": "/apiVersion", "value": "example.com/v1" },
        { "op": "test", "path": "/metadata/resourceVersion", "value": version },
        { "op": "replace", "path": "/spec/size", "value": 2 },
    ])
    .to_string();
    let (code, patched) = patch(&server, &path, kind, &body).await;
    assert_eq!((code.as_u16(), &patched["spec"]), (200, &json!({ "size": 2 })));
    assert_eq!(patched["metadata"]["generation"], 2);

    // The version is another one now.
    let (code, status) = patch(&server, &path, kind, &body).await;
    let message = "the server rejected our request due to an error in our request";
    assert_eq!((code.as_u16(), &status["message"]), (422, &json!(message)));
    assert_eq!((&status["reason"], &status["details"]), (&json!("Invalid"), &json!({})));
    let after_change = r#"[{"op":"remove","path":"/spec"},{"op":"remove","path":"/none"}]"#;
    assert_eq!(patch(&server, &path, kind, after_change).await.0, 422);
    assert_eq!(crate::support::get(&server, &path).await.1["spec"], json!({ "size": 2 }));

    let cases = [
        (r#"[{"op":"replace","path":"/metadata/name","value":"two"}]"#, 400),
        (r#"[{"op":"replace","path":"/kind","value":"Gear"}]"#, 400),
        (r#"[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]"#, 409),
        (r#"[{"op":"replace","path":"","value":[]}]"#, 422),
        (r#"{"op":"remove","path":"/spec"}"#, 400),
        ("", 400),
    ];
    for (body, expected) in cases {
        assert_eq!(patch(&server, &path, kind, body).await.0, expected, "{body}");
    }
    let many = vec![r#"{"op":"test","path":"/spec/size","value":2}"#; 10_001].join(",");
    let (code, status) = patch(&server, &path, kind, &format!("[{many}]")).await;
    assert_eq!((code.as_u16(), &status["reason"]), (413, &json!("RequestEntityTooLarge")));
    assert_eq!(patch(&server, &format!("{WIDGETS}/none"), kind, "[]").await.0, 404);
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
async fn other_kinds_of_patches_are_refused() {
    let server = server();
    make(&server, "one").await;
    let kinds = [
        "application/strategic-merge-patch+json",
        "application/apply-patch+cbor",
        "application/json",
        "",
        "text/plain",
    ];
    for kind in kinds {
        let (code, status) = patch(&server, &format!("{WIDGETS}/one"), kind, "{}").await;
        assert_eq!((code.as_u16(), &status["reason"]), (415, &json!("UnsupportedMediaType")));
        let text = "the body of the request was in an unknown format - accepted media types include: \
                    application/json-patch+json, application/merge-patch+json, \
                    application/apply-patch+yaml";
        assert_eq!(status["message"], text);
    }
}

#[tokio::test]
async fn a_strategic_merge_patch_merges_lists_by_the_keys_of_the_release() {
    let spec = Release::V1_36.spec("a", &RuntimeConfig::default()).unwrap();
    let server = ApiServer::new(spec, Storage::new());
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let containers = json!([{ "name": "a", "image": "a:1" }, { "name": "b", "image": "b:1" }]);
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": containers },
            },
        },
    });
    let (code, made) = crate::support::call(&server, Method::POST, deployments, body).await;
    assert_eq!(code, 201, "{made}");

    let path = format!("{deployments}/web");
    let kind = "application/strategic-merge-patch+json";
    let change = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "b", "image": "b:2" }, { "name": "a", "$patch": "delete" },
    ] } } } });
    let (code, patched) = patch(&server, &path, kind, &change.to_string()).await;
    assert_eq!(code, 200, "{patched}");
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!((containers.as_array().unwrap().len(), &containers[0]["image"]), (1, &json!("b:2")));
    assert_eq!(patched["metadata"]["generation"], 2);

    let odd = r#"{"spec":{"selector":{"$patch":"twist"}}}"#;
    let (code, status) = patch(&server, &path, kind, odd).await;
    let text = "unknown patch type: twist in map: map[$patch:twist]";
    assert_eq!((code.as_u16(), &status["message"]), (500, &json!(text)));
    let (code, status) = patch(&server, &path, "text/plain", "{}").await;
    assert_eq!(code, 415);
    let text = "the body of the request was in an unknown format - accepted media types include: \
                application/json-patch+json, application/merge-patch+json, \
                application/strategic-merge-patch+json, application/apply-patch+yaml";
    assert_eq!(status["message"], text);
}
