//! Validates a custom resource by its schema. Entry: [`check`].
//!
//! Rules in CEL (`x-kubernetes-validations`) are not evaluated. If `anyOf` or `oneOf` fails, the errors
//! of the alternatives are not listed.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::format;
use super::pattern::Patterns;
use super::schema::{self, Node};
use crate::field_error::FieldError;

/// The errors of an object.
pub(super) fn check(fields: &Map<String, Value>, root: &Node) -> Vec<FieldError> {
    let (patterns, steps) = (RefCell::default(), Cell::new(MOST_STEPS));
    let mut check = Check { patterns: &patterns, steps: &steps, errors: Vec::new() };
    check.map(fields, root, "", true);
    check.errors
}

struct Check<'a> {
    patterns: &'a RefCell<Patterns>,
    /// The steps that further matches of patterns may take.
    steps: &'a Cell<u64>,
    errors: Vec<FieldError>,
}

/// The most steps of all matches of patterns for one object, some seconds.
const MOST_STEPS: u64 = 1_000_000_000;
/// The most errors that a response lists.
const MOST_ERRORS: usize = 100;

impl Check<'_> {
    fn value(&mut self, value: &Value, node: &Node, path: &str) {
        if value.is_null() && schema::flag(node, "nullable") {
            return;
        }
        if !has_type(value, node) {
            let expected = match schema::is_int_or_string(node) {
                true => "integer,string",
                false => schema::text(node, "type"),
            };
            let actual = type_name(value);
            let why = format!("{path} in body must be of type {expected}: \"{actual}\"");
            self.push(FieldError::wrong_type(path, &actual.into(), &why));
        }
        self.choice(value, node, path);
        match value {
            Value::String(text) => self.text(text, node, path),
            Value::Number(number) => self.number(number, node, path),
            Value::Array(list) => self.list(list, node, path),
            Value::Object(map) => self.map(map, node, path, false),
            _ => {}
        }
        self.alternatives(value, node, path);
    }

    fn choice(&mut self, value: &Value, node: &Node, path: &str) {
        let Some(Value::Array(allowed)) = node.get("enum") else {
            return;
        };
        if !allowed.iter().any(|allowed| same(allowed, value)) {
            let allowed = allowed.iter().map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            self.push(FieldError::not_supported(path, value, allowed));
        }
    }

    fn text(&mut self, text: &str, node: &Node, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(most) = bound(node, "maxLength").filter(|most| length > *most) {
            self.push(FieldError::too_long(path, most));
        }
        if let Some(least) = bound(node, "minLength").filter(|least| length < *least) {
            let why = format!("{path} in body should be at least {least} chars long");
            self.push(FieldError::invalid(path, &text.into(), &why));
        }
        let pattern = schema::text(node, "pattern");
        if !pattern.is_empty() && !self.matches(pattern, text, path) {
            let why = format!("{path} in body should match '{pattern}'");
            self.push(FieldError::invalid(path, &text.into(), &why));
        }
        let format = schema::text(node, "format");
        if !format::is_valid(format, text) {
            let quoted = Value::from(text);
            let why = format!("{path} in body must be of type {format}: {quoted}");
            self.push(FieldError::wrong_type(path, &quoted, &why));
        }
    }

    /// Whether a text matches. A pattern without memory or time left is an error of its own.
    fn matches(&mut self, pattern: &str, text: &str, path: &str) -> bool {
        let compiled = self.patterns.borrow_mut().get(pattern);
        let why = match compiled {
            Ok(compiled) => match self.steps.get().checked_sub(compiled.steps(text)) {
                Some(left) => {
                    self.steps.set(left);
                    return compiled.matches(text);
                }
                None => "the patterns of the schema need too much time for this object".to_owned(),
            },
            Err(why) => why,
        };
        self.push(FieldError::invalid(path, &"".into(), &why));
        true
    }

    fn number(&mut self, number: &Number, node: &Node, path: &str) {
        let limit = |keyword: &str| node.get(keyword).and_then(Value::as_f64);
        let Some(value) = number.as_f64() else {
            return;
        };
        let shown = Value::Number(number.clone());
        if let Some(most) = limit("maximum") {
            let exclusive = schema::flag(node, "exclusiveMaximum");
            if value > most || (exclusive && value >= most) {
                let relation = if exclusive { "less than" } else { "less than or equal to" };
                let why = format!("{path} in body should be {relation} {most}");
                self.push(FieldError::invalid(path, &shown, &why));
            }
        }
        if let Some(least) = limit("minimum") {
            let exclusive = schema::flag(node, "exclusiveMinimum");
            if value < least || (exclusive && value <= least) {
                let relation = if exclusive { "greater than" } else { "greater than or equal to" };
                let why = format!("{path} in body should be {relation} {least}");
                self.push(FieldError::invalid(path, &shown, &why));
            }
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| *factor > 0.0) {
            let ratio = value / factor;
            if ratio != ratio.trunc() {
                let why = format!("{path} in body should be a multiple of {factor}");
                self.push(FieldError::invalid(path, &shown, &why));
            }
        }
    }

    fn list(&mut self, list: &[Value], node: &Node, path: &str) {
        let length = list.len() as u64;
        if let Some(most) = bound(node, "maxItems").filter(|most| length > *most) {
            self.push(FieldError::too_many(path, list.len(), most));
        }
        if let Some(least) = bound(node, "minItems").filter(|least| length < *least) {
            let why = format!("{path} in body should have at least {least} items");
            self.push(FieldError::invalid(path, &length.into(), &why));
        }
        if let Some(items) = schema::child(node, "items") {
            for (place, element) in list.iter().enumerate() {
                self.value(element, items, &format!("{path}[{place}]"));
            }
        }
        self.unique(list, node, path);
    }

    /// The elements of a set, and the keys of a map list, are unique.
    fn unique(&mut self, list: &[Value], node: &Node, path: &str) {
        let keys: Vec<_> = match schema::text(node, "x-kubernetes-list-type") {
            "set" => Vec::new(),
            "map" => {
                let keys = node.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                keys.into_iter().flatten().filter_map(Value::as_str).collect()
            }
            _ => return,
        };
        let mut seen = HashSet::new();
        for (place, element) in list.iter().enumerate() {
            let identity = match element {
                Value::Object(map) if !keys.is_empty() => {
                    let pairs = keys.iter().filter_map(|key| Some((*key, map.get(*key)?)));
                    pairs.map(|(key, value)| (key.to_owned(), value.clone())).collect()
                }
                other => other.clone(),
            };
            if !seen.insert(identity.to_string()) {
                self.push(FieldError::duplicate(format!("{path}[{place}]"), &identity));
            }
        }
    }

    fn map(&mut self, map: &Map<String, Value>, node: &Node, path: &str, root: bool) {
        let length = map.len() as u64;
        if let Some(most) = bound(node, "maxProperties").filter(|most| length > *most) {
            self.push(FieldError::too_many(path, map.len(), most));
        }
        if let Some(least) = bound(node, "minProperties").filter(|least| length < *least) {
            let why = format!("{path} in body should have at least {least} properties");
            self.push(FieldError::invalid(path, &length.into(), &why));
        }
        let join = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let required = node.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            // The storage has objects without their version and kind.
            let implied = root && (name == "apiVersion" || name == "kind");
            if !implied && !map.contains_key(name) {
                self.push(FieldError::required(join(name), ""));
            }
        }
        if schema::is_embedded(node) {
            for name in ["apiVersion", "kind"] {
                if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    self.push(FieldError::required(join(name), "must not be empty"));
                }
            }
        }
        let others = schema::child(node, "additionalProperties");
        for (name, value) in map {
            if let Some(property) = schema::property(node, name).or(others) {
                self.value(value, property, &join(name));
            }
        }
        if root {
            self.alternatives(&Value::Object(map.clone()), node, path);
        }
    }

    fn alternatives(&mut self, value: &Value, node: &Node, path: &str) {
        if schema::alternatives(node, "anyOf").next().is_some() {
            let mut any = schema::alternatives(node, "anyOf");
            if !any.any(|option| self.fits(value, option, path)) {
                self.nameless(format!("\"{path}\" must validate at least one schema (anyOf)"));
            }
        }
        if schema::alternatives(node, "oneOf").next().is_some() {
            let options = schema::alternatives(node, "oneOf");
            let found = match options.filter(|option| self.fits(value, option, path)).count() {
                1 => None,
                0 => Some("Found none valid".to_owned()),
                count => Some(format!("Found {count} valid alternatives")),
            };
            if let Some(found) = found {
                let text =
                    format!("\"{path}\" must validate one and only one schema (oneOf). {found}");
                self.nameless(text);
            }
        }
        for part in schema::alternatives(node, "allOf") {
            self.value(value, part, path);
        }
        if schema::child(node, "not").is_some_and(|not| self.fits(value, not, path)) {
            self.nameless(format!("\"{path}\" must not validate the schema (not)"));
        }
    }

    fn fits(&self, value: &Value, node: &Node, path: &str) -> bool {
        let mut check = Check { errors: Vec::new(), ..*self };
        check.value(value, node, path);
        check.errors.is_empty()
    }

    /// An error that real servers report without a field.
    fn nameless(&mut self, text: String) {
        self.push(FieldError::invalid("<nil>", &"".into(), &text));
    }

    fn push(&mut self, error: FieldError) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(error);
        }
    }
}

