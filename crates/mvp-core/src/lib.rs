//! The core of the Mixed Version Proxy: from discovery documents to one decision for each request.
//!
//! The crate has no I/O, no runtime and no clock: documents and times are arguments. The two
//! pipelines of the proxy meet here:
//!
//! - control: [`discovery`] and [`openapi`] documents of every member → merged → [`Snapshot`]
//! - data: [`RequestInfo`] → [`decide()`] over a snapshot → [`decide::Decision`]

pub mod decide;
pub mod discovery;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod member;
pub mod not_found;
pub mod openapi;
pub mod recorded;
pub mod request;
pub mod snapshot;
mod time;
mod verb;
mod wire;

pub use decide::decide;
pub use request::RequestInfo;
pub use snapshot::Snapshot;
pub use time::Timestamp;
pub use verb::{Verb, VerbSet};
