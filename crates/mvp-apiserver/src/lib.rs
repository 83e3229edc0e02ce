//! A small Kubernetes API server that keeps its objects in memory, for the demo and for tests.
//!
//! Several servers of one cluster, each with its own groups and versions, share one [`Storage`] as
//! real servers share one etcd. [`ApiServer`] is a tower service: it needs no socket. It knows the
//! caller only by the [`Caller`] that a request may have in its extensions.
//!
//! A request goes `route → read the body → resource → storage`. Errors have the form and the texts of
//! a real server's.

mod access;
mod announce;
mod apply;
mod base64;
mod body;
pub mod controllers;
mod crd;
mod defaults;
mod describe;
mod field_error;
mod fields;
mod form;
#[cfg(fuzzing)]
pub mod fuzzing;
mod metadata;
mod name;
mod namespace;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod query;
mod release;
mod render;
mod resource;
mod respond;
mod review;
mod route;
mod schema;
mod selector;
mod server;
mod spec;
mod stamp;
mod status;
mod storage;
mod strategy;
mod surface;
mod table;
mod warning;

pub use access::{Access, Attributes, BadTokenFile, TokenFile};
pub use announce::Announcement;
pub use mvp_core::Verb;
pub use release::{Release, RuntimeConfig, RuntimeConfigError};
pub use respond::Body;
pub use review::Caller;
pub use server::ApiServer;
pub use spec::{GroupSpec, ResourceSpec, ResponseKind, ServerSpec, SubresourceSpec, VersionSpec};
pub use storage::Storage;
