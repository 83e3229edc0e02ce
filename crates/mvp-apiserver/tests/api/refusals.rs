//! Errors, in the exact form of real servers.

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use mvp_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::{WIDGETS, call, get, make, request, send, server, widget};

/// The status, media type and text of a response.
async fn raw(server: &ApiServer, method: Method, path: &str) -> (u16, String, Bytes) {
    let request = request(method, path).body(Full::default()).unwrap();
    let response = send(server, request).await;
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let code = response.status().as_u16();
    (code, content_type, response.into_body().collect().await.unwrap().to_bytes())
}

fn not_routed() -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server could not find the requested resource",
        "reason": "NotFound",
        "details": {},
        "code": 404,
    })
}

fn not_allowed() -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server does not allow this method on the requested resource",
        "reason": "MethodNotAllowed",
        "details": {},
        "code": 405,
    })
}

#[tokio::test]
async fn an_unknown_group_or_page_is_plain_text() {
    let server = server();
    let paths = [
        "/apis/unknown.com",
        "/apis/unknown.com/v1",
        "/apis/unknown.com/v1/things",
        "/apis/unknown.com/v1/namespaces/default/things/x",
        "/apis//",
        "//apis/example.com/v1/gears",
        "/unknown",
        "/openapi/v3",
        "/metrics",
    ];
    for path in paths {
        let page = Bytes::from_static(b"404 page not found\n");
        let expected = (404, "text/plain; charset=utf-8".to_owned(), page);
        assert_eq!(raw(&server, Method::GET, path).await, expected, "{path}");
    }
    let (code, content_type, _) = raw(&server, Method::POST, "/apis/unknown.com/v1").await;
    assert_eq!((code, content_type.as_str()), (404, "text/plain; charset=utf-8"));
}

#[tokio::test]
async fn an_unknown_part_of_a_known_group_is_a_status_without_details() {
    let server = server();
    make(&server, "one").await;
    let paths = [
        "/apis/example.com/v9".to_owned(),
        "/apis/example.com/v9/widgets".to_owned(),
        "/apis/example.com/v1/things".to_owned(),
        "/apis/example.com/v1/namespaces/default/things/x".to_owned(),
        "/api/v9".to_owned(),
        "/api/v1/pods".to_owned(),
        format!("{WIDGETS}/one/scale"),
        // Too many segments.
        format!("{WIDGETS}/one/status/more"),
        "/api/v1/namespaces/default/status/more".to_owned(),
        "/api/v1/namespaces/default/namespaces/more".to_owned(),
        // The wrong scope.
        "/apis/example.com/v1/widgets/one".to_owned(),
        "/apis/example.com/v1/namespaces/default/gears".to_owned(),
        // Empty segments.
        "/apis/example.com/v1//gears".to_owned(),
        "/apis/example.com//v1/gears".to_owned(),
        "/apis/example.com/v1/namespaces//widgets".to_owned(),
        format!("{WIDGETS}//one"),
        format!("{WIDGETS}//status"),
        "/apis/example.com/v1/proxy/gears/x".to_owned(),
    ];
    for path in paths {
        let (code, status) = get(&server, &path).await;
        assert_eq!((code.as_u16(), status), (404, not_routed()), "{path}");
    }
    let (_, _, body) = raw(&server, Method::GET, "/apis/example.com/v9").await;
    let text = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
                \"message\":\"the server could not find the requested resource\",\
                \"reason\":\"NotFound\",\"details\":{},\"code\":404}\n";
    assert_eq!(body, text);
}

#[tokio::test]
async fn trailing_slashes_are_ignored() {
    let server = server();
    make(&server, "one").await;
    let paths = [
        "/apis".to_owned(),
        "/apis/example.com".to_owned(),
        "/apis/example.com/v1".to_owned(),
        WIDGETS.to_owned(),
        format!("{WIDGETS}/one"),
        format!("{WIDGETS}/one/status"),
        "/api/v1".to_owned(),
    ];
    for path in paths {
        let clean = get(&server, &path).await;
        assert_eq!(clean.0, 200, "{path}");
        assert_eq!(get(&server, &format!("{path}/")).await, clean, "{path}");
    }
    let two = format!("{WIDGETS}/");
    assert_eq!(call(&server, Method::POST, &two, widget("two")).await.0, 201);
    let encoded = "/apis/example%2Ecom/v1/namespaces/default/widgets/%74wo";
    assert_eq!(get(&server, encoded).await.0, 200);
}

