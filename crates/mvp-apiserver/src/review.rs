//! The caller of a request, and `selfsubjectreviews`. Entry: [`Caller`].

use http::{Response, StatusCode};
use serde_json::json;

use crate::respond::{self, Body};
use crate::route::Target;
use crate::stamp;

/// The caller of a request: an extension that an authenticator in front of the server sets.
///
/// The server uses it only to answer `selfsubjectreviews`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub name: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Caller {
    /// The anonymous caller.
    pub fn anonymous() -> Caller {
        Caller {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }
}

/// Whether a target is `selfsubjectreviews`.
pub(crate) fn is_asked_by(target: &Target<'_>) -> bool {
    target.group.name == "authentication.k8s.io" && target.resource.plural == "selfsubjectreviews"
}

/// The response to a `SelfSubjectReview`.
pub(crate) fn answer(target: &Target<'_>, caller: Option<&Caller>) -> Response<Body> {
    let caller = caller.cloned().unwrap_or_else(Caller::anonymous);
    let review = json!({
        "kind": target.resource.kind,
        "apiVersion": target.api_version(),
        "metadata": { "creationTimestamp": stamp::now() },
        "status": { "userInfo": { "username": caller.name, "groups": caller.groups } },
    });
    respond::json(StatusCode::CREATED, &review)
}
