//! What requests mean, rule by rule, as real servers treat them.

#![allow(missing_docs, clippy::expect_used)]

mod parsing;
mod questions;

use mvp_core::RequestInfo;

/// Parses a request such as `GET /api/v1/pods?watch=1`.
pub(crate) fn parse(request: &str) -> RequestInfo<'_> {
    let (method, target) = request.split_once(' ').expect("a method and a target");
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    RequestInfo::parse(method, path, query)
}
