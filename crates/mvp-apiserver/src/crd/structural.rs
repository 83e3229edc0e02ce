//! The rules of structural schemas. Entry: [`check`].
//!
//! Checked: the keywords that are not supported, types, items, what may stand inside `allOf`, `anyOf`,
//! `oneOf` and `not`, metadata, embedded resources, patterns, and that nested rules are about known
//! fields. Not checked: whether defaults fit their own schema, rules of list types, and CEL rules.

use serde_json::Value;

use super::pattern::Patterns;
use super::schema::{self, Node};
use crate::field_error::FieldError;

/// Where a schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The errors of a schema. `path` is that of the schema in its definition; `patterns` are those of the
/// schemas before it.
pub(super) fn check(root: &Node, path: &str, patterns: &mut Patterns) -> Vec<FieldError> {
    let mut errors = Vec::new();
    structure(root, Level::Root, path, &mut errors);
    complete(root, root, path, path, &mut errors);
    let mut fault = |path: &str, pattern: &str, why: String| {
        errors.push(FieldError::invalid(format!("{path}.pattern"), &pattern.into(), &why));
    };
    patterns.add(root, path, &mut fault);
    errors.sort_by(|one, other| (&one.field, &one.message).cmp(&(&other.field, &other.message)));
    keywords(root, path, Place { root: true, meta: false }, &mut errors);
    if schema::flag(root, "nullable") {
        let field = format!("{path}.nullable");
        errors.push(FieldError::forbidden(field, "nullable cannot be true at the root"));
    }
    errors
}

/// Keywords that no schema of a definition may have.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
/// The types of values.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where a node stands, as far as its keywords depend on it.
#[derive(Debug, Clone, Copy)]
struct Place {
    root: bool,
    /// In the metadata of a resource.
    meta: bool,
}

/// The keywords of a node and of the nodes below it.
fn keywords(node: &Node, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    let kind = schema::text(node, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let known = TYPES.map(str::to_owned);
        errors.push(FieldError::not_supported(format!("{path}.type"), &kind.into(), known));
    }
    for keyword in UNSUPPORTED.into_iter().filter(|keyword| node.contains_key(*keyword)) {
        let why = format!("{keyword} is not supported");
        errors.push(FieldError::forbidden(format!("{path}.{keyword}"), &why));
    }
    if node.get("items").is_some_and(Value::is_array) {
        let why = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), why));
    }
    if place.meta && node.contains_key("default") {
        let field = format!("{path}.default");
        errors.push(FieldError::forbidden(field, "must not be set in top-level metadata"));
    }
    if schema::flag(node, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
    }
    let additional = node.get("additionalProperties");
    let has_properties = schema::properties(node).next().is_some();
    if has_properties && additional.is_some_and(|value| *value != Value::Bool(true)) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }

    let inner = Place { root: false, ..place };
    for keyword in ["additionalProperties", "not", "items"] {
        if let Some(child) = schema::child(node, keyword) {
            keywords(child, &format!("{path}.{keyword}"), inner, errors);
        }
    }
    for (name, child) in schema::properties(node) {
        let meta = place.meta || (place.root && ["metadata", "kind", "apiVersion"].contains(&name));
        let inner = Place { root: false, meta };
        keywords(child, &format!("{path}.properties[{name}]"), inner, errors);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (index, child) in schema::alternatives(node, keyword).enumerate() {
            keywords(child, &format!("{path}.{keyword}[{index}]"), inner, errors);
        }
    }
}

/// The types and extensions of a node and of the nodes below it.
fn structure(node: &Node, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = schema::text(node, "type");
    let items = schema::child(node, "items");
    if kind == "array" && !node.contains_key("items") {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = items {
        structure(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, child) in schema::properties(node) {
        structure(child, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = format!("{path}.additionalProperties");
    if node.contains_key("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(&*additional, "must not be used at the root"));
        }
        if let Some(child) = schema::child(node, "additionalProperties") {
            structure(child, Level::Field, &additional, errors);
        }
    }
    if schema::is_int_or_string(node) {
        for keyword in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if schema::flag(node, keyword) {
                let why = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(format!("{path}.{keyword}"), &true.into(), why));
            }
        }
    }
    nested(node, path, errors);
    own_type(node, kind, level, path, errors);
    metadata(node, level, path, errors);
    if schema::is_embedded(node) {
        if node.contains_key("additionalProperties") {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(additional, why));
        }
        if !schema::preserves(node) && schema::properties(node).next().is_none() {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                       x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(format!("{path}.properties"), why));
        }
    }
}

fn own_type(node: &Node, kind: &str, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    if schema::is_embedded(node) && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(&*field, why),
            kind => FieldError::invalid(&*field, &kind.into(), why),
        });
    } else if kind.is_empty() && !schema::is_int_or_string(node) && !schema::preserves(node) {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&*field, why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, &kind.into(), "must be object at the root"));
    }
}

