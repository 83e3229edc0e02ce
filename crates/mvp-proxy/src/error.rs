//! What can go wrong on the way to a server: the stage, and the party at fault.

use std::sync::Arc;

use thiserror::Error;

use crate::data::Target;

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
    /// A part of it was sent: its client broke it off, which is no fault of the server's.
    #[error("client")]
    Client,
}

impl SendError {
    pub(crate) fn new(target: &Target, stage: Stage, cause: impl Into<String>) -> SendError {
        SendError { member: Arc::clone(&target.id), stage, cause: cause.into() }
    }
}

impl Stage {
    /// Whether the server cannot have processed anything: any request may go to another one.
    pub fn is_unprocessed(self) -> bool {
        !matches!(self, Stage::Exchange | Stage::Client)
    }
}
