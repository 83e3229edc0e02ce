//! What can go wrong on the way to a server: the stage, and the party at fault.

use std::sync::Arc;

use http::Response;
use thiserror::Error;

use crate::body::Body;
use crate::data::{Target, broken_off};
use crate::status;

/// A request got no response from a server.
#[derive(Debug, Error)]
#[error("{member}: {stage}: {cause}")]
pub struct SendError {
    /// The ID of the server.
    pub member: Arc<str>,
    /// How far the request came.
    pub stage: Stage,
    /// What was said about it.
    pub cause: String,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Stage {
    /// It could not be said who the caller is.
    #[error("identity")]
    Identity,
    /// There was no connection.
    #[error("connect")]
    Connect,
    /// The connection was there, but provably nothing of the request was processed.
    #[error("not sent")]
    NotSent,
    /// A peer said that it processed nothing of it, because it could not.
    #[error("refused")]
    Refused,
    /// It was sent, and no response came.
    #[error("exchange")]
    Exchange,
    /// It was not sent: there is no connection to be had for it, and the server is not at fault.
    #[error("overloaded")]
    Overloaded,
    /// It was not sent: the server is busy, and took no connection for it in time.
    #[error("busy")]
    Busy,
    /// The server reset this request alone, which says nothing about the server.
    #[error("reset")]
    Reset,
    /// A part of it was sent: its client broke it off, which is no fault of the server's.
    #[error("client")]
    Client,
}

impl SendError {
    pub(crate) fn new(target: &Target, stage: Stage, cause: impl Into<String>) -> SendError {
        SendError { member: Arc::clone(&target.id), stage, cause: cause.into() }
    }
}

impl SendError {
    /// The response to a request that must not be sent to another server: that would not help, or
    /// would spread the load of one caller to all.
    pub(crate) fn response(&self) -> Option<Response<Body>> {
        match self.stage {
            Stage::Client => Some(broken_off()),
            Stage::Overloaded => Some(status::too_many_requests(&self.cause)),
            Stage::Reset => {
                let message = format!("the API server {} reset this request", self.member);
                Some(status::internal(&message))
            }
            Stage::Identity
            | Stage::Connect
            | Stage::Busy
            | Stage::NotSent
            | Stage::Refused
            | Stage::Exchange => None,
        }
    }
}

impl Stage {
    /// Whether the server cannot have processed anything: any request may go to another one.
    pub fn is_unprocessed(self) -> bool {
        !matches!(self, Stage::Exchange | Stage::Reset | Stage::Client)
    }

    /// Whether it says something about the server that it was sent to.
    pub fn is_of_server(self) -> bool {
        !matches!(
            self,
            Stage::Identity | Stage::Overloaded | Stage::Busy | Stage::Reset | Stage::Client
        )
    }
}
