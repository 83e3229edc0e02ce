//! Merge patch (RFC 7386). Entry: [`apply`].

use serde_json::Value;

use super::strategic::discard_nulls;
use crate::storage::Fields;

/// Merges a patch into a value.
pub(crate) fn apply(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        // Real servers also remove the nulls within a list.
        discard_nulls(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Fields::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            match value {
                Value::Null => drop(target.remove(&key)),
                value => apply(target.entry(key).or_insert(Value::Null), value),
            }
        }
    }
}
