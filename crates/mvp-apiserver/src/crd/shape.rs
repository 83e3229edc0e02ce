//! Gives a custom resource the shape of its schema: unknown fields are pruned, defaults are set.
//! Entries: [`prune`], [`set_defaults`].

use std::fmt;

use serde_json::{Map, Value};

use super::schema::{self, Node};
use crate::storage::size_of_value;

/// The fields that every resource has.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes the fields of an object that its schema does not have. Returns their paths.
pub(super) fn prune(fields: &mut Map<String, Value>, root: &Node) -> Vec<String> {
    let mut removed = Vec::new();
    prune_map(fields, Some(root), true, "", &mut removed);
    removed.sort();
    removed
}

fn prune_value(value: &mut Value, node: Option<&Node>, path: &str, removed: &mut Vec<String>) {
    match value {
        Value::Object(map) => prune_map(map, node, false, path, removed),
        Value::Array(list) => {
            let keeps = node.is_some_and(schema::preserves);
            let items = node.and_then(|node| schema::child(node, "items"));
            for (place, element) in list.iter_mut().enumerate() {
                // Without a schema for them, elements of a preserved list stay as they are.
                if items.is_some() || !keeps {
                    prune_value(element, items, &format!("{path}[{place}]"), removed);
                }
            }
        }
        _ => {}
    }
}

fn prune_map(
    map: &mut Map<String, Value>,
    node: Option<&Node>,
    root: bool,
    path: &str,
    removed: &mut Vec<String>,
) {
    let keeps = node.is_some_and(schema::preserves);
    let embedded = root || node.is_some_and(schema::is_embedded);
    map.retain(|key, value| {
        if embedded && META_FIELDS.contains(&key.as_str()) {
            return true;
        }
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Some(property) = node.and_then(|node| schema::property(node, key)) {
            prune_value(value, Some(property), &path, removed);
            return true;
        }
        match node.and_then(|node| node.get("additionalProperties")) {
            Some(Value::Object(schema)) => prune_value(value, Some(schema), &path, removed),
            Some(Value::Bool(true)) => prune_value(value, None, &path, removed),
            _ if keeps => {}
            _ => {
                removed.push(path);
                return false;
            }
        }
        true
    });
}

/// The defaults of an object take too much memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = MOST_BYTES >> 20;
        write!(f, "the defaults of its definition make the object larger than {most} MiB")
    }
}

/// The most memory of all defaults in one object: a small list can have a large default in each element.
const MOST_BYTES: usize = 8 << 20;

/// Sets the defaults of a schema, and removes nulls that it does not allow. Too large defaults are not
/// set.
pub(super) fn set_defaults(fields: &mut Map<String, Value>, root: &Node) -> Result<(), TooLarge> {
    let mut defaults = Defaults { left: MOST_BYTES, outcome: Ok(()) };
    defaults.map(fields, root);
    defaults.outcome
}

/// Sets defaults.
struct Defaults {
    /// The bytes that further defaults may take.
    left: usize,
    outcome: Result<(), TooLarge>,
}

impl Defaults {
    fn value(&mut self, value: &mut Value, node: &Node) {
        match value {
            Value::Object(map) => self.map(map, node),
            Value::Array(list) => {
                let Some(items) = schema::child(node, "items") else {
                    return;
                };
                for element in list {
                    if is_unwanted_null(element, items)
                        && let Some(default) = self.default_of(items)
                    {
                        *element = default;
                    }
                    self.value(element, items);
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>, node: &Node) {
        for (name, property) in schema::properties(node) {
            if map.get(name).is_some_and(|value| !is_unwanted_null(value, property)) {
                continue;
            }
            match self.default_of(property) {
                Some(default) => drop(map.insert(name.to_owned(), default)),
                None => drop(map.remove(name)),
            }
        }
        let others = schema::child(node, "additionalProperties");
        for (name, value) in map.iter_mut() {
            if let Some(schema) = schema::property(node, name).or(others) {
                if is_unwanted_null(value, schema)
                    && let Some(default) = self.default_of(schema)
                {
                    *value = default;
                }
                self.value(value, schema);
            }
        }
    }

    fn default_of(&mut self, node: &Node) -> Option<Value> {
        let default = node.get("default").filter(|default| !default.is_null())?;
        match self.left.checked_sub(size_of_value(default)) {
            Some(left) => {
                self.left = left;
                Some(default.clone())
            }
            None => {
                self.outcome = Err(TooLarge);
                None
            }
        }
    }
}

fn is_unwanted_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !schema::flag(node, "nullable")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("not an object") };
        map
    }