#[tokio::test]
async fn the_404_of_a_missing_object_names_it() {
    let server = server();
    let (code, status) = get(&server, &format!("{WIDGETS}/x")).await;
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "widgets.example.com \"x\" not found",
        "reason": "NotFound",
        "details": { "name": "x", "group": "example.com", "kind": "widgets" },
        "code": 404,
    });
    assert_eq!((code.as_u16(), &status), (404, &expected));
    for (method, body) in
        [(Method::PUT, widget("x")), (Method::PATCH, json!({})), (Method::DELETE, Value::Null)]
    {
        let (_, status) = call(&server, method.clone(), &format!("{WIDGETS}/x"), body).await;
        assert_eq!(status, expected, "{method}");
    }

    let (_, status) = get(&server, "/api/v1/namespaces/default/configmaps/x").await;
    assert_eq!(status["message"], "configmaps \"x\" not found");
    assert_eq!(status["details"], json!({ "name": "x", "kind": "configmaps" }));
}

#[tokio::test]
async fn the_409_of_an_existing_object_names_it() {
    let server = server();
    make(&server, "x").await;
    let (code, status) = call(&server, Method::POST, WIDGETS, widget("x")).await;
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "widgets.example.com \"x\" already exists",
        "reason": "AlreadyExists",
        "details": { "name": "x", "group": "example.com", "kind": "widgets" },
        "code": 409,
    });
    assert_eq!((code.as_u16(), status), (409, expected));
}

#[tokio::test]
async fn unsupported_methods_are_405() {
    let server = server();
    make(&server, "one").await;
    let one = format!("{WIDGETS}/one");
    let status = format!("{one}/status");
    let cases = [
        (Method::POST, one.as_str()),
        (Method::PUT, WIDGETS),
        (Method::PATCH, WIDGETS),
        (Method::DELETE, &status),
        (Method::POST, &status),
        (Method::OPTIONS, &one),
        (Method::POST, "/apis/example.com/v1/widgets"),
        (Method::DELETE, "/apis/example.com/v1/widgets"),
        (Method::POST, "/apis/example.com/v1/readings"),
        (Method::DELETE, "/apis/example.com/v1/readings/x"),
        (Method::POST, "/apis/example.com/v1/watch/gears"),
        (Method::GET, "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        (Method::POST, "/apis"),
        (Method::POST, "/api/v1"),
        (Method::DELETE, "/apis/example.com"),
        (Method::PUT, "/apis/example.com/v1/"),
        (Method::POST, "/version"),
    ];
    for (method, path) in cases {
        let (code, status) = call(&server, method.clone(), path, Value::Null).await;
        assert_eq!((code.as_u16(), status), (405, not_allowed()), "{method} {path}");
    }
    let (_, status) = get(&server, "/apis/example.com/v1/readings?watch=true").await;
    assert_eq!(status, not_allowed());
}

#[tokio::test]
async fn head_has_no_body() {
    let server = server();
    assert_eq!(raw(&server, Method::HEAD, "/apis").await.2, "");
    let (code, _, body) = raw(&server, Method::HEAD, WIDGETS).await;
    assert_eq!((code, body), (405, Bytes::new()));
}

#[tokio::test]
async fn invalid_selectors_and_numbers_are_400() {
    let server = server();
    for query in [
        "labelSelector=a+in+b",
        "fieldSelector=spec.size%3D1",
        "fieldSelector=metadata.name",
        "resourceVersion=abc",
        "watch=true&resourceVersion=-1",
        "watch=true&timeoutSeconds=soon",
    ] {
        let (code, status) = get(&server, &format!("{WIDGETS}?{query}")).await;
        assert_eq!((code.as_u16(), &status["reason"]), (400, &json!("BadRequest")), "{query}");
    }
    let (_, status) = get(&server, &format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await;
    assert!(status["message"].as_str().unwrap().ends_with("field label not supported: spec.size"));
}
