//! Who the members of a cluster are, as its API and its etcd tell.
//!
//! Each source publishes [`Claims`]: who says to be a member, where, and when it was last heard of
//! by our own clock. [`Combined`] makes members of them, which is all that the control loop sees.
//! What a source says is never enough: whoever is to get a request has to prove itself by its
//! certificate, every time.

mod claim;
mod combine;
pub mod endpoints;
pub mod etcd;
mod heartbeat;
mod kube;
mod lasting;
pub mod leases;

pub use claim::{Claim, Claims, Source};
pub use combine::{Combined, Conflict, Handle, Own};
pub use heartbeat::HEARTBEAT;