    #[test]
    fn unknown_fields_are_pruned_unless_they_are_preserved() {
        let schema = object(json!({
            "type": "object",
            "properties": {
                "spec": { "type": "object", "properties": {
                    "known": { "type": "integer" },
                    "list": { "type": "array", "items": { "type": "object", "properties": { "a": {} } } },
                    "map": { "type": "object", "additionalProperties": { "type": "object", "properties": { "a": {} } } },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": { "inner": { "type": "object", "properties": { "a": {} } } } },
                    "embedded": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": {} },
                } },
            },
        }));
        let mut fields = object(json!({
            "metadata": { "name": "x", "labels": { "a": "b" } },
            "other": 1,
            "spec": {
                "known": 1, "unknown": 2,
                "list": [{ "a": 1, "b": 2 }],
                "map": { "k": { "a": 1, "b": 2 } },
                "free": { "x": { "y": 1 }, "inner": { "a": 1, "b": 2 } },
                "embedded": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": {} },
            },
        }));
        let removed = prune(&mut fields, &schema);
        let expected = [
            "other",
            "spec.embedded.spec",
            "spec.free.inner.b",
            "spec.list[0].b",
            "spec.map.k.b",
            "spec.unknown",
        ];
        assert_eq!(removed, expected);
        let kept = json!({
            "metadata": { "name": "x", "labels": { "a": "b" } },
            "spec": {
                "known": 1,
                "list": [{ "a": 1 }],
                "map": { "k": { "a": 1 } },
                "free": { "x": { "y": 1 }, "inner": { "a": 1 } },
                "embedded": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } },
            },
        });
        assert_eq!(Value::Object(fields), kept);
    }

    #[test]
    fn defaults_are_set_at_every_level() {
        let schema = object(json!({
            "properties": {
                "spec": { "default": {}, "properties": {
                    "size": { "type": "integer", "default": 1 },
                    "note": { "type": "string", "nullable": true, "default": "n" },
                    "plain": { "type": "string" },
                    "list": { "items": { "properties": { "a": { "default": "x" } } } },
                } },
            },
        }));
        let cases = [
            (json!({}), json!({ "spec": { "size": 1, "note": "n" } })),
            (json!({ "spec": null }), json!({ "spec": { "size": 1, "note": "n" } })),
            (
                json!({ "spec": { "size": null, "note": null, "plain": null, "list": [{}, { "a": "y" }] } }),
                json!({ "spec": { "size": 1, "note": null, "list": [{ "a": "x" }, { "a": "y" }] } }),
            ),
        ];
        for (sent, expected) in cases {
            let mut fields = object(sent);
            assert_eq!(set_defaults(&mut fields, &schema), Ok(()));
            assert_eq!(Value::Object(fields), expected);
        }
    }

    #[test]
    fn defaults_have_a_limit() {
        let schema = object(json!({
            "properties": { "list": { "items": { "properties": {
                "a": { "default": "x".repeat(1 << 20) },
            } } } },
        }));
        for (count, expected) in [(7, Ok(())), (9, Err(TooLarge)), (100_000, Err(TooLarge))] {
            let mut fields = object(json!({ "list": vec![json!({}); count] }));
            assert_eq!(set_defaults(&mut fields, &schema), expected, "{count}");
            let set =
                fields["list"].as_array().unwrap().iter().filter(|item| item["a"].is_string());
            assert!(set.count() <= 8);
        }
    }
}
