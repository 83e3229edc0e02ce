//! What the fuzz targets in `fuzz/` reach of trace contexts. Exists with `cfg(fuzzing)` alone.

use http::HeaderMap;

use super::context::{self, Context};

/// The context in these headers: trace, span and whether it is sampled.
pub fn context(headers: &HeaderMap) -> Option<([u8; 16], [u8; 8], bool)> {
    Context::of(headers).map(|context| (context.trace, context.span, context.sampled))
}

/// Replaces the context in these headers.
pub fn write(headers: &mut HeaderMap, (trace, span, sampled): ([u8; 16], [u8; 8], bool)) {
    Context { trace, span, sampled }.write(headers);
}

/// The trace state in these headers.
pub fn state(headers: &HeaderMap) -> Option<String> {
    context::state(headers)
}
