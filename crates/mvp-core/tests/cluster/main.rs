//! Small clusters: the decision for a request, row by row of the table, and the merged documents.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing)]

mod builder;
mod discovery;
mod documents;
mod failures;
mod not_found;
mod paths;
mod routing;
