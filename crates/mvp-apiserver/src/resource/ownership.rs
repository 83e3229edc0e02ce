//! The managers of an object's fields in the requests of a resource. Entries: [`Call::owned`],
//! [`Call::applied`].

use http::header::USER_AGENT;
use serde_json::Value;

use super::Call;
use super::change::{field_of, separate_fields};
use crate::apply::{self, Refusal, Write};
use crate::object;
use crate::patch::Patch;
use crate::stamp;
use crate::status::{Failure, OptionFault};
use crate::storage::{Change, Fields, Object};

/// The longest name of a manager that comes from a user agent.
const LONGEST_MANAGER: usize = 128;

impl Call<'_> {
    /// Checks the options of apply: only an apply patch has them, and needs a manager.
    pub(super) fn check_apply_options(self, patch: &Patch) -> Result<(), Failure> {
        let applies = patch.creates().is_some();
        let fault = if applies && self.query.get("fieldManager").is_empty() {
            OptionFault {
                reason: "FieldValueRequired",
                field: "fieldManager",
                message: "Required value: is required for apply patch".to_owned(),
            }
        } else if !applies && self.query.flag("force").is_some() {
            OptionFault::forbidden("force", "may not be specified for non-apply patch")
        } else {
            return Ok(());
        };
        Err(Failure::invalid_options("PatchOptions", vec![fault]))
    }

    /// The change of a create, update or patch, with the managers of the changed fields.
    pub(super) fn owned(self, current: Option<&Object>, change: Change) -> Change {
        let Change::Put(fields) = change else { return change };
        let is_managed = |current: &Object| {
            let metadata = object::metadata_of(&current.fields);
            metadata.is_some_and(|metadata| metadata.contains_key("managedFields"))
        };
        // Objects without a schema have managers from their first apply on.
        if self.schema.is_none() && !current.is_some_and(is_managed) {
            return Change::Put(fields);
        }
        let live = current.map(|current| self.whole(current.fields.clone()));
        let mut new = self.whole(fields);
        self.with_write(|write| apply::record(write, live.as_ref(), &mut new));
        Change::Put(stored(new).0)
    }

    /// The object that an apply patch makes of the current one, and its `managedFields`.
    pub(super) fn applied(
        self,
        current: Option<&Object>,
        patch: &Fields,
    ) -> Result<(Fields, Option<Value>), Failure> {
        let meta = self.target.type_meta();
        let text = |key: &str| patch.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != meta.api_version || kind != meta.kind {
            let slash = if api_version.contains('/') { "" } else { "/" };
            let message = format!("invalid object type: {slash}{api_version}, Kind={kind}");
            return Err(Failure::bad_request(message));
        }
        let live = self.whole(current.map(|current| current.fields.clone()).unwrap_or_default());
        let patch = Value::Object(patch.clone());
        let force = self.query.flag("force").unwrap_or_default();
        let applied = self.with_write(|write| apply::apply(write, &live, &patch, force));
        applied.map(stored).map_err(|refusal| match refusal {
            Refusal::Conflicts(message, causes) => Failure::apply_conflict(message, causes),
            Refusal::Malformed(message) => Failure::internal(message),
            Refusal::BadRequest(message) => Failure::bad_request(message),
        })
    }

    /// An object as callers see it.
    pub(super) fn whole(self, mut fields: Fields) -> Value {
        let meta = self.target.type_meta();
        fields.insert("apiVersion".to_owned(), meta.api_version.into());
        fields.insert("kind".to_owned(), meta.kind.into());
        Value::Object(fields)
    }

    fn with_write<T>(self, act: impl FnOnce(Write<'_>) -> T) -> T {
        let separate: Vec<&str> = separate_fields(self.target).collect();
        let subresource = self.target.subresource.map(|subresource| subresource.name.as_str());
        let manager = self.manager();
        act(Write {
            manager: &manager,
            api_version: &self.target.api_version(),
            subresource: subresource.unwrap_or_default(),
            only: subresource.filter(|name| *name != "scale").map(field_of).unwrap_or_default(),
            separate: &separate,
            schema: self.schema,
            now: &stamp::now(),
        })
    }

    /// The name of the manager: that of the request, or the program of its user agent.
    fn manager(self) -> String {
        let name = self.query.get("fieldManager");
        if !name.is_empty() {
            return name.to_owned();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let program = agent.unwrap_or_default().split('/').next().unwrap_or_default();
        program.chars().filter(|character| !character.is_control()).take(LONGEST_MANAGER).collect()
    }
}

/// The change with these `managedFields`.
pub(super) fn managed(change: Change, managed: Option<Value>) -> Change {
    match change {
        Change::Put(mut fields) => {
            object::put_metadata(&mut fields, "managedFields", managed);
            Change::Put(fields)
        }
        other => other,
    }
}

/// An object as it is stored, and its `managedFields`.
fn stored(object: Value) -> (Fields, Option<Value>) {
    let Value::Object(mut fields) = object else { return Default::default() };
    fields.remove("apiVersion");
    fields.remove("kind");
    let metadata = object::metadata_of(&fields);
    let managed = metadata.and_then(|metadata| metadata.get("managedFields")).cloned();
    (fields, managed)
}
