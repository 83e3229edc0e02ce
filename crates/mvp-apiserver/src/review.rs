//! Who the caller is: `selfsubjectreviews`. Entry item: [`Caller`].

use http::{Response, StatusCode};
use serde_json::json;

use crate::respond::{self, Body};
use crate::route::Target;
use crate::stamp;

/// Who makes a request: an extension that whoever stands before the server may set. The server
/// uses it for nothing but to tell the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub name: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Caller {
    /// Who has no name.
    pub fn anonymous() -> Caller {
        Caller {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }
}

/// Whether a target is the review of the caller itself.
pub(crate) fn is_asked_by(target: &Target<'_>) -> bool {
    target.group.name == "authentication.k8s.io" && target.resource.plural == "selfsubjectreviews"
}

/// Tells a caller who it is.
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
