//! Reads the keywords of a structural schema. Entry: [`Node`].

use serde_json::{Map, Value};

/// A node of a schema: an object of keywords.
pub(super) type Node = Map<String, Value>;

/// A subschema under a keyword.
pub(super) fn child<'s>(node: &'s Node, keyword: &str) -> Option<&'s Node> {
    node.get(keyword)?.as_object()
}

/// The schema of a property.
pub(super) fn property<'s>(node: &'s Node, name: &str) -> Option<&'s Node> {
    child(node, "properties")?.get(name)?.as_object()
}

/// The schemas of all properties.
pub(super) fn properties(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let properties = child(node, "properties").into_iter().flatten();
    properties.filter_map(|(name, schema)| Some((name.as_str(), schema.as_object()?)))
}

/// The subschemas of `allOf`, `anyOf` or `oneOf`.
pub(super) fn alternatives<'s>(node: &'s Node, keyword: &str) -> impl Iterator<Item = &'s Node> {
    let list = node.get(keyword).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_object)
}

/// A string; empty if it is absent.
pub(super) fn text<'s>(node: &'s Node, keyword: &str) -> &'s str {
    node.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a keyword is true.
pub(super) fn flag(node: &Node, keyword: &str) -> bool {
    node.get(keyword) == Some(&Value::Bool(true))
}

/// Whether unknown fields are kept.
pub(super) fn preserves(node: &Node) -> bool {
    flag(node, "x-kubernetes-preserve-unknown-fields")
}

/// Whether the value is a whole resource.
pub(super) fn is_embedded(node: &Node) -> bool {
    flag(node, "x-kubernetes-embedded-resource")
}

/// Whether the value is an integer or a string.
pub(super) fn is_int_or_string(node: &Node) -> bool {
    flag(node, "x-kubernetes-int-or-string")
}
