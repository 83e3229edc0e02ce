//! Writes: create, update and patch. Decisions that depend on the previous state of an object
//! are made within a transaction of the storage.

use http::{Response, StatusCode};
use mvp_core::Verb;
use serde_json::Value;

use super::Call;
use super::change::{check_patched_name, check_same_name, newborn, updated};
use super::ownership::managed;
use crate::body;
use crate::name;
use crate::namespace;
use crate::object;
use crate::patch::{Misfit, Patch};
use crate::respond::Body;
use crate::stamp;
use crate::status::{Failure, Fault};
use crate::storage::{Change, ObjectKey};

impl Call<'_> {
    pub(super) fn create(self) -> Result<Response<Body>, Failure> {
        let dry_run = self.query.dry_run()?;
        // A resource that can only be created is a question, not an object.
        if self.target.resource.verbs == [Verb::Create] {
            return Err(Failure::not_supported(self.target));
        }
        let sent = self.admit(body::object(self.headers, self.body)?)?;
        let name = match object::metadata_text(&sent, "name") {
            "" => match object::metadata_text(&sent, "generateName") {
                "" => {
                    let fault = Fault::Required("name or generateName is required");
                    return Err(Failure::invalid_field(self.target, "", "metadata.name", fault));
                }
                prefix => self.unused_name(prefix),
            },
            name => name.to_owned(),
        };
        name::check(self.target, &name)?;
        namespace::check_writable(self.groups, self.storage, self.target, &name)?;
        let key = ObjectKey { namespace: self.target.namespace.clone(), name };
        let collection = self.target.collection();
        let object =
            self.storage.transact(&collection, &key, !dry_run, |current| match current {
                Some(_) => Err(Failure::already_exists(self.target, &key.name)),
                None => {
                    let made = Change::Put(newborn(self.target, sent, &key.name)?);
                    Ok(self.owned(None, self.accepted(made, None)?))
                }
            })?;
        Ok(self.show(StatusCode::CREATED, &object))
    }

    /// A generated name that no object has. Real servers try it as often.
    fn unused_name(self, prefix: &str) -> String {
        let collection = self.target.collection();
        let mut name = stamp::generated_name(prefix);
        for _ in 0..7 {
            let namespace = self.target.namespace.clone();
            let key = ObjectKey { namespace, name };
            let taken = self.storage.get(&collection, &key).is_some();
            name = if taken { stamp::generated_name(prefix) } else { return key.name };
        }
        name
    }

    pub(super) fn update(self) -> Result<Response<Body>, Failure> {
        let dry_run = self.query.dry_run()?;
        let sent = self.admit(body::object(self.headers, self.body)?)?;
        match object::metadata_text(&sent, "name") {
            "" => {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be \
                     provided",
                    self.target.name
                )));
            }
            name => check_same_name(self.target, name)?,
        }
        let (collection, key) = (self.target.collection(), self.target.key());
        let object = self.storage.transact(&collection, &key, !dry_run, |current| {
            let missing = || Failure::not_found(self.target, &key.name);
            let current = current.ok_or_else(missing)?;
            let change = self.accepted(updated(self.target, current, sent)?, Some(current))?;
            Ok::<_, Failure>(self.owned(Some(current), change))
        })?;
        Ok(self.show(StatusCode::OK, &object))
    }

    pub(super) fn patch(self) -> Result<Response<Body>, Failure> {
        let dry_run = self.query.dry_run()?;
        let patch = Patch::decode(self.headers, self.body, self.is_strategic())?;
        self.check_apply_options(&patch)?;
        let (collection, key) = (self.target.collection(), self.target.key());
        let mut code = StatusCode::OK;
        // Only the whole object can be created, not a subresource.
        let creates = patch.creates().is_some() && self.target.subresource.is_none();
        let may_create = match creates {
            // Not within the transaction, which cannot read other objects.
            true => self.check_creation(&key.name),
            false => Err(Failure::not_found(self.target, &key.name)),
        };
        let object = self.storage.transact(&collection, &key, !dry_run, |current| {
            if current.is_none() {
                may_create?;
            }
            let (patched, managers) = match (patch, current) {
                (Patch::Apply(sent), current) => self.applied(current, &sent)?,
                (patch, current) => {
                    // Patches see the object as callers do.
                    let fields = current.map(|current| current.fields.clone()).unwrap_or_default();
                    let Value::Object(fields) = self.whole(fields) else {
                        return Err(Failure::unprocessable());
                    };
                    (patch.apply(fields, self.schema).map_err(Misfit::into_failure)?, None)
                }
            };
            let patched = self.admit(patched)?;
            check_patched_name(self.target, &patched)?;
            let change = match current {
                Some(current) => updated(self.target, current, patched)?,
                None => {
                    code = StatusCode::CREATED;
                    name::check(self.target, &key.name)?;
                    newborn(self.target, patched, &key.name).map(Change::Put)?
                }
            };
            let change = self.accepted(change, current)?;
            Ok(match managers {
                Some(managers) => managed(change, Some(managers)),
                None => self.owned(current, change),
            })
        })?;
        Ok(self.show(code, &object))
    }

    /// Whether an apply may create its object, by the rules for a create.
    fn check_creation(self, name: &str) -> Result<(), Failure> {
        self.access.check_creation(self.caller, self.target)?;
        namespace::check_writable(self.groups, self.storage, self.target, name)?;
        self.check_not_terminating()
    }

    /// Whether the patch strategies of the resource are known. Custom resources have none.
    pub(super) fn is_strategic(self) -> bool {
        self.schema.is_some_and(|schema| schema.has_patch_strategies())
    }
}