/// Whether a value has the type of a schema. A schema without a type allows every type.
fn has_type(value: &Value, node: &Node) -> bool {
    let is_integer = |number: &Number| {
        number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n == n.trunc())
    };
    if schema::is_int_or_string(node) {
        return match value {
            Value::Number(number) => is_integer(number),
            other => other.is_string(),
        };
    }
    match (schema::text(node, "type"), value) {
        ("", value) => !value.is_null() || !node.contains_key("type"),
        ("integer", Value::Number(number)) => is_integer(number),
        (expected, value) => {
            expected == type_name(value) || (expected == "number" && value.is_number())
        }
    }
}

/// The name of a value's type.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether two values are the same; `1` and `1.0` are.
fn same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

fn bound(node: &Node, keyword: &str) -> Option<u64> {
    node.get(keyword)?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_have_a_limit_of_time_and_an_object_beyond_it_is_refused() {
        let schema = json!({ "properties": { "a": { "type": "string", "pattern": "(.*){50}(x|.){0,20}q$" } } });
        let errors = |length: usize| {
            let object = json!({ "a": "a".repeat(length) });
            let errors = check(object.as_object().unwrap(), schema.as_object().unwrap());
            errors.iter().map(|error| error.message.clone()).collect::<Vec<_>>()
        };
        let [short] = errors(10).try_into().unwrap();
        assert!(short.contains("should match"), "{short}");
        let [long] = errors(2 << 20).try_into().unwrap();
        assert!(long.contains("need too much time"), "{long}");
    }
}
