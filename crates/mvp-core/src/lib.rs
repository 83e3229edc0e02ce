//! The pure heart of the Mixed Version Proxy: from discovery documents to one decision.
//!
//! No I/O, no runtime, no clock: documents and times come in as arguments, and what to do comes
//! out. The two pipelines of the proxy meet here:
//!
//! - control: [`discovery`] and [`openapi`] documents of every member → merged → [`Snapshot`]
//! - data: [`RequestInfo`] → [`decide()`] over a snapshot → what to do, and why

pub mod decide;
pub mod discovery;
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
