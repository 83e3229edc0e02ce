//! The binary as an operator sees it: its output and its exit code.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

mod config_file;
mod demo;
mod folder;
mod help;
mod mistakes;
mod skew;
