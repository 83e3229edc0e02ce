//! Discovery: what servers say they serve, and what the cluster serves together.
//!
//! [`GroupList`] is the one model; it is read from aggregated documents ([`model`]) or put together
//! from the older ones ([`legacy`], [`convert`]). [`merge`] makes one of many, [`negotiate`] finds
//! out what a client wants to be given.

pub mod convert;
pub(crate) mod encode;
mod error;
pub(crate) mod json;
pub mod legacy;
pub mod merge;
pub mod model;
pub mod negotiate;
pub mod order;
mod shape;

use error::Location;
pub use error::{DocumentError, Problem};
pub use model::{Group, GroupList, Limits, Parsed, Resource, Scope, Source, Subresource, Version};

/// The two halves of the API surface. Each has a document of its own, and fails on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// `/api`: the core group.
    Api,
    /// `/apis`: all named groups.
    Apis,
}

impl Part {
    /// Both, in the order of their paths.
    pub const ALL: [Part; 2] = [Part::Api, Part::Apis];

    /// The half that a group belongs to.
    pub fn of_group(group: &str) -> Part {
        if group.is_empty() { Part::Api } else { Part::Apis }
    }

    /// The path of its document.
    pub fn path(self) -> &'static str {
        match self {
            Part::Api => "/api",
            Part::Apis => "/apis",
        }
    }
}
