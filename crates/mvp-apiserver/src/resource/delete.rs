//! Deletion of objects and collections: preconditions, grace periods, finalizers and propagation.
//! Entries: [`Call::delete`], [`Call::delete_collection`].

mod options;

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Call;
use crate::crd;
use crate::namespace;
use crate::object;
use crate::render::ListMetadata;
use crate::respond::{self, Body};
use crate::route::Target;
use crate::selector::Selector;
use crate::stamp;
use crate::status::{Failure, Status};
use crate::storage::{Change, Fields, NoSpace, Object};
use options::DeleteOptions;

impl Call<'_> {
    pub(super) fn delete(self) -> Result<Response<Body>, Failure> {
        let options = DeleteOptions::parse(self)?;
        let (collection, key) = (self.target.collection(), self.target.key());
        let mut removed = false;
        let object = self.storage.transact(&collection, &key, !options.dry_run, |current| {
            let missing = || Failure::not_found(self.target, &key.name);
            let change = deletion(self.target, current.ok_or_else(missing)?, &options)?;
            removed = matches!(change, Change::Delete);
            Ok::<_, Failure>(change)
        })?;
        // An object that remains for now is returned, so that the caller sees why.
        if !removed || returns_objects(self.target) {
            return Ok(self.show(StatusCode::OK, &object));
        }
        let uid = object::metadata_text(&object.fields, "uid");
        let status = Status::deleted(self.target, &key.name, uid);
        Ok(respond::json(StatusCode::OK, &status))
    }

    /// Deletes a pod on behalf of another request.
    pub(super) fn delete_pod(self, name: &str, options: &Fields) -> Result<(), Failure> {
        let options = DeleteOptions::of(options, self.query.dry_run()?)?;
        let (collection, key) = self.pod(name);
        self.storage.transact(&collection, &key, !options.dry_run, |current| {
            let current = current.ok_or_else(|| Failure::not_found(self.target, name))?;
            deletion(self.target, current, &options)
        })?;
        Ok(())
    }

    /// Deletes a collection. It is not atomic, as in real servers: new objects may remain.
    pub(super) fn delete_collection(self) -> Result<Response<Body>, Failure> {
        let options = DeleteOptions::parse(self)?;
        let selector = Selector::new(self.target, self.query)?;
        let (_, objects) = self.page(&selector)?;
        let collection = self.target.collection();
        let mut deleted: Vec<Arc<Object>> = Vec::new();
        for object in objects {
            let remove = |current: Option<&Object>| match current {
                Some(current) if selector.matches(current) => {
                    deletion(self.target, current, &options).map_err(NotDeleted::Failed)
                }
                _ => Err(NotDeleted::Elsewhere),
            };
            let change = self.storage.transact(&collection, &object.key, !options.dry_run, remove);
            match change {
                Ok(object) => deleted.push(object),
                Err(NotDeleted::Elsewhere) => {}
                Err(NotDeleted::Failed(failure)) => return Err(failure),
            }
        }
        Ok(self.show_list(ListMetadata::at(self.storage.resource_version()), &deleted))
    }
}

/// Why an object of a collection was not deleted.
enum NotDeleted {
    /// Someone else was faster.
    Elsewhere,
    Failed(Failure),
}

impl From<NoSpace> for NotDeleted {
    fn from(no_space: NoSpace) -> NotDeleted {
        NotDeleted::Failed(no_space.into())
    }
}

