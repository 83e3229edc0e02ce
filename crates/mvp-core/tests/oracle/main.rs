//! Comparison with Kubernetes' own packages, whose results `tools/oracle` prints.

#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod merge;
mod negotiate;
mod order;
mod requests;

use serde_json::Value;

/// The lines of a fixture, at least this many: with an empty one, a test would prove nothing.
fn fixture(name: &str, at_least: usize) -> Vec<Value> {
    // `.ci/fuzz --oracle` has answers to inputs that fuzzing found.
    let folder = std::env::var("MVP_ORACLE").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/oracle").to_owned()
    });
    let path = format!("{folder}/{name}");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert!(lines.len() >= at_least, "{path}: {} lines, expected {at_least}", lines.len());
    lines
}

/// A string field of a fixture's line.
fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
