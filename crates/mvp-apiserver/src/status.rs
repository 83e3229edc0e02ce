//! What goes wrong, in the words of a real server: Kubernetes' `Status`. Entry item: [`Failure`].

use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::respond::{self, Body};
use crate::route::Target;

/// A request that failed, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Box<Details>>,
}

/// A `Status` as it is written; its fields are in the order of real servers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: Map<String, Value>,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<Details>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

/// What a `Status` is about.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
}

/// A field that is at fault.
#[derive(Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    field: &'static str,
}

impl Failure {
    /// The group is served, but not this version, resource or subresource of it.
    pub(crate) fn not_routed() -> Failure {
        let message = "the server could not find the requested resource";
        let details = Some(Box::default());
        Failure { details, ..Failure::new(StatusCode::NOT_FOUND, "NotFound", message) }
    }

    /// The resource is served, but not this way.
    pub(crate) fn method_not_allowed() -> Failure {
        let message = "the server does not allow this method on the requested resource";
        let code = StatusCode::METHOD_NOT_ALLOWED;
        let details = Some(Box::default());
        Failure { details, ..Failure::new(code, "MethodNotAllowed", message) }
    }

    /// There is no such object.
    pub(crate) fn not_found(target: &Target<'_>, name: &str) -> Failure {
        let message = format!("{} \"{name}\" not found", target.qualified_resource());
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::NOT_FOUND, "NotFound", message) }
    }

    /// There is such an object already.
    pub(crate) fn already_exists(target: &Target<'_>, name: &str) -> Failure {
        let message = format!("{} \"{name}\" already exists", target.qualified_resource());
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::CONFLICT, "AlreadyExists", message) }
    }

    /// The object is not the one that the caller has seen.
    pub(crate) fn conflict(target: &Target<'_>, name: &str, why: &str) -> Failure {
        let resource = target.qualified_resource();
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::CONFLICT, "Conflict", message) }
    }

    /// A field of the object has a value that it cannot have.
    pub(crate) fn invalid_field(
        target: &Target<'_>,
        name: &str,
        field: &'static str,
        fault: Fault<'_>,
    ) -> Failure {
        let (reason, message) = match fault {
            Fault::Required(why) => ("FieldValueRequired", format!("Required value: {why}")),
            Fault::Value(value, why) => {
                ("FieldValueInvalid", format!("Invalid value: \"{value}\": {why}"))
            }
        };
        let kind = target.qualified_kind();
        let cause = Cause { reason, message: message.clone(), field };
        let details = Details {
            name: name.to_owned(),
            group: target.group.name.clone(),
            kind: target.resource.kind.clone(),
            causes: vec![cause],
            ..Details::default()
        };
        let message = format!("{kind} \"{name}\" is invalid: {field}: {message}");
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Nothing that we can write is acceptable to the caller.
    pub(crate) fn not_acceptable(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The body is in a format that we do not read.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is larger than we take.
    pub(crate) fn too_large(limit: usize) -> Failure {
        let message = format!("Request entity is too large: limit is {limit}");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The changes since that resource version are not known any more.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Failure {
        let message = format!("too old resource version: {asked} ({oldest})");
        Failure::new(StatusCode::GONE, "Expired", message)
    }

    /// As the object that is sent.
    pub(crate) fn into_status(self) -> Status {
        Status {
            message: self.message,
            reason: self.reason,
            details: self.details,
            code: Some(self.code.as_u16()),
            ..Status::new("Failure")
        }
    }

    /// As a response.
    pub(crate) fn into_response(self) -> Response<Body> {
        respond::json(self.code, &self.into_status())
    }

    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, reason, message: message.into(), details: None }
    }
}

/// What is the matter with a field.
pub(crate) enum Fault<'a> {
    /// It must be there, and is not.
    Required(&'a str),
    /// The value that it has cannot be, and why.
    Value(&'a str, &'a str),
}

impl Status {
    /// An object was deleted.
    pub(crate) fn deleted(target: &Target<'_>, name: &str, uid: &str) -> Status {
        let details = Details { uid: uid.to_owned(), ..Details::of(target, name) };
        Status { details: Some(Box::new(details)), ..Status::new("Success") }
    }

    fn new(status: &'static str) -> Status {
        Status {
            kind: "Status",
            api_version: "v1",
            metadata: Map::new(),
            status,
            message: String::new(),
            reason: "",
            details: None,
            code: None,
        }
    }
}

impl Details {
    /// An object, named by its resource: Kubernetes calls that its kind.
    fn of(target: &Target<'_>, name: &str) -> Details {
        Details {
            name: name.to_owned(),
            group: target.group.name.clone(),
            kind: target.resource.plural.clone(),
            ..Details::default()
        }
    }
}
