//! All fuzz targets.

mod accept;
mod certificates;
mod config;
mod decide;
mod discovery;
mod encodings;
mod fetch;
mod files;
mod http1;
mod http2;
mod layer;
mod members;
mod merge;
mod not_found;
mod openapi;
mod protobuf;
mod request;
mod seeds;
mod trace;

use crate::target::Target;

/// The targets.
pub const TARGETS: &[Target] = &[
    request::TARGET,
    accept::TARGET,
    discovery::TARGET,
    merge::TARGET,
    openapi::TARGET,
    encodings::TARGET,
    protobuf::TARGET,
    not_found::TARGET,
    decide::TARGET,
    fetch::TARGET,
    members::TARGET,
    config::TARGET,
    files::TARGET,
    certificates::TARGET,
    trace::TARGET,
    http1::TARGET,
    http2::TARGET,
    layer::TARGET,
];
