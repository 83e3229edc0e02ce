//! One document of a server, read whole. Entry item: [`get`].

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, USER_AGENT,
};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::ask::Ask;
use crate::body::Body;
use crate::gzip::gunzip;
use crate::identity::Identity;

/// Fetches a document as the proxy itself. Fails if there is no response, or one over the limit.
pub(crate) async fn get(
    ask: &impl Ask,
    path: &str,
    accept: &'static str,
    etag: Option<&HeaderValue>,
    limit: usize,
) -> Result<Answer, String> {
    let mut request = Request::get(path)
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, "gzip")
        .header(USER_AGENT, concat!("mvp/", env!("CARGO_PKG_VERSION")))
        .extension(Identity::System)
        .body(Body::empty())
        .map_err(|error| format!("{path}: {error}"))?;
    if let Some(etag) = etag {
        request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
    }
    let response = ask.ask(request).await.map_err(|error| format!("{path}: {error}"))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => format!("{path}: larger than {limit} bytes"),
        false => format!("{path}: {error}"),
    })?;
    let body = body.to_bytes();
    let gzipped = parts.headers.get(CONTENT_ENCODING).is_some_and(|e| e.as_bytes() == b"gzip");
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(Answer {
        path: path.to_owned(),
        status: parts.status,
        content_type: content_type.unwrap_or_default().to_owned(),
        etag: parts.headers.get(ETAG).cloned(),
        body: if gzipped {
            gunzip(&body, limit).map_err(|e| format!("{path}: {e}"))?
        } else {
            body
        },
    })
}

/// A response, read whole.
pub(crate) struct Answer {
    path: String,
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body of a 200. Fails with what an operator can do about any other status.
    pub(crate) fn ok(&self) -> Result<Bytes, String> {
        if self.status == StatusCode::OK {
            return Ok(self.body.clone());
        }
        let start: String =
            String::from_utf8_lossy(self.body.get(..200).unwrap_or(&self.body)).trim().to_owned();
        // The cause is in the server's configuration, and not easily guessed.
        let hint = match self.status {
            StatusCode::FORBIDDEN => {
                "; allow user system:apiserver to read it: bind ClusterRole system:discovery to group \
                 system:authenticated, as Kubernetes does by default"
            }
            StatusCode::UNAUTHORIZED => {
                "; the server rejects the proxy client certificate: check its \
                 --requestheader-client-ca-file and --requestheader-allowed-names"
            }
            _ => "",
        };
        Err(format!("{}: status {}: {start}{hint}", self.path, self.status))
    }
}
