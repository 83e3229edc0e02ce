//! Looking at a 404: is it one of routing? And at a 503: does a server say it that is leaving? The
//! body is read only as far as it can be one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use mvp_core::not_found::is_of_routing;
use tokio::time::{Instant, timeout_at};

use crate::body::Body;
use crate::control::gunzip;

/// What is looked for is a few hundred bytes.
const MAX_INSPECTED: usize = 16 << 10;

/// With what kube-apiserver marks every answer to a request that came as far as its priority.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";

/// It comes in one piece; what takes longer is passed on as it comes.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A response whose body was looked at, whole again.
pub(crate) struct Inspected {
    pub(crate) response: Response<Body>,
    /// Whether it is what was looked for.
    pub(crate) is_it: bool,
}

/// Whether a 404 is one of routing.
pub(crate) async fn inspect_not_found(response: Response<Body>) -> Inspected {
    inspect(response, is_of_routing).await
}

/// Whether a kube-apiserver that shuts down says with a 503 that the request came too late: it has
/// looked at nothing of it.
pub(crate) async fn inspect_unavailable(response: Response<Body>) -> Inspected {
    let headers = response.headers();
    // It says so before it knows the priority of the request. With one, the request came further:
    // it is an extension server that says it, and that may have executed it.
    if !headers.contains_key(RETRY_AFTER) || headers.contains_key(FLOW_SCHEMA) {
        return Inspected { response, is_it: false };
    }
    inspect(response, is_leaving).await
}

/// The response, of which the body was read as far as it came in time.
pub(crate) async fn read_ahead(response: Response<Body>) -> Response<Body> {
    inspect(response, |_, _| false).await.response
}

/// It says so in JSON, whatever was asked for.
fn is_leaving(content_type: &str, body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Status<'a> {
        message: std::borrow::Cow<'a, str>,
    }
    content_type.starts_with("application/json")
        && serde_json::from_slice(body)
            .is_ok_and(|status: Status<'_>| status.message == "apiserver is shutting down")
}

/// Reads the start of the body, and puts it back.
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
            // Trailers: nothing more of interest comes.
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

/// What was read, then what still comes, or the error with which it ended.
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
