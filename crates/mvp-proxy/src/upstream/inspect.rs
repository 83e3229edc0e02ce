//! Inspects the body of a response: what a 404 proves, and whether a 503 comes from a server that is
//! shutting down. Entry items: [`inspect_not_found`], [`inspect_unavailable`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use mvp_core::not_found::{NotFound, judge};
use tokio::time::{Instant, timeout_at};

use crate::body::Body;
use crate::gzip::unpack;

/// The largest body that is inspected. The expected ones have a few hundred bytes; a 404 repeats the
/// name of the object, which a client can make long.
const MAX_INSPECTED: usize = 512 << 10;

/// The header that kube-apiserver sets after it has classified a request by priority and fairness.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";

/// How long the body is waited for. A slower one stays uninspected.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A complete response whose body was inspected.
struct Inspected<T> {
    response: Response<Body>,
    /// What the body says; `None` if it is too large, too slow, or cannot be read.
    found: Option<T>,
}

/// Inspects what a 404 proves.
pub(crate) async fn inspect_not_found(response: Response<Body>) -> (Response<Body>, NotFound) {
    let Inspected { response, found } = inspect(response, judge).await;
    (response, found.unwrap_or(NotFound::Unclear))
}

/// Inspects whether a 503 comes from a kube-apiserver that is shutting down. Such a server has
/// processed nothing of the request.
pub(crate) async fn inspect_unavailable(response: Response<Body>) -> (Response<Body>, bool) {
    let headers = response.headers();
    // kube-apiserver sends it before it classifies the request. A classified request came further:
    // the response is that of an extension server, which may have processed the request.
    if !headers.contains_key(RETRY_AFTER) || headers.contains_key(FLOW_SCHEMA) {
        return (response, false);
    }
    let Inspected { response, found } = inspect(response, is_shutting_down).await;
    (response, found.unwrap_or(false))
}

/// Reads the body ahead, as far as it arrives in time.
pub(crate) async fn read_ahead(response: Response<Body>) -> Response<Body> {
    inspect(response, |_, _| ()).await.response
}

/// Whether a body says that the server is shutting down. It is JSON, whatever the client accepts.
fn is_shutting_down(content_type: &str, body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Status<'a> {
        message: std::borrow::Cow<'a, str>,
    }
    content_type.starts_with("application/json")
        && serde_json::from_slice(body)
            .is_ok_and(|status: Status<'_>| status.message == "apiserver is shutting down")
}

/// Reads the start of the body, inspects it, and puts it back.
async fn inspect<T>(response: Response<Body>, judge: fn(&str, &[u8]) -> T) -> Inspected<T> {
    let (parts, mut body) = response.into_parts();
    let mut start = BytesMut::new();
    let mut whole = true;
    let mut failed = None;
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => {
                whole = false;
                break;
            }
        };
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => start.extend_from_slice(&data),
            // Trailers end the body.
            Ok(Err(_)) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        if start.len() > MAX_INSPECTED {
            whole = body.is_end_stream();
            break;
        }
    }
    let start = start.freeze();
    if let Some(error) = failed {
        let body = Body::new(Rejoined { start: Some(start), rest: Err(Some(error)) });
        return Inspected { response: Response::from_parts(parts, body), found: None };
    }
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let found = match header(CONTENT_ENCODING) {
        _ if !whole => None,
        None => Some(judge(content_type, &start)),
        Some(encoding) => {
            let unpacked = unpack(encoding, &start, MAX_INSPECTED).ok();
            unpacked.map(|unpacked| judge(content_type, &unpacked))
        }
    };
    let body = if whole {
        Body::from(start)
    } else {
        Body::new(Rejoined { start: Some(start), rest: Ok(body) })
    };
    Inspected { response: Response::from_parts(parts, body), found }
}

/// The bytes that were read, then the rest of the body or the error that ended it.
struct Rejoined {
    start: Option<Bytes>,
    rest: Result<Body, Option<crate::body::BodyError>>,
}

impl HttpBody for Rejoined {
    type Data = Bytes;
    type Error = crate::body::BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        if let Some(start) = self.start.take().filter(|start| !start.is_empty()) {
            return std::task::Poll::Ready(Some(Ok(http_body::Frame::data(start))));
        }
        match &mut self.rest {
            Ok(rest) => std::pin::Pin::new(rest).poll_frame(cx),
            Err(error) => std::task::Poll::Ready(error.take().map(Err)),
        }
    }
}

#[cfg(test)]
mod tests;
