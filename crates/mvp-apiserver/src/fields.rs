//! The fields of built-in kinds: a real server decodes a body into a Go type, which has no place for
//! unknown fields and refuses values of another type. Entry: [`decode`].

use serde_json::Value;

use crate::schema::Schema;
use crate::storage::Fields;

/// Drops what the schema has no place for, and returns the paths of the dropped fields. Null is the
/// same as an absent field. It fails for a value of the wrong type.
pub(crate) fn decode(schema: Schema<'_>, object: &mut Fields) -> Result<Vec<String>, Mistyped> {
    let mut unknown = Vec::new();
    fields(schema, object, "", &mut unknown)?;
    Ok(unknown)
}

/// A value of the wrong type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistyped {
    path: String,
    found: &'static str,
    expected: &'static str,
}

impl Mistyped {
    /// The error of Go's decoder.
    pub(crate) fn message(&self) -> String {
        let Mistyped { path, found, expected } = self;
        format!("json: cannot unmarshal {found} into Go struct field {path} of type {expected}")
    }
}

/// The most unknown fields that are named.
const MAX_NAMED: usize = 100;

fn fields(
    schema: Schema<'_>,
    object: &mut Fields,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), Mistyped> {
    if schema.keyword("properties").is_none() && schema.additional_properties().is_none() {
        return Ok(());
    }
    let mut dropped = Vec::new();
    for (name, value) in object.iter_mut() {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match schema.field(name) {
            None => {
                if unknown.len() < MAX_NAMED {
                    unknown.push(below);
                }
                dropped.push(name.clone());
            }
            Some(_) if value.is_null() => dropped.push(name.clone()),
            Some(schema) => check(schema, value, &below, unknown)?,
        }
    }
    for name in dropped {
        object.remove(&name);
    }
    Ok(())
}

fn check(
    schema: Schema<'_>,
    value: &mut Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), Mistyped> {
    let found = found(value);
    let wrong = |expected| Err(Mistyped { path: path.to_owned(), found, expected });
    match (schema.kind(), value) {
        ("object", Value::Object(object)) => fields(schema, object, path, unknown),
        ("array", Value::Array(items)) => {
            let Some(schema) = schema.items() else { return Ok(()) };
            for (place, item) in items.iter_mut().enumerate().filter(|(_, item)| !item.is_null()) {
                check(schema, item, &format!("{path}[{place}]"), unknown)?;
            }
            Ok(())
        }
        ("integer", Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_)) => Ok(()),
        ("object", _) => wrong("object"),
        ("array", _) => wrong("slice"),
        ("integer", _) if schema.keyword("format").is_some_and(|format| format == "int32") => {
            wrong("int32")
        }
        ("integer", _) => wrong("int64"),
        ("string", _) => wrong("string"),
        ("boolean", _) => wrong("bool"),
        ("number", _) => wrong("float64"),
        // A quantity, an integer or a string, or any JSON.
        _ => Ok(()),
    }
}

/// The type of a value, as Go's decoder names it.
fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::release::Release;

    fn decoded(kind: &str, mut object: Value) -> Result<(Value, Vec<String>), String> {
        let schema = Release::V1_36.schemas().of_kind("", "v1", kind).unwrap();
        let fields = object.as_object_mut().unwrap();
        let unknown = decode(schema.schema().unwrap(), fields).map_err(|wrong| wrong.message())?;
        Ok((object, unknown))
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "speck": {},
            "metadata": { "name": "a", "labels": { "any": "thing" }, "creationTimestamp": null },
            "spec": { "containers": [{ "name": "a", "imagee": "x", "resources": {
                "limits": { "cpu": 1, "memory": "1Gi" },
            } }] },
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "labels": { "any": "thing" } },
            "spec": { "containers": [{ "name": "a", "resources": {
                "limits": { "cpu": 1, "memory": "1Gi" },
            } }] },
        });
        let unknown = ["spec.containers[0].imagee", "speck"].map(str::to_owned).to_vec();
        assert_eq!(decoded("Pod", pod), Ok((expected, unknown)));
    }

    #[test]
    fn values_of_the_wrong_type_are_refused() {
        let cases = [
            (json!({ "spec": { "priority": "1" } }), "string", "spec.priority of type int32"),
            (json!({ "spec": { "priority": 1.5 } }), "number", "spec.priority of type int32"),
            (json!({ "spec": { "hostIPC": 1 } }), "number", "spec.hostIPC of type bool"),
            (
                json!({ "metadata": { "labels": { "a": true } } }),
                "bool",
                "metadata.labels.a of type",
            ),
            (json!({ "spec": { "containers": {} } }), "object", "spec.containers of type slice"),
            (json!({ "spec": [] }), "array", "spec of type object"),
        ];
        for (object, found, rest) in cases {
            let message = decoded("Pod", object).unwrap_err();
            let start = format!("json: cannot unmarshal {found} into Go struct field {rest}");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn fields_of_any_shape_are_kept() {
        let object = json!({ "metadata": { "managedFields": [{ "fieldsV1": { "f:a": {} } }] } });
        assert_eq!(decoded("ConfigMap", object.clone()), Ok((object, Vec::new())));
        let service =
            json!({ "spec": { "ports": [{ "targetPort": "http" }, { "targetPort": 1 }] } });
        assert_eq!(decoded("Service", service.clone()), Ok((service, Vec::new())));
    }
}
