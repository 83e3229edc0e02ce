//! An extension API server behind an APIService: its answers are its own, and nobody else's rules
//! apply to them. Entry: [`answer`].

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use mvp_apiserver::{GroupSpec, ResourceSpec, Verb};
use serde_json::{Value, json};

const GROUP: &str = "metrics.example.com";
const VERSION: &str = "v1";
const PREFIX: &str = "/apis/metrics.example.com/v1/";
/// The resource of the extension server.
pub(super) const READINGS: &str = "/apis/metrics.example.com/v1/readings";
/// Its answer to everything that it does not have: a real server would not say this.
pub(super) const NOTHING: &str = "the extension server has no such reading\n";

pub(super) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// The APIService that hands the group to the extension server.
pub(super) fn api_service() -> Value {
    json!({
        "metadata": {"name": format!("{VERSION}.{GROUP}")},
        "spec": {
            "group": GROUP, "version": VERSION,
            "service": {"name": "readings", "namespace": "kube-system", "port": 443},
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
    })
}

/// The group, as every server's discovery lists it.
pub(super) fn group() -> GroupSpec {
    let readings = ResourceSpec {
        verbs: vec![Verb::Get, Verb::List],
        ..ResourceSpec::cluster("readings", "Reading")
    };
    GroupSpec::new(GROUP).version(VERSION, [readings])
}

/// The extension server's answer; `None` if the path is not its own.
pub(super) fn answer(path: &str) -> Option<Response<mvp_apiserver::Body>> {
    let rest = path.strip_prefix(PREFIX)?;
    let (code, content_type, body) = if rest == "readings" {
        let list = json!({
            "kind": "ReadingList", "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {},
            "items": [{"metadata": {"name": "one"}, "value": 42}],
        });
        (StatusCode::OK, "application/json", Bytes::from(list.to_string()))
    } else {
        (StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(NOTHING.as_bytes()))
    };
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Some(response)
}
