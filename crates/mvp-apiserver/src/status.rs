//! Errors as Kubernetes `Status` objects, with the texts of a real server. Entry: [`Failure`].

mod fields;
mod reads;

use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use reads::OptionFault;

use crate::access::Attributes;
use crate::respond::{self, Body};
use crate::review::Caller;
use crate::route::Target;
use crate::storage::NoSpace;

/// The error of a request.
#[derive(Debug)]
pub(crate) struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Box<Details>>,
    continue_token: String,
}

/// A `Status`, with its fields in the order of real servers.
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

/// The `details` of a `Status`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

/// An invalid field.
#[derive(Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: String,
}

impl Failure {
    /// An unrouted 404: the group is served, but not this version, resource or subresource.
    pub(crate) fn not_routed() -> Failure {
        let message = "the server could not find the requested resource";
        let details = Some(Box::default());
        Failure { details, ..Failure::new(StatusCode::NOT_FOUND, "NotFound", message) }
    }

    /// The resource does not support this method.
    pub(crate) fn method_not_allowed() -> Failure {
        let message = "the server does not allow this method on the requested resource";
        let code = StatusCode::METHOD_NOT_ALLOWED;
        let details = Some(Box::default());
        Failure { details, ..Failure::new(code, "MethodNotAllowed", message) }
    }

    /// The resource exists, but this server cannot do what the verb means there.
    pub(crate) fn not_supported(target: &Target<'_>) -> Failure {
        let resource = match target.subresource {
            Some(subresource) => format!("{}/{}", target.resource.plural, subresource.name),
            None => target.resource.plural.clone(),
        };
        let verb = target.verb.as_str();
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        let details =
            Details { group: target.group.name.clone(), kind: resource, ..Details::default() };
        let code = StatusCode::METHOD_NOT_ALLOWED;
        let failure = Failure::new(code, "MethodNotAllowed", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The object does not exist.
    pub(crate) fn not_found(target: &Target<'_>, name: &str) -> Failure {
        let message = format!("{} \"{name}\" not found", target.qualified_resource());
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::NOT_FOUND, "NotFound", message) }
    }

