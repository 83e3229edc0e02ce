//! Inspects the body of a response: whether a 404 is unrouted (the server has no such API), and
//! whether a 503 comes from a server that is shutting down. Entry items: [`inspect_not_found`],
//! [`inspect_unavailable`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use mvp_core::not_found::is_unrouted;
use tokio::time::{Instant, timeout_at};

use crate::body::Body;
use crate::control::gunzip;

/// The largest body that is inspected. The expected ones have a few hundred bytes.
const MAX_INSPECTED: usize = 16 << 10;

/// The header that kube-apiserver sets after it has classified a request by priority and fairness.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";

/// How long the body is waited for. A slower one is passed through uninspected.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A complete response whose body was inspected.
pub(crate) struct Inspected {
    pub(crate) response: Response<Body>,
    /// Whether the response is of the kind that was looked for.
    pub(crate) is_it: bool,
}

/// Inspects whether a 404 is unrouted.
pub(crate) async fn inspect_not_found(response: Response<Body>) -> Inspected {
    inspect(response, is_unrouted).await
}

/// Inspects whether a 503 comes from a kube-apiserver that is shutting down. Such a server has
/// processed nothing of the request.
pub(crate) async fn inspect_unavailable(response: Response<Body>) -> Inspected {
    let headers = response.headers();
    // kube-apiserver sends it before it classifies the request. A classified request came further:
    // the response is that of an extension server, which may have processed the request.
    if !headers.contains_key(RETRY_AFTER) || headers.contains_key(FLOW_SCHEMA) {
        return Inspected { response, is_it: false };
    }
    inspect(response, is_shutting_down).await
}

/// Reads the body ahead, as far as it arrives in time.
pub(crate) async fn read_ahead(response: Response<Body>) -> Response<Body> {
    inspect(response, |_, _| false).await.response
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
async fn inspect(response: Response<Body>, is_it: fn(&str, &[u8]) -> bool) -> Inspected {
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
        return Inspected { response: Response::from_parts(parts, body), is_it: false };
    }
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default().to_owned();
    let is_it = whole
        && match header(CONTENT_ENCODING) {
            None | Some("identity") => is_it(&content_type, &start),
            Some("gzip") => {
                gunzip(&start, MAX_INSPECTED).is_ok_and(|unpacked| is_it(&content_type, &unpacked))
            }
            Some(_) => false,
        };
    let body = if whole {
        Body::from(start)
    } else {
        Body::new(Rejoined { start: Some(start), rest: Ok(body) })
    };
    Inspected { response: Response::from_parts(parts, body), is_it }
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
