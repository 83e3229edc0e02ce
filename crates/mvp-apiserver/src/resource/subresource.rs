//! Subresources with a meaning of their own: `scale`, and those of pods. Entry:
//! [`Call::serve_subresource`].

use http::{Response, StatusCode};
use mvp_core::Verb;
use serde_json::Value;

use super::Call;
use super::change::check_same_name;
use crate::body;
use crate::object;
use crate::patch::{Misfit, Patch};
use crate::respond::{self, Body};
use crate::status::{Failure, Status};
use crate::storage::{Change, Fields, ObjectKey};

/// The subresources that need a node, or something else that this server does not have.
const ABSENT: [(&str, &str); 8] = [
    ("pods", "attach"),
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("services", "proxy"),
    ("nodes", "proxy"),
    ("serviceaccounts", "token"),
];

impl Call<'_> {
    /// Executes a request for a subresource; `None` if it is a field of the object.
    pub(super) fn serve_subresource(self) -> Option<Result<Response<Body>, Failure>> {
        let core = self.target.group.name.is_empty();
        let plural = self.target.resource.plural.as_str();
        let Some(subresource) = self.target.subresource else {
            return (core && plural == "bindings").then(|| self.bind());
        };
        match (subresource.name.as_str(), self.target.verb) {
            ("scale", Verb::Get) => Some(self.get_scale()),
            ("scale", Verb::Update) => Some(self.update_scale()),
            ("scale", Verb::Patch) => Some(self.patch_scale()),
            ("binding", Verb::Create) if core && plural == "pods" => Some(self.bind()),
            ("eviction", Verb::Create) if core && plural == "pods" => Some(self.evict()),
            (name, _) if core && ABSENT.contains(&(plural, name)) => {
                Some(Err(Failure::not_supported(self.target)))
            }
            _ => None,
        }
    }

    fn update_scale(self) -> Result<Response<Body>, Failure> {
        let sent = body::object(self.headers, self.body)?;
        self.change_scale(|_| Ok(sent))
    }

    fn patch_scale(self) -> Result<Response<Body>, Failure> {
        let patch = Patch::decode(self.headers, self.body, self.is_strategic())?;
        if patch.creates().is_some() {
            let message = "server-side apply of the subresource scale is not implemented";
            return Err(Failure::bad_request(message));
        }
        self.change_scale(|scale| patch.apply(scale, None).map_err(Misfit::into_failure))
    }

    /// Assigns a pod to a node.
    fn bind(self) -> Result<Response<Body>, Failure> {
        let dry_run = self.query.dry_run()?;
        let sent = body::object(self.headers, self.body)?;
        let name = self.name_of_pod(&sent)?;
        let node = sent.get("target").and_then(|target| target.get("name")?.as_str());
        let node = node
            .filter(|node| !node.is_empty())
            .ok_or_else(|| Failure::bad_request("target.name: Required value"))?;
        let (collection, key) = self.pod(&name);
        self.storage.transact(&collection, &key, !dry_run, |current| {
            let current = current.ok_or_else(|| Failure::not_found(self.target, &name))?;
            let refused = |why: &str| Err(Failure::conflict(self.target, &name, why));
            if !object::metadata_text(&current.fields, "deletionTimestamp").is_empty() {
                let why = format!("pod {name} is being deleted, cannot be assigned to a host");
                return refused(&why);
            }
            let mut fields = current.fields.clone();
            let spec = fields.entry("spec").or_insert_with(|| Fields::new().into());
            let Value::Object(spec) = spec else {
                return refused("the pod has no spec");
            };
            if let Some(other) = spec.get("nodeName").and_then(Value::as_str)
                && !other.is_empty()
            {
                return refused(&format!("pod {name} is already assigned to node \"{other}\""));
            }
            spec.insert("nodeName".to_owned(), node.into());
            Ok(Change::Put(fields))
        })?;
        Ok(respond::json(StatusCode::CREATED, &Status::success(StatusCode::CREATED)))
    }

    /// Deletes a pod, as no disruption budget is enforced.
    fn evict(self) -> Result<Response<Body>, Failure> {
        let sent = body::object(self.headers, self.body)?;
        let name = self.name_of_pod(&sent)?;
        let options = sent.get("deleteOptions").and_then(Value::as_object);
        self.delete_pod(&name, &options.cloned().unwrap_or_default())?;
        Ok(respond::json(StatusCode::CREATED, &Status::success(StatusCode::CREATED)))
    }

    /// The name in a request about a pod: that of the path, or of the body if the path has none.
    fn name_of_pod(self, sent: &Fields) -> Result<String, Failure> {
        let name = object::metadata_text(sent, "name");
        match (self.target.name.as_str(), name) {
            ("", "") => Err(Failure::bad_request("metadata.name: Required value")),
            ("", name) => Ok(name.to_owned()),
            (name, "") => Ok(name.to_owned()),
            (_, name) => check_same_name(self.target, name).map(|()| name.to_owned()),
        }
    }

    /// The storage keys of a pod.
    pub(super) fn pod(self, name: &str) -> (crate::storage::CollectionKey, ObjectKey) {
        let collection =
            crate::storage::CollectionKey { group: String::new(), resource: "pods".to_owned() };
        let namespace = self.target.namespace.clone();
        (collection, ObjectKey { namespace, name: name.to_owned() })
    }
}
