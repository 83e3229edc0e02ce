//! Requests of our own to one server. Entry item: [`Ask`].

use std::fmt;

use http::{Request, Response};

use crate::body::Body;

/// A server that the control loop can send requests to.
pub trait Ask: Send + Sync {
    /// Sends a request. Fails if no response came.
    fn ask(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, AskError>> + Send;
}

/// A server gave no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskError(String);

impl AskError {
    /// An error with this reason.
    pub fn new(reason: impl Into<String>) -> AskError {
        AskError(reason.into())
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AskError {}

/// Whether a request of our own is a watch.
pub fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().unwrap_or_default().split('&').any(|parameter| parameter == "watch=true")
}
