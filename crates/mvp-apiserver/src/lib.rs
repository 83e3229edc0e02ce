//! A small Kubernetes API server that keeps its objects in memory, for the demo and for tests.
//!
//! Several servers of one cluster, each with groups and versions of its own, share one [`Storage`]
//! as real ones share one etcd. [`ApiServer`] is a tower service: it needs no socket, and knows
//! nothing of who stands before it but the [`Caller`] that a request may carry as an extension.
//!
//! A request goes `route → read the body → resource → storage`; all that goes wrong on the way is
//! answered in the words of a real server.

mod body;
mod describe;
mod object;
mod query;
mod resource;
mod respond;
mod review;
mod route;
mod selector;
mod server;
mod spec;
mod stamp;
mod status;
mod storage;

pub use mvp_core::Verb;
pub use respond::Body;
pub use review::Caller;
pub use server::ApiServer;
pub use spec::{GroupSpec, ResourceSpec, ServerSpec, SubresourceSpec, VersionSpec};
pub use storage::Storage;
