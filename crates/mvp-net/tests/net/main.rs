//! The listener as its clients meet it: real sockets on loopback, certificates made on the spot.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod certificates;
mod connections;
mod descriptors;
mod drain;
mod end;
mod frames;
mod hostile_certificates;
mod limits;
mod names;
mod protocols;
mod reload;
mod resets;
mod setup;
mod sockets;
mod steered;
mod support;
mod takeover;
mod targets;
mod trust;
mod tunnels;
mod version_1;