/// The change with which a deletion starts, or ends.
fn deletion(
    target: &Target<'_>,
    current: &Object,
    options: &DeleteOptions,
) -> Result<Change, Failure> {
    check_mortal(target, &current.key.name)?;
    options.check_preconditions(target, current)?;
    if crd::is_definition(target)
        && let Some(marked) = crd::marked_for_deletion(&current.fields)
    {
        return Ok(Change::Put(marked));
    }
    let mut fields = current.fields.clone();
    let deleting = !object::metadata_text(&fields, "deletionTimestamp").is_empty();
    let period = grace_period(target, current, options);
    let pending = grace_of(&fields).filter(|seconds| deleting && *seconds > 0);
    if let Some(pending) = pending {
        // Only a shorter period may be given once the deletion has begun.
        match period.filter(|_| options.grace_period.is_some()) {
            Some(period) if period < pending => {}
            _ => return Ok(Change::Put(fields)),
        }
    }

    let finalizers = options.finalizers(&fields);
    let remains = !finalizers.is_empty() || namespace::is_held(target, &fields);
    let finalizers = (!finalizers.is_empty()).then(|| json!(finalizers));
    object::put_metadata(&mut fields, "finalizers", finalizers);
    let period = period.unwrap_or_default();
    if period == 0 && !remains {
        return Ok(Change::Delete);
    }
    if !deleting {
        bump_generation(&mut fields);
        namespace::terminate(target, &mut fields);
    }
    if !deleting || pending.is_some() {
        let at = stamp::after(u64::try_from(period).unwrap_or_default());
        object::set_metadata(&mut fields, "deletionTimestamp", &at);
    }
    object::put_metadata(&mut fields, "deletionGracePeriodSeconds", Some(period.into()));
    Ok(Change::Put(fields))
}

/// The change of an update: the object is removed when the last finalizer of a deleted object is gone.
pub(super) fn settled(fields: Fields) -> Change {
    let deleting = !object::metadata_text(&fields, "deletionTimestamp").is_empty();
    let graceful = grace_of(&fields).is_some_and(|seconds| seconds > 0);
    match deleting && !graceful && finalizers_of(&fields).is_empty() {
        true => Change::Finish(fields),
        false => Change::Put(fields),
    }
}

/// Refuses to delete the namespaces without which a cluster does not work.
fn check_mortal(target: &Target<'_>, name: &str) -> Result<(), Failure> {
    let real = target.resource.subresources.iter().any(|entry| entry.name == "finalize");
    let immortal = ["default", "kube-public", "kube-system"].contains(&name);
    match real && immortal && is(target, "", "namespaces") {
        true => Err(Failure::refused(target, name, "this namespace may not be deleted")),
        false => Ok(()),
    }
}

/// The seconds that an object has to end by itself; `None` if its kind does not know that.
fn grace_period(target: &Target<'_>, current: &Object, options: &DeleteOptions) -> Option<i64> {
    if !is(target, "", "pods") {
        return None;
    }
    let text = |path: &str| current.fields.get("spec").and_then(|spec| spec.get(path)?.as_str());
    let status = current.fields.get("status");
    let phase = status.and_then(|status| status.get("phase")?.as_str());
    let unscheduled = text("nodeName").unwrap_or_default().is_empty();
    if unscheduled || matches!(phase, Some("Failed" | "Succeeded")) {
        return Some(0);
    }
    let own = current
        .fields
        .get("spec")
        .and_then(|spec| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64));
    let period = options.grace_period.or(own).unwrap_or_default();
    Some(if period < 0 { 1 } else { period })
}

/// Whether the response to a deletion is the object, instead of a `Status`.
fn returns_objects(target: &Target<'_>) -> bool {
    const CORE: [&str; 8] = [
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
    ];
    match target.group.name.as_str() {
        "" => CORE.contains(&target.resource.plural.as_str()),
        "resource.k8s.io" => true,
        "storage.k8s.io" => target.resource.plural != "csistoragecapacities",
        _ => false,
    }
}

fn is(target: &Target<'_>, group: &str, plural: &str) -> bool {
    target.group.name == group && target.resource.plural == plural
}

fn grace_of(fields: &Fields) -> Option<i64> {
    object::metadata_of(fields)?.get("deletionGracePeriodSeconds")?.as_i64()
}

/// The finalizers of an object.
pub(super) fn finalizers_of(fields: &Fields) -> Vec<String> {
    let list = object::metadata_of(fields).and_then(|metadata| metadata.get("finalizers"));
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn bump_generation(fields: &mut Fields) {
    let generation = object::metadata_of(fields)
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_u64);
    if let Some(generation) = generation {
        object::put_metadata(fields, "generation", Some((generation + 1).into()));
    }
}
