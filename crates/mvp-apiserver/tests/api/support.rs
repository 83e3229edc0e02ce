//! A server of widgets, and a client for it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::{ApiServer, Body, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A server of the core group and of widgets and gears in two versions.
pub(crate) fn server() -> ApiServer {
    server_on(Storage::new())
}

pub(crate) fn server_on(storage: Storage) -> ApiServer {
    let widgets = || ResourceSpec::namespaced("widgets", "Widget").with_status();
    let gears = ResourceSpec::cluster("gears", "Gear").with_short_name("gr");
    let read_only = ResourceSpec {
        verbs: vec![mvp_apiserver::Verb::Get, mvp_apiserver::Verb::List],
        ..ResourceSpec::cluster("readings", "Reading")
    };
    let spec = ServerSpec {
        id: "a".to_owned(),
        git_version: "v1.36.4".to_owned(),
        groups: vec![
            GroupSpec::new("").version(
                "v1",
                [
                    ResourceSpec::cluster("namespaces", "Namespace").with_status(),
                    ResourceSpec::namespaced("configmaps", "ConfigMap").with_short_name("cm"),
                ],
            ),
            GroupSpec::new("example.com")
                .version("v1", [widgets(), gears, read_only])
                .version("v1beta1", [widgets()]),
            GroupSpec::new("authentication.k8s.io")
                .version("v1", [ResourceSpec::self_subject_reviews()]),
        ],
        ..ServerSpec::default()
    };
    ApiServer::new(spec, storage)
}

pub(crate) fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path)
}

pub(crate) async fn send(server: &ApiServer, request: Request<Full<Bytes>>) -> Response<Body> {
    let answer: Result<_, Infallible> = server.clone().oneshot(request).await;
    answer.unwrap()
}

/// The status and body of a JSON response.
pub(crate) async fn read(response: Response<Body>) -> (StatusCode, Value) {
    let code = response.status();
    assert_eq!(response.headers()["content-type"], "application/json");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

pub(crate) async fn call(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = request(method, path).header("content-type", content_type);
    read(send(server, request.body(Full::new(body)).unwrap()).await).await
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> (StatusCode, Value) {
    call(server, Method::GET, path, Value::Null).await
}

/// Creates a widget.
pub(crate) async fn make(server: &ApiServer, name: &str) -> Value {
    let (code, object) = call(server, Method::POST, WIDGETS, widget(name)).await;
    assert_eq!(code, 201, "{object}");
    object
}

pub(crate) fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": { "name": name },
        "spec": { "size": 1 },
    })
}

pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// A watch, line by line.
pub(crate) struct Lines {
    body: Body,
    pending: Vec<u8>,
}

impl Lines {
    pub(crate) async fn open(server: &ApiServer, path: &str) -> Lines {
        Lines::open_as(server, path, "application/json").await
    }

    pub(crate) async fn open_as(server: &ApiServer, path: &str, accept: &str) -> Lines {
        let request = request(Method::GET, path).header("accept", accept);
        let request = request.body(Full::default()).unwrap();
        let response = send(server, request).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        Lines { body: response.into_body(), pending: Vec::new() }
    }

    /// The next event; `None` at the end of the watch. The deadline is for a broken server.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(Duration::from_secs(30), self.wait()).await.unwrap()
    }

    /// Type, name and resource version of the next event.
    pub(crate) async fn event(&mut self) -> (String, String, u64) {
        let event = self.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let object = &event["object"];
        (text(&event["type"]), text(&object["metadata"]["name"]), version_of(object))
    }

    /// Whether there is nothing to read now.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.pending.is_empty()
            && futures_util::FutureExt::now_or_never(self.body.frame()).is_none()
    }

    async fn wait(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.pending.extend_from_slice(frame.data_ref().unwrap());
        }
    }
}
