//! Errors of fields, with the texts of Kubernetes. Entry: [`FieldError`].

use serde_json::Value;

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The reason, for programs.
    pub(crate) reason: &'static str,
    /// The path of the field.
    pub(crate) field: String,
    /// The message, without the path.
    pub(crate) message: String,
}

impl FieldError {
    /// A value is missing. `why` may be empty.
    pub(crate) fn required(field: impl Into<String>, why: &str) -> FieldError {
        FieldError::new("FieldValueRequired", field, "Required value".to_owned(), why)
    }

    /// A value must not be there.
    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> FieldError {
        FieldError::new("FieldValueForbidden", field, "Forbidden".to_owned(), why)
    }

    /// A value is wrong.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> FieldError {
        FieldError::new("FieldValueInvalid", field, format!("Invalid value: {value}"), why)
    }

    /// A value has the wrong type.
    pub(crate) fn wrong_type(field: impl Into<String>, value: &Value, why: &str) -> FieldError {
        FieldError::new("FieldValueTypeInvalid", field, format!("Invalid value: {value}"), why)
    }

    /// A value is none of the known ones.
    pub(crate) fn not_supported(
        field: impl Into<String>,
        value: &Value,
        known: impl IntoIterator<Item = String>,
    ) -> FieldError {
        let known: Vec<_> = known.into_iter().map(|value| Value::from(value).to_string()).collect();
        let why = format!("supported values: {}", known.join(", "));
        FieldError::new(
            "FieldValueNotSupported",
            field,
            format!("Unsupported value: {value}"),
            &why,
        )
    }

    /// A value is there twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
        FieldError::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"), "")
    }

    /// A text is too long.
    pub(crate) fn too_long(field: impl Into<String>, most: u64) -> FieldError {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let why = format!("may not be more than {most} {unit}");
        FieldError::new("FieldValueTooLong", field, "Too long".to_owned(), &why)
    }

    /// A list or map has too many elements.
    pub(crate) fn too_many(field: impl Into<String>, actual: usize, most: u64) -> FieldError {
        let unit = if most == 1 { "item" } else { "items" };
        let why = format!("must have at most {most} {unit}");
        FieldError::new("FieldValueTooMany", field, format!("Too many: {actual}"), &why)
    }

    fn new(reason: &'static str, field: impl Into<String>, what: String, why: &str) -> FieldError {
        let message = if why.is_empty() { what } else { format!("{what}: {why}") };
        FieldError { reason, field: field.into(), message }
    }
}

/// The text of some errors, as Kubernetes joins them.
pub(crate) fn joined(errors: &[FieldError]) -> String {
    let mut texts: Vec<_> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
    texts.dedup();
    match texts.len() {
        1 => texts.concat(),
        _ => format!("[{}]", texts.join(", ")),
    }
}
