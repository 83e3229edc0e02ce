//! Hands new TCP connections of another process's port to this one, and fails open.
//!
//! A BPF program of type `sk_lookup` runs in the kernel for each new connection of a network
//! namespace, before the lookup of a listener. [`Steering::attach`] assembles it ([`program`]), loads
//! it and attaches it (`bpf`). It chooses our listener only while no [`Beat`] has expired. In all
//! other cases it chooses nothing, and the connection reaches the process that owns the port:
//!
//! - this process is killed or crashes: the kernel removes the program with its last descriptor;
//! - this process hangs, or one of its threads: the beats expire;
//! - a connection of the same host over loopback: never chosen, so that this process reaches the other
//!   one. Nobody else can send from a loopback address.
//!
//! [`connections`] finds the connections that were there before, and ends them.
//! [`capabilities::drop_all`] gives up the rights that attaching needs. [`reserve_no_port`] is for the
//! connections to the other process.
//!
//! This is the only crate of the workspace with `unsafe` code. It is in `bpf`, `page`,
//! `source` and `capabilities`, and each block says why it is sound.

mod bpf;
pub mod capabilities;
pub mod connections;
mod error;
mod instruction;
mod page;
pub mod program;
mod source;
mod steering;
#[cfg(test)]
mod test_network;

pub use error::SteerError;
pub use page::{Beat, LONGEST_BEAT};
pub use source::reserve_no_port;
pub use steering::{BEAT_INTERVAL, BEAT_LIMIT, Steered, Steering};
