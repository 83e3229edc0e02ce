//! The caller of a request, and the reviews of who it is and what it may do. Entries: [`Caller`],
//! [`Review::answer`].

mod permission;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::access::Attributes;
use crate::body;
use crate::respond::{self, Body};
use crate::route::Target;
use crate::stamp;
use crate::status::Failure;
use crate::storage::Fields;

/// The caller of a request: an extension that an authenticator in front of the server sets.
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

/// A request for a review: a question that is answered, and not stored.
pub(crate) struct Review<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// Whether a caller may do something.
    pub(crate) allows: &'a dyn Fn(&Caller, Attributes<'_>) -> bool,
}

impl Review<'_> {
    /// The answer; `None` if the request is for something else.
    pub(crate) fn answer(&self) -> Option<Result<Response<Body>, Failure>> {
        let (group, plural) =
            (self.target.group.name.as_str(), self.target.resource.plural.as_str());
        let status = match (group, plural) {
            ("authentication.k8s.io", "selfsubjectreviews") => Ok((None, self.user_info())),
            ("authorization.k8s.io", "selfsubjectaccessreviews") => self.own_access(),
            ("authorization.k8s.io", "selfsubjectrulesreviews") => self.own_rules(),
            ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
                self.access_of_others()
            }
            _ => return None,
        };
        Some(status.map(|(spec, status)| self.respond(spec, &status)))
    }

    fn caller(&self) -> Caller {
        self.caller.cloned().unwrap_or_else(Caller::anonymous)
    }

    fn user_info(&self) -> Value {
        let caller = self.caller();
        json!({ "userInfo": { "username": caller.name, "groups": caller.groups } })
    }

    /// The `spec` of the review that was sent.
    fn spec(&self) -> Result<Fields, Failure> {
        match body::object(self.headers, self.body)?.remove("spec") {
            None | Some(Value::Null) => Ok(Fields::new()),
            Some(Value::Object(spec)) => Ok(spec),
            Some(_) => {
                Err(Failure::bad_request("json: cannot unmarshal spec: it must be an object"))
            }
        }
    }

    /// The review with its answer. That of who the caller is has no question.
    fn respond(&self, spec: Option<Fields>, status: &Value) -> Response<Body> {
        let mut metadata = json!({});
        if spec.is_none() {
            metadata = json!({ "creationTimestamp": stamp::now() });
        }
        let mut review = json!({
            "kind": self.target.resource.kind,
            "apiVersion": self.target.api_version(),
            "metadata": metadata,
            "status": status,
        });
        if let (Some(spec), Value::Object(review)) = (spec, &mut review) {
            review.insert("spec".to_owned(), spec.into());
        }
        respond::json(StatusCode::CREATED, &review)
    }
}
