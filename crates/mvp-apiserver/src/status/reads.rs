//! The errors of lists and watches, and of options. Entry: [`Failure`].

use http::StatusCode;

use super::{Cause, Details, Failure};

/// A field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionFault {
    pub(crate) reason: &'static str,
    pub(crate) field: &'static str,
    pub(crate) message: String,
}

impl OptionFault {
    /// The field must not be set.
    pub(crate) fn forbidden(field: &'static str, why: &str) -> OptionFault {
        let message = format!("Forbidden: {why}");
        OptionFault { reason: "FieldValueForbidden", field, message }
    }

    /// The field has a value that does not exist.
    pub(crate) fn unsupported(field: &'static str, value: &str, known: &[&str]) -> OptionFault {
        let known: Vec<_> = known.iter().map(|value| format!("\"{value}\"")).collect();
        let message =
            format!("Unsupported value: \"{value}\": supported values: {}", known.join(", "));
        OptionFault { reason: "FieldValueNotSupported", field, message }
    }

    /// The field has a wrong value.
    pub(crate) fn invalid(field: &'static str, value: &str, why: &str) -> OptionFault {
        let message = format!("Invalid value: {value}: {why}");
        OptionFault { reason: "FieldValueInvalid", field, message }
    }
}

impl Failure {
    /// The options of a request (`ListOptions`, `DeleteOptions`) are invalid.
    pub(crate) fn invalid_options(kind: &str, faults: Vec<OptionFault>) -> Failure {
        Failure::invalid_of(kind, "meta.k8s.io", "", faults)
    }

    /// Fields of an object of this kind are invalid.
    pub(crate) fn invalid_of(
        kind: &str,
        group: &str,
        name: &str,
        faults: Vec<OptionFault>,
    ) -> Failure {
        let texts: Vec<_> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
        let text = match texts.as_slice() {
            [text] => text.clone(),
            texts => format!("[{}]", texts.join(", ")),
        };
        let causes = faults.into_iter().map(|fault| Cause {
            reason: fault.reason,
            message: fault.message,
            field: fault.field.to_owned(),
        });
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.collect(),
            ..Details::default()
        };
        let message = format!("{kind}.{group} \"{name}\" is invalid: {text}");
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The changes since that resource version have expired.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Failure {
        let message = format!("too old resource version: {asked} ({oldest})");
        Failure::new(StatusCode::GONE, "Expired", message)
    }

    /// The objects at that resource version are no longer known.
    pub(crate) fn expired_list() -> Failure {
        let message = "The resourceVersion for the provided list is too old.";
        Failure::new(StatusCode::GONE, "Expired", message)
    }

    /// The objects at the revision of a continue token are no longer known. The new token continues
    /// with the current objects.
    pub(crate) fn expired_page(continue_token: String) -> Failure {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter, or use the \
                       continue token in this response to retrieve the remainder of the results. \
                       Continuing with the provided token results in an inconsistent list - objects \
                       that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        Failure { continue_token, ..Failure::new(StatusCode::GONE, "Expired", message) }
    }

    /// The resource version is in the future.
    pub(crate) fn too_large_version(asked: u64, current: u64) -> Failure {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let details =
            Details { causes: vec![cause], retry_after_seconds: Some(1), ..Details::default() };
        let failure = Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }
}
