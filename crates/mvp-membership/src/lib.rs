//! The members of a cluster, as its API and its etcd tell.
//!
//! Each source publishes [`Claims`]. [`Combined`] merges the claims of all sources into one roster
//! for the control loop. A claim is never trusted by itself: every connection to a member verifies
//! its certificate. A new source is a module here that sends [`Claims`] to a [`Source`].

mod claim;
mod combine;
pub mod endpoints;
pub mod etcd;
mod heartbeat;
mod kube;
mod lasting;
pub mod leases;
mod limits;

pub use claim::{Claim, Claims, Source};
pub use combine::{Combined, Conflict, ForgetError, Handle, Own};
pub use limits::HEARTBEAT;
