//! Kubernetes `Status` objects: every answer that we make up ourselves is one.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::body::Body;

/// Seconds after which a refused client should try again.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 1;

/// Nobody whom we know: 401, word for word as kube-apiserver says it.
pub(crate) fn unauthorized() -> Response<Body> {
    failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None)
}

/// Cannot be answered now: 503, with the time after which to try again.
pub(crate) fn unavailable(message: &str) -> Response<Body> {
    failure(
        StatusCode::SERVICE_UNAVAILABLE,
        "ServiceUnavailable",
        message,
        Some(RETRY_AFTER_SECONDS),
    )
}

/// Something is wrong with us: 500.
pub(crate) fn internal(message: &str) -> Response<Body> {
    failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, None)
}

fn failure(
    code: StatusCode,
    reason: &str,
    message: &str,
    retry_after: Option<u64>,
) -> Response<Body> {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if let (Some(seconds), Some(status)) = (retry_after, status.as_object_mut()) {
        status.insert("details".to_owned(), json!({ "retryAfterSeconds": seconds }));
    }
    let body = Bytes::from(format!("{status}\n"));
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length);
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