/// The fields that every resource has, at the root and in embedded resources.
fn metadata(node: &Node, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if level != Level::Root && !schema::is_embedded(node) {
        return;
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        if let Some(property) = schema::property(node, name) {
            let kind = schema::text(property, "type");
            if kind != wanted {
                let field = format!("{path}.properties[{name}].type");
                errors.push(FieldError::invalid(field, &kind.into(), &format!("must be {wanted}")));
            }
        }
    }
    let Some(metadata) = schema::property(node, "metadata").filter(|_| level == Level::Root) else {
        return;
    };
    let named = |(name, _): (&str, &Node)| name == "name" || name == "generateName";
    let known = ["type", "properties", "default"];
    let plain = metadata.keys().all(|keyword| known.contains(&keyword.as_str()))
        && schema::properties(metadata).all(named);
    if !plain {
        let why = "must not specify anything other than name and generateName, but metadata is \
                   implicitly specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// The value validations of a node: what stands inside its junctors.
fn nested(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for (index, child) in schema::alternatives(node, keyword).enumerate() {
            let path = format!("{path}.{keyword}[{index}]");
            let exempt =
                schema::is_int_or_string(node) && is_int_or_string_pattern(node, keyword, index);
            inside_junctor(child, exempt, &path, errors);
        }
    }
    if let Some(child) = schema::child(node, "not") {
        inside_junctor(child, false, &format!("{path}.not"), errors);
    }
}

/// The two places where types may be repeated for `x-kubernetes-int-or-string`.
fn is_int_or_string_pattern(node: &Node, keyword: &str, index: usize) -> bool {
    let is_pattern = |node: &Node| {
        let types: Vec<_> = schema::alternatives(node, "anyOf")
            .map(|option| schema::text(option, "type"))
            .collect();
        types == ["integer", "string"]
    };
    match keyword {
        "anyOf" => is_pattern(node),
        "allOf" if index == 0 => schema::alternatives(node, "allOf").next().is_some_and(is_pattern),
        _ => false,
    }
}

/// The keywords that a schema inside a junctor may not have.
const NOT_INSIDE: [(&str, &str); 10] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

fn inside_junctor(node: &Node, exempt: bool, path: &str, errors: &mut Vec<FieldError>) {
    let is_set = |keyword: &str| {
        node.get(keyword).is_some_and(|value| *value != Value::Bool(false) && *value != Value::Null)
    };
    for (keyword, why) in NOT_INSIDE {
        if is_set(keyword) && !(exempt && keyword == "type") {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), why));
        }
    }
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for (index, child) in schema::alternatives(node, keyword).enumerate() {
            inside_junctor(child, exempt, &format!("{path}.{keyword}[{index}]"), errors);
        }
    }
    for keyword in ["not", "items"] {
        if let Some(child) = schema::child(node, keyword) {
            inside_junctor(child, false, &format!("{path}.{keyword}"), errors);
        }
    }
    for (name, child) in schema::properties(node) {
        let path = format!("{path}.properties[{name}]");
        if name == "metadata" {
            let why = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(&*path, why));
        }
        inside_junctor(child, false, &path, errors);
    }
}

/// Fields that a junctor of the root is about must be specified outside of it.
fn complete(node: &Node, known: &Node, path: &str, known_path: &str, errors: &mut Vec<FieldError>) {
    let junctors = ["not", "allOf", "anyOf", "oneOf"].into_iter().flat_map(|keyword| {
        let lists = schema::alternatives(node, keyword).enumerate();
        let lists = lists.map(move |(index, child)| (format!("{path}.{keyword}[{index}]"), child));
        let single = (keyword == "not").then(|| schema::child(node, "not")).flatten();
        lists.chain(single.map(|child| (format!("{path}.not"), child)))
    });
    for (path, child) in junctors {
        complete(child, known, &path, known_path, errors);
        for (name, property) in schema::properties(child) {
            let path = format!("{path}.properties[{name}]");
            let known_path = format!("{known_path}.properties[{name}]");
            match schema::property(known, name) {
                Some(known) => complete_nested(property, known, &path, &known_path, errors),
                None => {
                    let why = format!("because it is defined in {path}");
                    errors.push(FieldError::required(known_path, &why));
                }
            }
        }
    }
}

fn complete_nested(
    node: &Node,
    known: &Node,
    path: &str,
    known_path: &str,
    errors: &mut Vec<FieldError>,
) {
    complete(node, known, path, known_path, errors);
    for (name, property) in schema::properties(node) {
        let path = format!("{path}.properties[{name}]");
        let known_path = format!("{known_path}.properties[{name}]");
        match schema::property(known, name) {
            Some(known) => complete_nested(property, known, &path, &known_path, errors),
            None => {
                let why = format!("because it is defined in {path}");
                errors.push(FieldError::required(known_path, &why));
            }
        }
    }
}
