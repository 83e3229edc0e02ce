//! OpenAPI documents of a server of a release, and none of another.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use http::{HeaderName, Method, Response};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::{ApiServer, Body, Release, RuntimeConfig, Storage};
use serde_json::{Value, json};

use crate::support::{get, request, send, server};

fn released(config: &str) -> ApiServer {
    let config = RuntimeConfig::parse(config).unwrap();
    ApiServer::new(Release::V1_36.spec("a", &config).unwrap(), Storage::new())
}

async fn ask(server: &ApiServer, path: &str, header: HeaderName, value: &str) -> Response<Body> {
    let request = request(Method::GET, path).header(header, value);
    send(server, request.body(Full::<Bytes>::default()).unwrap()).await
}

async fn url(server: &ApiServer, key: &str) -> String {
    let (_, index) = get(server, "/openapi/v3").await;
    index["paths"][key]["serverRelativeURL"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_index_has_a_document_for_each_version() {
    let server = released("batch/v1=false");
    let (code, index) = get(&server, "/openapi/v3").await;
    assert_eq!(code, 200);
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
    assert!(!paths.contains_key("apis/batch/v1"), "it is off");
    for (key, entry) in paths {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let hash = url.strip_prefix(&format!("/openapi/v3/{key}?hash=")).unwrap();
        // Real hashes are SHA-512 in upper case.
        assert!(hash.len() == 128 && hash.bytes().all(|b| b"0123456789ABCDEF".contains(&b)));
    }
}

#[tokio::test]
async fn a_document_tells_the_kinds_of_paths_and_their_schemas() {
    let server = released("");
    let (code, document) = get(&server, &url(&server, "apis/apps/v1").await).await;
    assert_eq!(code, 200);
    assert_eq!(document["openapi"], "3.0.0");
    let gvk = json!({ "group": "apps", "kind": "Deployment", "version": "v1" });
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk);
    // kubectl asks for this one before it validates.
    let parameter = |name: &str| {
        let mut all = patch["parameters"].as_array().unwrap().iter();
        all.any(|entry| entry["name"] == name && entry["in"] == "query")
    };
    assert!(parameter("fieldValidation") && parameter("fieldManager"));
    let scale = &document["paths"][format!("{path}/scale")]["get"];
    assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "Scale");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let with_kind = |schema: &&Value| schema["x-kubernetes-group-version-kind"] == json!([gvk]);
    let deployment = schemas.values().find(with_kind).unwrap();
    assert!(deployment["properties"]["spec"].is_object());
    assert!(schemas.contains_key("io.k8s.api.autoscaling.v1.Scale"));
    assert!(schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
}

#[tokio::test]
async fn hashes_differ_when_documents_do() {
    let (whole, part) = (released(""), released("apps/v1/daemonsets=false"));
    assert_ne!(url(&whole, "apis/apps/v1").await, url(&part, "apis/apps/v1").await);
    assert_eq!(url(&whole, "api/v1").await, url(&part, "api/v1").await);
}

#[tokio::test]
async fn a_known_document_is_not_sent_again() {
    let server = released("");
    for path in ["/openapi/v3".to_owned(), url(&server, "api/v1").await] {
        let response = ask(&server, &path, IF_NONE_MATCH, "\"other\"").await;
        assert_eq!(response.status(), 200);
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        let again = ask(&server, &path, IF_NONE_MATCH, &etag).await;
        assert_eq!(again.status(), 304);
        assert_eq!(again.headers()["etag"], etag.as_str());
        assert!(again.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn documents_are_compressed_on_request() {
    let server = released("");
    let path = url(&server, "api/v1").await;
    let plain = ask(&server, &path, ACCEPT_ENCODING, "gzip;q=0, br").await;
    assert!(!plain.headers().contains_key("content-encoding"));
    let plain = plain.into_body().collect().await.unwrap().to_bytes();
    let response = ask(&server, &path, ACCEPT_ENCODING, "gzip").await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let compressed = response.into_body().collect().await.unwrap().to_bytes();
    let mut text = Vec::new();
    GzDecoder::new(&*compressed).read_to_end(&mut text).unwrap();
    assert!(text == plain && compressed.len() < plain.len() / 5);
}

#[tokio::test]
async fn unknown_documents_and_servers_without_a_release_get_404() {
    let released = released("batch/v1=false");
    for path in ["/openapi/v3/apis/batch/v1", "/openapi/v3/api", "/openapi/v2"] {
        let response = ask(&released, path, ACCEPT_ENCODING, "identity").await;
        assert_eq!(response.status(), 404, "{path}");
    }
    for path in ["/openapi/v3", "/openapi/v3/api/v1"] {
        let response = ask(&server(), path, ACCEPT_ENCODING, "identity").await;
        assert_eq!(response.status(), 404, "{path}");
    }
}
