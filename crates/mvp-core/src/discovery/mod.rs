//! Discovery: the APIs that each server serves, and those of the whole cluster.
//!
//! [`GroupList`] is the one model. It is parsed from aggregated documents ([`model`]) or built from
//! legacy ones ([`legacy`], [`convert`]). [`merge`] merges those of several servers; [`negotiate`]
//! finds the form and the encoding that a client accepts.

pub mod convert;
pub(crate) mod encode;
mod error;
pub(crate) mod json;
pub mod legacy;
mod listed;
pub mod merge;
pub mod model;
pub mod negotiate;
pub mod order;
mod places;
mod shape;

use error::Location;
pub use error::{DocumentError, Problem};
pub use listed::Listed;
pub use model::{Group, GroupList, Limits, Parsed, Resource, Scope, Source, Subresource, Version};

/// One of the two halves of the API surface. Each has its own document, which is fetched separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// `/api`: the core group.
    Api,
    /// `/apis`: all named groups.
    Apis,
}

impl Part {
    /// Both halves.
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
