//! Printer columns of custom resources. Entry: [`CustomColumn`].
//!
//! The paths are a part of JSONPath: `.a.b`, `.a['b.c']`, `.a[0]`, `.a[*]` and
//! `.a[?(@.b=="c")]`. A path with anything else prints nothing.

use serde_json::{Value, json};

use super::validate::text;
use crate::storage::Fields;
use crate::table::age;

/// A column of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Option<Vec<Step>>,
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// The elements of which a field has a value.
    Matching(String, String),
}

impl CustomColumn {
    /// The columns of a version of a definition.
    pub(super) fn of_version(version: &Fields) -> Vec<CustomColumn> {
        let declared = super::validate::list(Some(version), "additionalPrinterColumns");
        if declared.is_empty() {
            let age =
                json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" });
            return vec![CustomColumn::new(&age)];
        }
        declared.iter().map(CustomColumn::new).collect()
    }

    fn new(column: &Value) -> CustomColumn {
        let map = column.as_object();
        let owned = |key: &str| text(map, key).to_owned();
        let path = text(map, "jsonPath");
        let description = match text(map, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        CustomColumn {
            name: owned("name"),
            kind: owned("type"),
            format: owned("format"),
            description,
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path: parse(path),
        }
    }

    /// The definition of the column in a table.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// The cell of an object.
    pub(crate) fn print(&self, fields: &Fields, now: i64) -> Value {
        let found = self.path.as_ref().and_then(|path| find(fields, path));
        let Some(value) = found else {
            return Value::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", Value::Null) => Value::Null,
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(integer) => integer.into(),
                // Cut off, as in Go.
                #[allow(clippy::cast_possible_truncation)]
                None => number.as_f64().map_or(Value::Null, |float| (float as i64).into()),
            },
            ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, Value::from),
            ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(time)) => age::since(Some(time), now).into(),
            _ => Value::Null,
        }
    }
}

/// The first value of a path.
fn find<'f>(fields: &'f Fields, path: &[Step]) -> Option<&'f Value> {
    let (first, rest) = path.split_first()?;
    let Step::Field(name) = first else {
        return None;
    };
    rest.iter().try_fold(fields.get(name)?, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Every => value.as_array()?.first(),
        Step::Index(index) => {
            let list = value.as_array()?;
            let length = i64::try_from(list.len()).ok()?;
            let index = if *index < 0 { length + index } else { *index };
            list.get(usize::try_from(index).ok()?)
        }
        Step::Matching(field, wanted) => {
            value.as_array()?.iter().find(|element| match element.get(field) {
                Some(Value::String(text)) => text == wanted,
                Some(other) => {
                    let text = other.to_string();
                    text == *wanted
                }
                None => false,
            })
        }
    })
}

/// Parses a path; `None` if it has more than this module knows.
fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let (name, tail) = tail.split_at_checked(end)?;
            if !name.is_empty() {
                // `\.` is a dot of a name.
                if let Some(start) = name.strip_suffix('\\') {
                    let tail = tail.strip_prefix('.')?;
                    let end = tail.find(['.', '[']).unwrap_or(tail.len());
                    let (more, tail) = tail.split_at_checked(end)?;
                    steps.push(Step::Field(format!("{start}.{more}")));
                    rest = tail;
                    continue;
                }
                steps.push(Step::Field(name.to_owned()));
            }
            rest = tail;
        } else {
            let (inside, tail) = bracket(rest)?;
            steps.push(subscript(inside)?);
            rest = tail;
        }
    }
    Some(steps)
}

/// The text in brackets, and the text after them.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('[')?;
    let end = match text.chars().next()? {
        quote @ ('\'' | '"') => {
            let close = text.get(1..)?.find(quote)? + 2;
            (text.as_bytes().get(close) == Some(&b']')).then_some(close)?
        }
        '?' => text.find(")]")? + 1,
        _ => text.find(']')?,
    };
    Some((text.get(..end)?, text.get(end + 1..)?))
}

fn subscript(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::Every);
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    if let Some(condition) = text.strip_prefix("?(@.").and_then(|text| text.strip_suffix(')')) {
        let (field, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim();
        return Some(Step::Matching(
            field.trim().to_owned(),
            unquoted(wanted).unwrap_or(wanted).to_owned(),
        ));
    }
    unquoted(text).map(|name| Step::Field(name.to_owned()))
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_print_the_values_of_their_paths() {
        let Value::Object(fields) = json!({
            "metadata": { "creationTimestamp": "1970-01-01T00:00:10Z", "annotations": { "a.b/c": "x" } },
            "spec": { "text": "t", "count": 3, "ratio": 0.5, "on": true, "list": ["p", "q"], "map": { "a": 1 } },
            "status": { "conditions": [{ "type": "Other", "status": "no" }, { "type": "Ready", "status": "yes" }] },
        }) else {
            panic!("not an object")
        };
        let cases = [
            (".spec.text", "string", json!("t")),
            (".spec.count", "string", json!("3")),
            (".spec.count", "integer", json!(3)),
            (".spec.ratio", "number", json!(0.5)),
            (".spec.ratio", "integer", json!(0)),
            (".spec.count", "number", json!(3.0)),
            (".spec.on", "boolean", json!(true)),
            (".spec.on", "string", json!("true")),
            (".spec.text", "integer", Value::Null),
            (".spec.none", "string", Value::Null),
            (".spec.list[1]", "string", json!("q")),
            (".spec.list[-1]", "string", json!("q")),
            (".spec.list[*]", "string", json!("p")),
            (".spec.list[9]", "string", Value::Null),
            (".spec.map", "string", json!("{\"a\":1}")),
            (".status.conditions[?(@.type==\"Ready\")].status", "string", json!("yes")),
            (".status.conditions[?(@.type=='None')].status", "string", Value::Null),
            (".metadata.annotations['a.b/c']", "string", json!("x")),
            (".metadata.annotations.a\\.b/c", "string", json!("x")),
            (".metadata.creationTimestamp", "date", json!("90s")),
            (".spec.text", "date", json!("<invalid>")),
            (".spec..text", "string", json!("t")),
            (".spec[", "string", Value::Null),
            (".spec.list[0:1]", "string", Value::Null),
            ("[0]", "string", Value::Null),
            ("", "string", Value::Null),
        ];
        for (path, kind, expected) in cases {
            let column = CustomColumn::new(&json!({ "name": "x", "type": kind, "jsonPath": path }));
            assert_eq!(column.print(&fields, 100), expected, "{path} as {kind}");
        }
    }
}
