//! The Kubernetes API as sources need it: single requests ([`call`]), and collections that are
//! watched ([`watch`]).
//!
//! Requests go through an [`Ask`], as the proxy itself. TLS, its reload and the detection of
//! servers that hang are those of the proxy.

pub(crate) mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mvp_proxy::control::Ask;
use mvp_proxy::{Body, Identity};
use serde::Deserialize;
use tokio::time::timeout;

use crate::lasting::Lasting;

/// The time limit for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit for a response. Lists of Leases and EndpointSlices are small.
const MAX_ANSWER: usize = 32 << 20;

/// A request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The server answered with this status and message.
    Refused(StatusCode, String),
    /// The response is over the size limit.
    TooLarge,
    /// There was no response, or one that cannot be parsed.
    Failed(String),
}

impl ApiError {
    pub(crate) fn is(&self, status: StatusCode) -> bool {
        matches!(self, ApiError::Refused(code, _) if *code == status)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::Refused(status, message) => write!(f, "{}: {message}", status.as_u16()),
            ApiError::TooLarge => write!(f, "the response has more than {MAX_ANSWER} bytes"),
            ApiError::Failed(error) => f.write_str(error),
        }
    }
}

/// A failure to read or write some objects, and its report.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Lasting);

impl Trouble {
    /// An attempt failed. Returns the problem that an operator must solve, if it is one and it
    /// lasts. A failure that lasts is logged once.
    pub(crate) fn failed(&mut self, verb: &str, objects: &str, error: &ApiError) -> Option<String> {
        let problem = explained(verb, objects, error).filter(|_| self.0.failed());
        if !self.0.report() {
            tracing::debug!(objects, verb, %error, "membership request failed");
        } else if let Some(problem) = &problem {
            tracing::warn!(objects, verb, error = %problem, "membership source failed");
        } else {
            tracing::warn!(objects, verb, %error, "membership source failed; retrying");
        }
        problem
    }

    /// An attempt succeeded.
    pub(crate) fn recovered(&mut self, objects: &str) {
        if self.0.clear() {
            tracing::info!(objects, "membership source recovered");
        }
    }
}

/// The problem that an operator must solve, if it is one.
fn explained(verb: &str, objects: &str, error: &ApiError) -> Option<String> {
    let ApiError::Refused(status, message) = error else { return None };
    match *status {
        StatusCode::FORBIDDEN => Some(format!(
            "the API server denies permission to {verb} {objects} ({message}); apply deploy/rbac.yaml, or use \
             --membership=static"
        )),
        StatusCode::UNAUTHORIZED => Some(format!(
            "the API server rejects the proxy client certificate ({message}); check its \
             --requestheader-client-ca-file and --requestheader-allowed-names"
        )),
        StatusCode::NOT_FOUND => Some(format!(
            "the API server does not serve {objects} ({message}); use --membership=static"
        )),
        _ => None,
    }
}

/// Sends a request and parses the response.
pub(crate) async fn call<T: for<'de> Deserialize<'de>>(
    ask: &impl Ask,
    method: Method,
    path: &str,
    body: Option<(&str, Bytes)>,
) -> Result<T, ApiError> {
    let exchange = async {
        let response = start(ask, method, path, body).await?;
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => ApiError::TooLarge,
            false => ApiError::Failed(error.to_string()),
        })?;
        let body = body.to_bytes();
        serde_json::from_slice(&body).map_err(|error| ApiError::Failed(error.to_string()))
    };
    let late = || ApiError::Failed(format!("timed out after {} s", TIMEOUT.as_secs()));
    timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(late()))
}

/// Sends a request. Returns a successful response whose body is still to be read.
async fn start(
    ask: &impl Ask,
    method: Method,
    path: &str,
    body: Option<(&str, Bytes)>,
) -> Result<Response<Body>, ApiError> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("mvp/", env!("CARGO_PKG_VERSION")))
        .extension(Identity::System);
    let mut sent = Body::empty();
    if let Some((content_type, bytes)) = body {
        request = request.header(CONTENT_TYPE, content_type);
        sent = Body::from(bytes);
    }
    let request = request.body(sent).map_err(|error| ApiError::Failed(error.to_string()))?;
    let response = ask.ask(request).await.map_err(|error| ApiError::Failed(error.to_string()))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Err(ApiError::Refused(status, message(&body)))
}

/// The message of a `Status`, or the start of any other body.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    match serde_json::from_slice::<Status>(body) {
        Ok(status) => status.message,
        Err(_) => String::from_utf8_lossy(body).trim().chars().take(200).collect(),
    }
}

/// The fields of an object's metadata that sources use.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The token for the next page of a list.
    pub(crate) r#continue: String,
    pub(crate) creation_timestamp: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// An object that has metadata.
pub(crate) trait Object: for<'de> Deserialize<'de> {
    /// The object's metadata.
    fn metadata(&self) -> &Metadata;
}

/// A value, percent-encoded for a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
