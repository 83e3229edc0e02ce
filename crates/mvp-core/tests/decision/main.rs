//! The decision table, row by row, over snapshots built of documents.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing)]

mod cluster;
mod discovery;
mod failures;
mod not_found;
mod routing;
