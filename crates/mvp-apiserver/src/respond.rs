//! Responses in the shapes of a real server. Entry items: [`json`] and [`text`].

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

/// The body of a response. It cannot fail: a watch that cannot go on says so and ends.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A response in JSON, with a newline at its end as real servers write one.
pub(crate) fn json(code: StatusCode, document: &impl Serialize) -> Response<Body> {
    respond(code, "application/json", full(line(document)))
}

/// A response in plain text.
pub(crate) fn text(code: StatusCode, text: &'static str) -> Response<Body> {
    let body = full(Bytes::from_static(text.as_bytes()));
    let mut response = respond(code, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What a real server says of a path that nothing is registered for.
pub(crate) fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A response with a body of its own.
pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A document on a line of its own.
pub(crate) fn line(document: &impl Serialize) -> Bytes {
    // Serialising our own documents, whose keys are all strings, cannot fail.
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

/// A body that is there from the start.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}
