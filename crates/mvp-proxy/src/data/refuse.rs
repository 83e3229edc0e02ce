//! Refusals: a 503 that says what could not be served, why, and by whom it was tried.

use http::Response;
use mvp_core::RequestInfo;
use mvp_core::decide::Reason;

use crate::body::Body;
use crate::identity::Identity;
use crate::status;

/// A refusal. Members are named by ID, never by address, and only to those who are somebody.
pub(crate) fn refuse(
    info: &RequestInfo<'_>,
    reason: Reason,
    tried: &[String],
    identity: &Identity,
) -> Response<Body> {
    let what = described(info);
    let mut message = format!("{what} cannot be served now: {reason}");
    if !tried.is_empty() && !matches!(identity, Identity::Anonymous) {
        let how = match reason {
            Reason::Unconfirmed | Reason::Recorded => "not heard from",
            _ => "tried",
        };
        message = format!("{message} ({how} {})", tried.join(", "));
    }
    status::unavailable(&message)
}

/// `pods.v1`, `deployments.v1.apps`, or what else it was.
pub(crate) fn described(info: &RequestInfo<'_>) -> String {
    match info {
        RequestInfo::Resource(request) => {
            let mut name = request.resource.to_string();
            if !request.subresource.is_empty() {
                name = format!("{name}/{}", request.subresource);
            }
            let group = if request.group.is_empty() { "" } else { "." };
            format!("{name}.{}{group}{}", request.version, request.group)
        }
        RequestInfo::Discovery(_) => "discovery".to_owned(),
        RequestInfo::OpenApi(_) => "OpenAPI".to_owned(),
        RequestInfo::NonResource(_) | RequestInfo::Malformed => "the path".to_owned(),
    }
}
