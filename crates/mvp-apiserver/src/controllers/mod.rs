//! The namespace controller and the garbage collector, as clients of one server's address.
//!
//! They do what those of kube-controller-manager do: they learn by discovery which kinds exist, and
//! they believe a 404. So they do the same harm at a server that lacks an API. Entries:
//! [`NamespaceController`], [`GarbageCollector`]; a [`Client`] carries their requests.

mod api;
mod garbage;
mod graph;
mod kinds;
mod namespaces;
mod remaining;

pub use api::{Client, Problem};
pub use garbage::{Collected, GarbageCollector};
pub use namespaces::NamespaceController;
