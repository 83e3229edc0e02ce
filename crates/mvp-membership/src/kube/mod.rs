//! Kubernetes' API as sources need it: a request and its answer, and a collection that is watched.
//!
//! Requests go over whatever connection the caller has ([`Ask`]), as ourselves; so that TLS,
//! its reload, and finding out that a server hangs are those of the proxy.

pub(crate) mod watch;

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

/// An answer takes no longer, or there is none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lists of what members are made of are small.
const MAX_ANSWER: usize = 32 << 20;

/// Why there is no answer of use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The server says no, with what it says.
    Refused(StatusCode, String),
    /// Its answer is larger than any that we read.
    TooLarge,
    /// It gave no answer, or none that can be read.
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
            ApiError::Refused(status, said) => write!(f, "{}: {said}", status.as_u16()),
            ApiError::TooLarge => write!(f, "an answer of more than {MAX_ANSWER} bytes"),
            ApiError::Failed(problem) => f.write_str(problem),
        }
    }
}

/// What cannot be done with some objects, for how long, and what is said of it.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Lasting);

impl Trouble {
    /// It failed again. What an operator has to mend, if it is that and it lasts; whatever lasts is
    /// logged, once.
    pub(crate) fn cannot(&mut self, verb: &str, what: &str, error: &ApiError) -> Option<String> {
        let problem = explained(verb, what, error).filter(|_| self.0.failed());
        if !self.0.is_news() {
            tracing::debug!("we cannot {verb} {what}: {error}");
        } else if let Some(problem) = &problem {
            tracing::warn!("{problem}");
        } else {
            tracing::warn!("we cannot {verb} {what} for a while now, and go on trying: {error}");
        }
        problem
    }

    /// It works.
    pub(crate) fn hears(&mut self, what: &str) {
        if self.0.works() {
            tracing::info!("{what}: all is well again");
        }
    }
}

/// What an operator has to mend, if it is that.
fn explained(verb: &str, what: &str, error: &ApiError) -> Option<String> {
    let ApiError::Refused(status, said) = error else { return None };
    match *status {
        StatusCode::FORBIDDEN => Some(format!(
            "the API server does not let us {verb} {what} ({said}); apply deploy/rbac.yaml, or name \
             the members by --membership=static"
        )),
        StatusCode::UNAUTHORIZED => Some(format!(
            "the API server does not believe the proxy client certificate ({said}); see its \
             --requestheader-client-ca-file and --requestheader-allowed-names"
        )),
        StatusCode::NOT_FOUND => Some(format!(
            "the API server has no {what} ({said}); name the members by --membership=static"
        )),
        _ => None,
    }
}

/// Sends a request and reads its answer whole.
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
    let late = || ApiError::Failed(format!("no answer within {} s", TIMEOUT.as_secs()));
    timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(late()))
}

/// Sends a request; its answer is a success, and yet to be read.
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
    let response = ask.ask(request).await.map_err(ApiError::Failed)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let said = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let said = said.map(|body| body.to_bytes()).unwrap_or_default();
    Err(ApiError::Refused(status, message(&said)))
}

/// What a `Status` says, or the start of whatever else it is.
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

/// The metadata of an object, as far as it matters here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Of a list that goes on.
    pub(crate) r#continue: String,
    pub(crate) creation_timestamp: String,
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

/// An object that has metadata.
pub(crate) trait Object: for<'de> Deserialize<'de> {
    /// It.
    fn metadata(&self) -> &Metadata;
}

/// A value for a query.
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
