//! Kubernetes `Status` objects. Every error response that this proxy creates is one.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use mvp_core::discovery::negotiate::NotAcceptable;
use serde::Serialize;

use crate::body::Body;

/// The seconds after which a refused client should retry.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 1;

/// A 401, with the same text as kube-apiserver's.
pub(crate) fn unauthorized() -> Response<Body> {
    failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None)
}

/// A 503 with `Retry-After`.
pub(crate) fn unavailable(message: &str) -> Response<Body> {
    failure(
        StatusCode::SERVICE_UNAVAILABLE,
        "ServiceUnavailable",
        message,
        Some(RETRY_AFTER_SECONDS),
    )
}

/// A 429 with `Retry-After`.
pub(crate) fn too_many_requests(message: &str) -> Response<Body> {
    let retry_after = Some(RETRY_AFTER_SECONDS);
    failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, retry_after)
}

/// A 400 for a client that aborted its own request. Usually nobody reads it.
pub(crate) fn client_aborted() -> Response<Body> {
    bad_request("the request's body cannot be read to its end")
}

/// A 400 for a malformed request.
pub(crate) fn bad_request(message: &str) -> Response<Body> {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message, None)
}

/// A 417 for a request with an `Expect` other than `100-continue`. Kubernetes has no reason for it.
pub(crate) fn expectation_failed() -> Response<Body> {
    let message = "the server meets no expectation other than 100-continue";
    failure(StatusCode::EXPECTATION_FAILED, "BadRequest", message, None)
}

/// A 431 for a request head that is too large. Kubernetes has no reason for it; the reason here is
/// the nearest one.
pub(crate) fn head_too_large(message: &str) -> Response<Body> {
    let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    failure(code, "RequestEntityTooLarge", message, None)
}

/// A 500 for an error of this proxy.
pub(crate) fn internal(message: &str) -> Response<Body> {
    failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, None)
}

/// A 406 that names the media types on offer.
pub(crate) fn not_acceptable(error: &NotAcceptable) -> Response<Body> {
    failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", &error.to_string(), None)
}

fn failure(
    code: StatusCode,
    reason: &str,
    message: &str,
    retry_after: Option<u64>,
) -> Response<Body> {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details: retry_after.map(|retry_after_seconds| Details { retry_after_seconds }),
        code: code.as_u16(),
    };
    // Serializing strings and numbers cannot fail.
    let body = Bytes::from(serde_json::to_vec(&status).unwrap_or_default());
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

/// The object, with its fields in kube-apiserver's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Empty,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_429_has_retry_after() {
        let response = too_many_requests("too many connections");
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status["reason"], "TooManyRequests");
        assert_eq!(status["code"], 429);
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }
}
