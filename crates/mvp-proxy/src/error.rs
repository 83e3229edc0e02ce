//! Why a server sent no response: how far the request came, and who is at fault.

use std::sync::Arc;

use http::Response;
use thiserror::Error;

use crate::body::Body;
use crate::status;

/// A server sent no response to a request.
#[derive(Debug, Error)]
#[error("{member}: {stage}: {cause}")]
#[non_exhaustive]
pub struct SendError {
    /// The ID of the server.
    pub member: Arc<str>,
    /// How far the request came.
    pub stage: Stage,
    /// The error as text.
    pub cause: String,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Stage {
    /// The request has no identity. It was not sent.
    #[error("identity")]
    Identity,
    /// No connection to the server could be opened.
    #[error("connect")]
    Connect,
    /// There was a connection, but the server provably processed nothing of the request.
    #[error("not sent")]
    NotSent,
    /// A gateway refused the request and processed nothing of it.
    #[error("refused")]
    Refused,
    /// A gateway refused the request because its server is unready.
    #[error("unready")]
    Unready,
    /// The request was sent, and no response came. The server may have processed it.
    #[error("exchange")]
    Exchange,
    /// No upstream connection was free. The request was not sent; the server is not at fault.
    #[error("overloaded")]
    Overloaded,
    /// The server is busy and accepted no connection in time. The request was not sent.
    #[error("busy")]
    Busy,
    /// The server reset this request alone, which says nothing about its health.
    #[error("reset")]
    Reset,
    /// The client aborted the request while its body was being sent.
    #[error("client")]
    Client,
}

impl SendError {
    pub(crate) fn new(member: &Arc<str>, stage: Stage, cause: impl Into<String>) -> SendError {
        SendError { member: Arc::clone(member), stage, cause: cause.into() }
    }

    /// The response to a request that must not be sent to another server because that would not
    /// help, or would spread the load of one caller to all. Else the error.
    pub(crate) fn into_response(self) -> Result<Response<Body>, SendError> {
        match self.stage {
            Stage::Client => Ok(status::client_aborted()),
            Stage::Overloaded => Ok(status::too_many_requests(&self.cause)),
            Stage::Reset => {
                let message = format!("the API server {} reset this request", self.member);
                Ok(status::internal(&message))
            }
            Stage::Identity
            | Stage::Connect
            | Stage::Busy
            | Stage::NotSent
            | Stage::Refused
            | Stage::Unready
            | Stage::Exchange => Err(self),
        }
    }
}

impl Stage {
    /// Whether the server provably processed nothing: any request may be sent to another server.
    pub fn is_unprocessed(self) -> bool {
        !matches!(self, Stage::Exchange | Stage::Reset | Stage::Client)
    }

    /// Whether a gateway refused the request, which has cost its server nothing.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Stage::Refused | Stage::Unready)
    }

    /// Whether the client gets a response of our own, and no other server is asked: see
    /// [`SendError::into_response`].
    pub(crate) fn ends_request(self) -> bool {
        matches!(self, Stage::Client | Stage::Overloaded | Stage::Reset)
    }

    /// Whether it counts against the health of the server. A refusal tells by its reason.
    pub fn is_of_server(self) -> bool {
        matches!(self, Stage::Connect | Stage::NotSent | Stage::Exchange)
    }
}
