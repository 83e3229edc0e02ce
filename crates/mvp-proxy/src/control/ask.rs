//! How the control loop sends its own requests: to one server ([`Ask`]), and to a member by its
//! entry in the roster ([`Reach`]).

use std::fmt;

use http::{Request, Response};
use mvp_core::member::Member;

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

/// Finds the way to a member.
pub trait Reach: Send + 'static {
    /// The way to a member.
    type Ask: Ask + Clone + 'static;

    /// The way to this member: the local server, or a peer by its address. `None` if there is none.
    fn reach(&self, member: &Member) -> Option<Self::Ask>;

    /// Drops whatever is kept about a member that is forgotten.
    fn forget(&self, _id: &str) {}
}