    /// Nobody may do this to the object.
    pub(crate) fn refused(target: &Target<'_>, name: &str, why: &str) -> Failure {
        let message = format!("{} \"{name}\" is forbidden: {why}", target.qualified_resource());
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::FORBIDDEN, "Forbidden", message) }
    }

    /// The object already exists.
    pub(crate) fn already_exists(target: &Target<'_>, name: &str) -> Failure {
        let message = format!("{} \"{name}\" already exists", target.qualified_resource());
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::CONFLICT, "AlreadyExists", message) }
    }

    /// The namespace of a new object does not exist.
    pub(crate) fn no_namespace(name: &str) -> Failure {
        let message = format!("namespaces \"{name}\" not found");
        let details =
            Details { name: name.to_owned(), kind: "namespaces".to_owned(), ..Details::default() };
        let failure = Failure::new(StatusCode::NOT_FOUND, "NotFound", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The namespace of a new object is being deleted.
    pub(crate) fn namespace_terminating(target: &Target<'_>, name: &str) -> Failure {
        let (resource, namespace) = (target.qualified_resource(), &target.namespace);
        let cause = Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        let message = format!(
            "{resource} \"{name}\" is forbidden: unable to create new content in namespace \
             {namespace} because it is being terminated"
        );
        let details = Details { causes: vec![cause], ..Details::of(target, name) };
        let failure = Failure::new(StatusCode::FORBIDDEN, "Forbidden", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The caller may not do this.
    pub(crate) fn forbidden(caller: &Caller, wanted: Attributes<'_>) -> Failure {
        let user = &caller.name;
        let (message, details) = match wanted {
            Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
                let whole = match subresource {
                    "" => resource.to_owned(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let qualified = match group {
                    "" => resource.to_owned(),
                    group => format!("{resource}.{group}"),
                };
                let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
                let place = match namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                let message = format!(
                    "{qualified}{named} is forbidden: User \"{user}\" cannot {verb} resource \
                     \"{whole}\" in API group \"{group}\" {place}"
                );
                let details = Details {
                    name: name.to_owned(),
                    group: group.to_owned(),
                    kind: resource.to_owned(),
                    ..Details::default()
                };
                (message, details)
            }
            Attributes::Path { verb, path } => {
                let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
                (message, Details::default())
            }
        };
        let failure = Failure::new(StatusCode::FORBIDDEN, "Forbidden", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The object has changed since the caller read it.
    pub(crate) fn conflict(target: &Target<'_>, name: &str, why: &str) -> Failure {
        let resource = target.qualified_resource();
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        let details = Some(Box::new(Details::of(target, name)));
        Failure { details, ..Failure::new(StatusCode::CONFLICT, "Conflict", message) }
    }

    /// A field of the object is invalid.
    pub(crate) fn invalid_field(
        target: &Target<'_>,
        name: &str,
        field: &'static str,
        fault: Fault<'_>,
    ) -> Failure {
        let (reason, message) = match fault {
            Fault::TooLong(why) => ("FieldValueTooLong", why.to_owned()),
            Fault::Forbidden(why) => ("FieldValueForbidden", format!("Forbidden: {why}")),
            Fault::Required(why) => ("FieldValueRequired", format!("Required value: {why}")),
            Fault::Value(value, why) => {
                ("FieldValueInvalid", format!("Invalid value: \"{value}\": {why}"))
            }
        };
        let kind = target.qualified_kind();
        let cause = Cause { reason, message: message.clone(), field: field.to_owned() };
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

    /// The object that a patch makes cannot be decoded.
    pub(crate) fn invalid_patch(patch: &str, why: &str) -> Failure {
        let message = format!("Invalid value: {patch:?}: {why}");
        let failure = Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!(" \"\" is invalid: patch: {message}"),
        );
        let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
        let details = Details { causes: vec![cause], ..Details::default() };
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// No supported media type is acceptable to the caller.
    pub(crate) fn not_acceptable(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The media type of the body is not supported.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is too large.
    pub(crate) fn too_large(limit: usize) -> Failure {
        let message = format!("Request entity is too large: limit is {limit}");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The body is too large in another way than its bytes.
    pub(crate) fn too_large_for(message: String) -> Failure {
        let message = format!("Request entity is too large: {message}");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The request does not fit the object. Real servers give no other reason.
    pub(crate) fn unprocessable() -> Failure {
        let message = "the server rejected our request due to an error in our request";
        let details = Some(Box::default());
        Failure { details, ..Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message) }
    }

    /// Others manage fields that were applied: for each of them the manager and the path.
    pub(crate) fn apply_conflict(message: String, causes: Vec<(String, String)>) -> Failure {
        let causes = causes.into_iter().map(|(manager, path)| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {manager}"),
            field: path,
        });
        let details = Details { causes: causes.collect(), ..Details::default() };
        let failure = Failure::new(StatusCode::CONFLICT, "Conflict", message);
        Failure { details: Some(Box::new(details)), ..failure }
    }

    /// A malformed request that real servers answer with 500.
    pub(crate) fn internal(message: String) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The error as a `Status` object.
    pub(crate) fn into_status(self) -> Status {
        let mut metadata = Map::new();
        if !self.continue_token.is_empty() {
            metadata.insert("continue".to_owned(), self.continue_token.into());
        }
        Status {
            metadata,
            message: self.message,
            reason: self.reason,
            details: self.details,
            code: Some(self.code.as_u16()),
            ..Status::new("Failure")
        }
    }

    /// The error as a response.
    pub(crate) fn into_response(self) -> Response<Body> {
        respond::json(self.code, &self.into_status())
    }

    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: String::new(),
        }
    }
}

/// The problem of a field.
pub(crate) enum Fault<'a> {
    /// The value is too long; the whole text.
    TooLong(&'a str),
    /// The value must not be there.
    Forbidden(&'a str),
    /// A required value is missing.
    Required(&'a str),
    /// The value is invalid, and why.
    Value(&'a str, &'a str),
}

impl Status {
    /// The success of a deletion.
    pub(crate) fn deleted(target: &Target<'_>, name: &str, uid: &str) -> Status {
        let details = Details { uid: uid.to_owned(), ..Details::of(target, name) };
        Status { details: Some(Box::new(details)), ..Status::new("Success") }
    }

    /// The success of something that has no other result.
    pub(crate) fn success(code: StatusCode) -> Status {
        Status { code: Some(code.as_u16()), ..Status::new("Success") }
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

impl From<NoSpace> for Failure {
    fn from(_: NoSpace) -> Failure {
        let message = "etcdserver: mvcc: database space exceeded: delete objects to make room";
        Failure::internal(message.to_owned())
    }
}

impl Details {
    /// The details of an object. Its resource is called `kind` in Kubernetes.
    fn of(target: &Target<'_>, name: &str) -> Details {
        Details {
            name: name.to_owned(),
            group: target.group.name.clone(),
            kind: target.resource.plural.clone(),
            ..Details::default()
        }
    }
}
