//! Clusters in a few words: what is decided for a request, row by row of the decision table, and
//! what the merged documents say.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing)]

mod builder;
mod discovery;
mod documents;
mod failures;
mod not_found;
mod routing;
