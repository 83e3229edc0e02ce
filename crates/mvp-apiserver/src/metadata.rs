//! Validation of labels, annotations, finalizers and owner references. Entry: [`check`].

use serde_json::{Map, Value};

use crate::object;
use crate::route::Target;
use crate::status::{Failure, Fault};
use crate::storage::Fields;

/// The most bytes of all annotations of an object.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Checks the metadata of an object; its types are known to be right, but for owner references.
pub(crate) fn check(target: &Target<'_>, fields: &Fields) -> Result<(), Failure> {
    let Some(metadata) = object::metadata_of(fields) else {
        return Ok(());
    };
    let name = object::metadata_text(fields, "name");
    let invalid = |field, value: &str, why: &str| {
        Err(Failure::invalid_field(target, name, field, Fault::Value(value, why)))
    };
    for (key, value) in texts(metadata, "labels") {
        if let Some(why) = key_fault(key) {
            return invalid("metadata.labels", key, why);
        }
        if let Some(why) = label_fault(value) {
            return invalid("metadata.labels", value, why);
        }
    }
    let mut bytes = 0_usize;
    for (key, value) in texts(metadata, "annotations") {
        // The keys of annotations may have capitals in their prefix.
        if let Some(why) = key_fault(&key.to_ascii_lowercase()) {
            return invalid("metadata.annotations", key, why);
        }
        bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
    }
    if bytes > ANNOTATION_BYTES {
        let why = format!("Too long: may not be more than {ANNOTATION_BYTES} bytes");
        let fault = Fault::TooLong(&why);
        return Err(Failure::invalid_field(target, name, "metadata.annotations", fault));
    }
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    for finalizer in finalizers.filter_map(Value::as_str) {
        if let Some(why) = key_fault(finalizer) {
            return invalid("metadata.finalizers", finalizer, why);
        }
    }
    match metadata.get("ownerReferences") {
        None => Ok(()),
        Some(Value::Array(owners)) => check_owners(target, name, owners),
        Some(_) => Err(wrong_owners()),
    }
}

/// Checks the references of an object to its owners.
fn check_owners(target: &Target<'_>, name: &str, owners: &[Value]) -> Result<(), Failure> {
    let invalid =
        |field, why: &str| Err(Failure::invalid_field(target, name, field, Fault::Value("", why)));
    let mut controllers = Vec::new();
    for owner in owners {
        let Value::Object(owner) = owner else {
            return Err(wrong_owners());
        };
        let text = |key: &str| match owner.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(wrong_owners()),
        };
        if text("apiVersion")?.is_empty() {
            return invalid("metadata.ownerReferences.apiVersion", "version must not be empty");
        }
        let required = [
            ("kind", "metadata.ownerReferences.kind"),
            ("name", "metadata.ownerReferences.name"),
            ("uid", "metadata.ownerReferences.uid"),
        ];
        for (key, field) in required {
            if text(key)?.is_empty() {
                return invalid(field, "must not be empty");
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(format!("{}/{}", text("kind")?, text("name")?));
        }
    }
    match controllers.as_slice() {
        [first, second, ..] => {
            let why = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references \
                 for {first} and {second}"
            );
            invalid("metadata.ownerReferences", &why)
        }
        _ => Ok(()),
    }
}

fn wrong_owners() -> Failure {
    Failure::bad_request("json: cannot unmarshal metadata.ownerReferences")
}

/// The entries of a map of texts.
fn texts<'a>(
    metadata: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let map = metadata.get(key).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

const KEY_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
                        start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  \
                        or '123-abc', regex used for validation is \
                        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric \
                          characters, '-', '_' or '.', and must start and end with an alphanumeric \
                          character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
                          validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with the key of a label: `name` or `prefix/name`.
fn key_fault(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(one, two)| (Some(one), two));
    match prefix {
        Some("") => return Some("prefix part must be non-empty"),
        Some(prefix) if !crate::name::is_subdomain(prefix) => {
            return Some(
                "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                         alphanumeric characters, '-' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            );
        }
        _ => {}
    }
    match name {
        "" => Some("name part must be non-empty"),
        _ if name.len() > 63 => Some("name part must be no more than 63 characters"),
        _ if !is_label_text(name) => Some(KEY_TEXT),
        _ => None,
    }
}

fn label_fault(value: &str) -> Option<&'static str> {
    match value {
        _ if value.len() > 63 => Some("must be no more than 63 characters"),
        _ if !is_label_text(value) => Some(LABEL_TEXT),
        _ => None,
    }
}

/// Whether a text has the characters of a label.
pub(crate) fn is_label_text(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_of_labels_are_checked() {
        for key in ["a", "a.b_c-D", "example.com/a", "123-abc"] {
            assert_eq!(key_fault(key), None, "{key}");
        }
        for key in ["", "a b", "-a", "/a", "a/", "a/b/c", "Example.com/a", &"a".repeat(64)] {
            assert!(key_fault(key).is_some(), "{key}");
        }
        for value in ["", "a", "A_1.x"] {
            assert_eq!(label_fault(value), None, "{value}");
        }
        for value in ["a b", ".a", "ä", &"a".repeat(64)] {
            assert!(label_fault(value).is_some(), "{value}");
        }
    }
}
