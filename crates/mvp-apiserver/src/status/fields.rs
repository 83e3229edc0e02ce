//! Errors of the fields of an object.

use http::StatusCode;

use super::{Cause, Details, Failure};
use crate::field_error::{self, FieldError};
use crate::route::Target;

impl Failure {
    /// Fields of an object are invalid.
    pub(crate) fn invalid(target: &Target<'_>, name: &str, errors: Vec<FieldError>) -> Failure {
        let kind = target.qualified_kind();
        let text = field_error::joined(&errors);
        let causes = errors.into_iter().map(|error| Cause {
            reason: error.reason,
            message: error.message,
            field: error.field,
        });
        let details = Details {
            name: name.to_owned(),
            group: target.group.name.clone(),
            kind: target.resource.kind.clone(),
            causes: causes.collect(),
            ..Details::default()
        };
        let message = format!("{kind} \"{name}\" is invalid: {text}");
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// Objects of a custom resource whose definition is being deleted cannot be created.
    pub(crate) fn terminating(target: &Target<'_>) -> Failure {
        let message = "create not allowed while custom resource definition is terminating";
        let details = Details {
            group: target.group.name.clone(),
            kind: target.resource.plural.clone(),
            ..Details::default()
        };
        let code = StatusCode::METHOD_NOT_ALLOWED;
        let failure = Failure::new(code, "MethodNotAllowed", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }
}
