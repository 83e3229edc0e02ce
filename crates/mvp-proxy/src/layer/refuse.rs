//! Refusals: a 503 that names the resource, the reason, and the members that were tried.

use http::Response;
use mvp_core::RequestInfo;
use mvp_core::decide::Reason;

use crate::body::Body;
use crate::identity::Identity;
use crate::status;

/// A 503 that refuses a request. It names members by ID, never by address, and not to anonymous
/// callers.
pub(super) fn refuse(
    info: &RequestInfo<'_>,
    reason: Reason,
    tried: &[String],
    identity: &Identity,
) -> Response<Body> {
    let mut message = format!("{info} cannot be served now: {reason}");
    if !tried.is_empty() && !matches!(identity, Identity::Anonymous) {
        let how = match reason {
            Reason::Unconfirmed | Reason::Recorded => "not heard from",
            _ => "tried",
        };
        message = format!("{message} ({how} {})", tried.join(", "));
    }
    status::unavailable(&message)
}
