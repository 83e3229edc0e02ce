//! The gateway as a black box: the real binary, real sockets, and API servers that misbehave.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod cluster;
mod support;

mod admin;
mod attacks;
mod before;
mod causes;
mod compatibility;
mod dashboard;
mod descriptors;
mod documented;
mod egress;
mod hostile;
mod local_server;
mod log_events;
mod logs;
mod loops;
mod memory;
mod metrics;
mod pass_through;
mod peers_file;
mod readiness;
mod rotation;
mod signals;
mod skew;
mod slow_readers;
mod smoke;
mod startup;
mod status;
mod takeover;
mod tokens;
mod traces;
mod tunnels;
mod watches;
