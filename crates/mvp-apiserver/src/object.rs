//! Objects: validation of input and rendering of output. Entries: [`admit`], [`TypeMeta::render`].

use serde::Serialize;
use serde_json::{Map, Value};

use crate::metadata;
use crate::route::Target;
use crate::status::Failure;
use crate::storage::Fields;

/// Validates an object that was sent to a target: kind and version, namespace, and metadata. The
/// result has no `apiVersion` and `kind`.
pub(crate) fn admit(target: &Target<'_>, mut fields: Fields) -> Result<Fields, Failure> {
    let expected = target.type_meta();
    let api_version = take_text(&mut fields, "apiVersion")?.unwrap_or_default();
    let kind = take_text(&mut fields, "kind")?.unwrap_or_default();
    if !api_version.is_empty() && api_version != expected.api_version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
             ({})",
            expected.api_version
        )));
    }
    if !kind.is_empty() && kind != expected.kind {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {}",
            target.version, expected.kind
        )));
    }
    check_metadata(&mut fields)?;
    metadata::check(target, &fields)?;
    match metadata_text(&fields, "namespace") {
        namespace if namespace == target.namespace => {}
        // Real servers ignore the namespace of a cluster-scoped object.
        _ if target.namespace.is_empty() => set_metadata(&mut fields, "namespace", ""),
        "" => set_metadata(&mut fields, "namespace", &target.namespace),
        _ => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the \
                 request",
            ));
        }
    }
    Ok(fields)
}

/// The version and kind of a rendered object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeMeta {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// A rendered object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rendered<'a> {
    api_version: &'a str,
    kind: &'a str,
    #[serde(flatten)]
    fields: &'a Fields,
}

impl TypeMeta {
    /// Renders an object with this version and kind.
    pub(crate) fn render<'a>(&'a self, fields: &'a Fields) -> Rendered<'a> {
        Rendered { api_version: &self.api_version, kind: &self.kind, fields }
    }
}

impl Target<'_> {
    /// The version and kind of its objects.
    pub(crate) fn type_meta(&self) -> TypeMeta {
        TypeMeta { api_version: self.api_version(), kind: self.resource.kind.clone() }
    }
}

/// The metadata of an object.
pub(crate) fn metadata_of(fields: &Fields) -> Option<&Map<String, Value>> {
    fields.get("metadata")?.as_object()
}

/// A string of the metadata; empty if it is absent.
pub(crate) fn metadata_text<'a>(fields: &'a Fields, key: &str) -> &'a str {
    let value = metadata_of(fields).and_then(|metadata| metadata.get(key)?.as_str());
    value.unwrap_or_default()
}

/// Sets a string of the metadata; an empty one is removed.
pub(crate) fn set_metadata(fields: &mut Fields, key: &str, value: &str) {
    let value = (!value.is_empty()).then(|| value.into());
    put_metadata(fields, key, value);
}

/// Sets or removes a value of the metadata.
pub(crate) fn put_metadata(fields: &mut Fields, key: &str, value: Option<Value>) {
    let metadata = fields.entry("metadata").or_insert_with(|| Map::new().into());
    if let Value::Object(metadata) = metadata {
        match value {
            Some(value) => drop(metadata.insert(key.to_owned(), value)),
            None => drop(metadata.remove(key)),
        }
    }
}

/// The strings of the metadata that are checked.
const TEXTS: [&str; 5] = ["name", "generateName", "namespace", "uid", "resourceVersion"];
/// The maps of the metadata that are checked.
const TEXT_MAPS: [&str; 2] = ["labels", "annotations"];

/// The lists of the metadata that are checked.
const TEXT_LISTS: [&str; 1] = ["finalizers"];

/// Checks the types of the metadata, and adds it if it is absent.
fn check_metadata(fields: &mut Fields) -> Result<(), Failure> {
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Map::new().into();
    }
    let Value::Object(metadata) = metadata else {
        return Err(wrong_type("metadata", "an object"));
    };
    // Go encodes empty values as null.
    metadata.retain(|_, value| !value.is_null());
    for key in TEXTS {
        if metadata.get(key).is_some_and(|value| !value.is_string()) {
            return Err(wrong_type(&format!("metadata.{key}"), "a string"));
        }
    }
    for key in TEXT_MAPS {
        let is_text_map =
            |value: &Value| value.as_object().is_some_and(|map| map.values().all(Value::is_string));
        if metadata.get(key).is_some_and(|value| !is_text_map(value)) {
            return Err(wrong_type(&format!("metadata.{key}"), "a map of strings"));
        }
    }
    for key in TEXT_LISTS {
        let is_text_list =
            |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        if metadata.get(key).is_some_and(|value| !is_text_list(value)) {
            return Err(wrong_type(&format!("metadata.{key}"), "a list of strings"));
        }
    }
    Ok(())
}

fn take_text(fields: &mut Fields, key: &str) -> Result<Option<String>, Failure> {
    match fields.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong_type(key, "a string")),
    }
}

fn wrong_type(field: &str, expected: &str) -> Failure {
    Failure::bad_request(format!("json: cannot unmarshal {field}: it must be {expected}"))
}
