//! Responses in the form of a real server. Entries: [`json`], [`text`].

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

/// The body of a response. It cannot fail: a watch that cannot continue sends an error and ends.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A JSON response with a newline at the end, as of real servers.
pub(crate) fn json(code: StatusCode, document: &impl Serialize) -> Response<Body> {
    respond(code, "application/json", full(line(document)))
}

/// A plain text response.
pub(crate) fn text(code: StatusCode, text: &'static str) -> Response<Body> {
    let body = full(Bytes::from_static(text.as_bytes()));
    let mut response = respond(code, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response of a real server to an unknown path.
pub(crate) fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A response with the given body.
pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A document as one line.
pub(crate) fn line(document: &impl Serialize) -> Bytes {
    // Serializing documents with string keys cannot fail.
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

/// A body of known bytes.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}
