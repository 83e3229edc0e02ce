//! The commands that operators ask a cluster with: `mvp status`, `skew`, `callers` and `doctor`, which
//! change nothing, and `mvp adopt`, which ends connections.
//!
//! - [`gateway`]: the admin endpoint of a running gateway
//! - [`https`]: one request to an API server
//! - [`kubeconfig`]: servers and credentials of a kubeconfig
//! - [`terminal`]: tables, colours and progress

pub(crate) mod adopt;
pub(crate) mod callers;
pub(crate) mod doctor;
pub(crate) mod gateway;
pub(crate) mod https;
pub(crate) mod kubeconfig;
pub(crate) mod skew;
pub(crate) mod status;
pub(crate) mod terminal;
