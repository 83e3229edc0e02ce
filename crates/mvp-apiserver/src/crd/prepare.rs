//! What a server does with a definition that is written. Entries: [`prepared`], [`checked`],
//! [`marked_for_deletion`].

use serde_json::{Value, json};

use super::validate::{list, text};
use super::{set_condition, validate};
use crate::field_error::FieldError;
use crate::object;
use crate::route::Target;
use crate::stamp;
use crate::storage::Fields;

/// Keeps a deleted definition until its objects are gone.
pub(super) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a target is definitions.
pub(crate) fn is_definition(target: &Target<'_>) -> bool {
    let key = super::collection();
    target.group.name == key.group && target.resource.plural == key.resource
}

/// Sets the defaults of a definition.
pub(crate) fn prepared(mut fields: Fields) -> Fields {
    let Some(Value::Object(spec)) = fields.get_mut("spec") else {
        return fields;
    };
    if let Some(Value::Object(names)) = spec.get_mut("names") {
        let kind = text(Some(names), "kind").to_owned();
        if text(Some(names), "singular").is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if text(Some(names), "listKind").is_empty() && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({ "strategy": "None" }));
    }
    fields
}

/// Records the storage version of a definition and validates it.
pub(crate) fn checked(
    mut fields: Fields,
    current: Option<&Fields>,
) -> Result<Fields, Vec<FieldError>> {
    let spec = fields.get("spec").and_then(Value::as_object);
    let versions = list(spec, "versions").iter().filter_map(Value::as_object);
    let mut storage = versions.filter(|version| version.get("storage") == Some(&Value::Bool(true)));
    let storage = storage.next().map(|version| text(Some(version), "name").to_owned());
    if let Some(storage) = storage {
        let status = fields.entry("status").or_insert_with(|| json!({}));
        if let Value::Object(status) = status {
            let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
            if let Value::Array(stored) = stored
                && !stored.iter().any(|version| *version == storage.as_str())
            {
                stored.push(storage.into());
            }
        }
    }
    let errors = match current {
        Some(current) => validate::check_update(&fields, current),
        None => validate::check(&fields),
    };
    if errors.is_empty() { Ok(fields) } else { Err(errors) }
}

/// A definition whose deletion begins. `None` if it has begun before.
pub(crate) fn marked_for_deletion(fields: &Fields) -> Option<Fields> {
    if !object::metadata_text(fields, "deletionTimestamp").is_empty() {
        return None;
    }
    let mut fields = fields.clone();
    object::set_metadata(&mut fields, "deletionTimestamp", &stamp::now());
    object::put_metadata(&mut fields, "deletionGracePeriodSeconds", Some(0.into()));
    let finalizers = object::metadata_of(&fields).and_then(|metadata| metadata.get("finalizers"));
    let mut finalizers = finalizers.and_then(Value::as_array).cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    object::put_metadata(&mut fields, "finalizers", Some(finalizers.into()));
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin \
                   soon";
    set_condition(&mut fields, "Terminating", "True", "InstanceDeletionPending", message);
    Some(fields)
}

/// What a definition asks for, and this server does not do.
pub(crate) fn warnings(fields: &Fields) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = fields.get("spec");
    if spec.is_some_and(|spec| has_key(spec, "x-kubernetes-validations")) {
        warnings
            .push("x-kubernetes-validations: this server does not evaluate CEL rules".to_owned());
    }
    let strategy = spec.and_then(|spec| spec.pointer("/conversion/strategy"));
    if strategy.is_some_and(|strategy| strategy == "Webhook") {
        let warning = "spec.conversion: this server calls no webhooks; versions differ only in \
                       apiVersion";
        warnings.push(warning.to_owned());
    }
    warnings
}

fn has_key(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Object(map) => {
            map.iter().any(|(key, value)| key == wanted || has_key(value, wanted))
        }
        Value::Array(list) => list.iter().any(|value| has_key(value, wanted)),
        _ => false,
    }
}
