//! Who callers are, and what they may do. Entries: [`Access::allows`], [`TokenFile`].

mod tokens;

use http::request::Parts;
use mvp_core::{RequestInfo, Verb};

pub use tokens::{BadTokenFile, TokenFile};

use crate::review::Caller;
use crate::route::Target;
use crate::status::Failure;

/// Who may do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// Everyone may do everything.
    #[default]
    Everyone,
    /// A few fixed groups:
    ///
    /// | group | may |
    /// | --- | --- |
    /// | `system:masters` | do everything |
    /// | `system:controllers` | read, update, patch and delete everything |
    /// | `system:authenticated`, `viewers` | read everything, and ask about themselves |
    /// | everyone | read `/healthz`, `/livez`, `/readyz` and `/version` |
    FixedGroups,
}

/// What a caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// A request for a resource.
    Resource {
        /// The verb, as RBAC names it.
        verb: &'a str,
        /// The group; empty for the core group.
        group: &'a str,
        /// The plural name.
        resource: &'a str,
        /// The subresource; empty without one.
        subresource: &'a str,
        /// The namespace; empty for all of them, and for cluster-scoped resources.
        namespace: &'a str,
        /// The name; empty for a collection.
        name: &'a str,
    },
    /// A request for any other path.
    Path {
        /// The method in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// The paths that everyone may read.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// The paths below which every user may read.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// The reviews that every user may create.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

impl Access {
    /// Whether the caller may do it.
    pub fn allows(self, caller: &Caller, wanted: Attributes<'_>) -> bool {
        let is_in = |name: &str| caller.groups.iter().any(|group| group == name);
        if self == Access::Everyone || is_in("system:masters") {
            return true;
        }
        match wanted {
            Attributes::Resource { verb: "get" | "list" | "watch", .. } => {
                is_in("system:authenticated") || is_in("viewers") || is_in("system:controllers")
            }
            Attributes::Resource { verb: "create", group, resource, .. }
                if SELF_REVIEWS.contains(&(group, resource)) =>
            {
                is_in("system:authenticated")
            }
            Attributes::Resource {
                verb: "update" | "patch" | "delete" | "deletecollection",
                ..
            } => is_in("system:controllers"),
            Attributes::Resource { .. } => false,
            Attributes::Path { verb: "get" | "head", path } => {
                let below = |root: &str| {
                    path.strip_prefix(root)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                PUBLIC.into_iter().any(below)
                    || (is_in("system:authenticated")
                        && (path == "/" || DISCOVERY.into_iter().any(below)))
            }
            Attributes::Path { .. } => false,
        }
    }

    /// Checks a request, as a real server does before it looks for the resource.
    pub(crate) fn check(self, head: &Parts, info: &RequestInfo<'_>) -> Result<(), Failure> {
        if self == Access::Everyone {
            return Ok(());
        }
        let caller = head.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::anonymous);
        let method = head.method.as_str().to_ascii_lowercase();
        let wanted = match info {
            RequestInfo::Resource(request) => Attributes::Resource {
                verb: if request.verb == Verb::Other { &method } else { request.verb.as_str() },
                group: &request.group,
                resource: &request.resource,
                subresource: &request.subresource,
                namespace: &request.namespace,
                name: &request.name,
            },
            _ => Attributes::Path { verb: &method, path: head.uri.path() },
        };
        self.decide(&caller, wanted)
    }

    /// Checks whether a patch may create its object.
    pub(crate) fn check_creation(
        self,
        caller: Option<&Caller>,
        target: &Target<'_>,
    ) -> Result<(), Failure> {
        let wanted = Attributes::Resource {
            verb: Verb::Create.as_str(),
            group: &target.group.name,
            resource: &target.resource.plural,
            subresource: "",
            namespace: &target.namespace,
            name: &target.name,
        };
        self.decide(&caller.cloned().unwrap_or_else(Caller::anonymous), wanted)
    }

    fn decide(self, caller: &Caller, wanted: Attributes<'_>) -> Result<(), Failure> {
        if self.allows(caller, wanted) { Ok(()) } else { Err(Failure::forbidden(caller, wanted)) }
    }
}
