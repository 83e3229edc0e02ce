//! Valid, invalid and too large bodies.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{WIDGETS, call, make, read, request, send, server, widget};

const LIMIT: usize = 3 << 20;

async fn post(server: &ApiServer, kind: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
    let request = request(Method::POST, WIDGETS).header("content-type", kind);
    read(send(server, request.body(Full::new(body.into())).unwrap()).await).await
}

#[tokio::test]
async fn bodies_that_are_not_objects() {
    let server = server();
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    for body in ["", "no json", "{", "[]", "7", "null", "{\"a\":\u{1}}", deep.as_str()] {
        let (code, status) = post(&server, "application/json", body.to_owned()).await;
        assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")), "{body}");
        assert_eq!(status["kind"], "Status");
    }
    let (code, _) = post(&server, "application/json", vec![b'{', 0xff, b'}']).await;
    assert_eq!(code, 400);
    let (code, _) = post(&server, "application/yaml", vec![0xff]).await;
    assert_eq!(code, 400);
    assert_eq!(server.storage().resource_version(), 1);
}

#[tokio::test]
async fn objects_of_another_kind_or_namespace_are_refused() {
    let server = server();
    let cases = [
        (json!({ "kind": "Gear", "metadata": { "name": "x" } }), 400, "Gear in version \"v1\""),
        (
            json!({ "apiVersion": "example.com/v1beta1", "metadata": { "name": "x" } }),
            400,
            "the API version in the data (example.com/v1beta1) does not match the expected API \
             version (example.com/v1)",
        ),
        (json!({ "metadata": { "name": "x", "namespace": "y" } }), 400, "the namespace of the"),
        (json!({ "metadata": { "name": 7 } }), 400, "metadata.name"),
        (json!({ "metadata": "x" }), 400, "metadata"),
        (json!({ "metadata": { "name": "x", "labels": { "a": 1 } } }), 400, "metadata.labels"),
        (json!({ "metadata": { "name": "x", "resourceVersion": "5" } }), 400, "resourceVersion"),
        (json!({}), 422, "metadata.name: Required value: name or generateName is required"),
        (json!({ "metadata": { "name": "Bad_Name" } }), 422, "a lowercase RFC 1123 subdomain"),
        (
            json!({ "metadata": { "name": "a".repeat(254) } }),
            422,
            "must be no more than 253 characters",
        ),
        (json!({ "metadata": { "name": "a..b" } }), 422, "a lowercase RFC 1123"),
        (json!({ "metadata": { "generateName": "A-" } }), 422, "a lowercase RFC 1123"),
    ];
    for (body, code, message) in cases {
        let (actual, status) = call(&server, Method::POST, WIDGETS, body.clone()).await;
        assert_eq!(actual, code, "{body}");
        assert!(status["message"].as_str().unwrap().contains(message), "{status}");
    }
    let (_, status) = call(&server, Method::POST, WIDGETS, json!({})).await;
    let expected = json!({
        "group": "example.com",
        "kind": "Widget",
        "causes": [{
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }],
    });
    assert_eq!(status["details"], expected);
}

#[tokio::test]
async fn an_update_must_name_the_object_in_the_path() {
    let server = server();
    make(&server, "one").await;
    let path = format!("{WIDGETS}/one");
    let (code, status) = call(&server, Method::PUT, &path, widget("two")).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the name of the object (two) does not match the name on the URL (one)"
    );
    let (code, _) = call(&server, Method::PUT, &path, json!({ "spec": {} })).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn the_media_type_of_a_body_is_checked() {
    let server = server();
    for kind in ["text/plain", "application/cbor", "application/merge-patch+json"] {
        let (code, status) = post(&server, kind, widget("x").to_string()).await;
        let expected = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "the body of the request was in an unknown format - accepted media types \
                        include: application/json, application/yaml, \
                        application/vnd.kubernetes.protobuf",
            "reason": "UnsupportedMediaType",
            "code": 415,
        });
        assert_eq!((code.as_u16(), status), (415, expected), "{kind}");
    }
    let yaml = "metadata:\n  name: from-yaml\nspec:\n  size: 1\n  on: true\n";
    let (code, made) = post(&server, "application/yaml", yaml).await;
    assert_eq!((code.as_u16(), &made["spec"]), (201, &json!({ "size": 1, "on": true })));
    let body = widget("with-charset").to_string();
    assert_eq!(post(&server, "application/json; charset=utf-8", body).await.0, 201);
}

#[tokio::test]
async fn a_body_over_the_size_limit_is_refused() {
    let server = server();
    let empty = json!({ "metadata": { "name": "large" }, "data": "" }).to_string().len();
    let of_size = |size: usize| {
        json!({ "metadata": { "name": "large" }, "data": "x".repeat(size - empty) }).to_string()
    };
    let (code, status) = post(&server, "application/json", of_size(LIMIT + 1)).await;
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Request entity is too large: limit is 3145728",
        "reason": "RequestEntityTooLarge",
        "code": 413,
    });
    assert_eq!((code.as_u16(), status), (413, expected));
    assert_eq!(post(&server, "application/json", of_size(LIMIT)).await.0, 201);
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let server = server();
    let chunk = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; 64 << 10])));
    let body = StreamBody::new(stream::repeat_with(chunk));
    let request = request(Method::POST, WIDGETS).body(body).unwrap();
    let (code, _) = read(server.oneshot(request).await.unwrap()).await;
    assert_eq!(code, 413);
}

#[tokio::test]
async fn an_incomplete_body_changes_nothing() {
    let server = server();
    let whole = widget("one").to_string();
    let frames = [Ok(Frame::data(Bytes::from(whole))), Err(io::Error::other("cut"))];
    let body = StreamBody::new(stream::iter(frames));
    let request = request(Method::POST, WIDGETS).body(body).unwrap();
    let (code, status) = read(server.clone().oneshot(request).await.unwrap()).await;
    assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")));
    assert_eq!(server.processed(&Method::POST), 0);
    assert_eq!(server.storage().resource_version(), 1);
}

#[tokio::test]
async fn protobuf_bodies_are_decoded() {
    // `kubectl create configmap a --from-literal=k=v`: an envelope, then metadata and data.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
    let groups = vec![
        GroupSpec::new("").version("v1", [ResourceSpec::namespaced("configmaps", "ConfigMap")]),
    ];
    let spec = ServerSpec { groups, ..ServerSpec::default() };
    let server = ApiServer::new(spec, Storage::new());
    let path = "/api/v1/namespaces/default/configmaps";
    let post = |body: &'static [u8]| {
        request(Method::POST, path)
            .header("content-type", "application/vnd.kubernetes.protobuf")
            .body(Full::from(body))
            .unwrap()
    };
    let (code, object) = read(send(&server, post(body)).await).await;
    assert_eq!((code.as_u16(), &object["data"]["k"]), (201, &json!("v")), "{object}");
    let (code, status) = read(send(&server, post(b"k8s\0\xff")).await).await;
    assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")), "{status}");
}
