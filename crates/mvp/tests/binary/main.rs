//! The binary as an operator sees it: its output and its exit code.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod adopt;
mod config_file;
mod demo;
mod doctor;
mod folder;
mod help;
mod manifests;
mod manual;
mod mistakes;
mod skew;
