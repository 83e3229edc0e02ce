//! Changes of objects: creation, replacement, and preconditions. Entries: [`newborn`],
//! [`updated`].

use super::delete::{finalizers_of, settled};
use crate::namespace;
use crate::object;
use crate::route::Target;
use crate::stamp;
use crate::status::{Failure, Fault};
use crate::storage::{Change, Fields, Object};
use crate::strategy;

/// A new object with the metadata that a server sets.
pub(super) fn newborn(
    target: &Target<'_>,
    mut fields: Fields,
    name: &str,
) -> Result<Fields, Failure> {
    if !object::metadata_text(&fields, "resourceVersion").is_empty() {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(Failure::bad_request(message));
    }
    let kept = fields.get("status").filter(|_| strategy::keeps_status(target)).cloned();
    for field in separate_fields(target) {
        fields.remove(field);
    }
    if let Some(status) = kept.or_else(|| strategy::initial_status(target)) {
        fields.insert("status".to_owned(), status);
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"] {
        object::put_metadata(&mut fields, key, None);
    }
    object::set_metadata(&mut fields, "name", name);
    object::set_metadata(&mut fields, "uid", &stamp::unique_id());
    object::set_metadata(&mut fields, "creationTimestamp", &stamp::now());
    let generation = strategy::has_generation(target).then(|| 1.into());
    object::put_metadata(&mut fields, "generation", generation);
    namespace::born(target, &mut fields);
    Ok(fields)
}

/// The metadata that callers cannot change.
const SERVERS_OWN: [&str; 6] = [
    "name",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The change of an update.
pub(super) fn updated(
    target: &Target<'_>,
    current: &Object,
    sent: Fields,
) -> Result<Change, Failure> {
    let fields = replaced(target, current, sent)?;
    check_finalizers(target, current, &fields)?;
    if namespace::is_held(target, &fields) {
        return Ok(Change::Put(fields));
    }
    Ok(settled(fields))
}

/// An object after an update. A subresource replaces only its field, the resource all other fields.
fn replaced(target: &Target<'_>, current: &Object, mut sent: Fields) -> Result<Fields, Failure> {
    let uid = object::metadata_text(&sent, "uid");
    check_precondition(target, current, "UID", "uid", uid)?;
    let seen = object::metadata_text(&sent, "resourceVersion");
    if !seen.is_empty() && seen != object::metadata_text(&current.fields, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        return Err(Failure::conflict(target, &current.key.name, why));
    }

    if let Some(subresource) = target.subresource {
        let mut fields = current.fields.clone();
        take_over(&mut fields, &mut sent, field_of(&subresource.name));
        return Ok(fields);
    }
    let mut current = current.fields.clone();
    for field in separate_fields(target) {
        take_over(&mut sent, &mut current, field);
    }
    namespace::keep_finalizers(target, &mut sent, &current);
    let metadata = object::metadata_of(&current);
    let value = |key: &str| metadata.and_then(|metadata| metadata.get(key)).cloned();
    for key in SERVERS_OWN {
        object::put_metadata(&mut sent, key, value(key));
    }
    let generation = value("generation").and_then(|value| value.as_u64()).unwrap_or_default();
    let contents = |fields: &Fields| {
        let mut fields = fields.clone();
        fields.remove("metadata");
        for field in separate_fields(target) {
            fields.remove(field);
        }
        fields
    };
    if strategy::has_generation(target) && contents(&sent) != contents(&current) {
        object::put_metadata(&mut sent, "generation", Some((generation + 1).into()));
    }
    Ok(sent)
}

/// The fields of an object that only their subresources change.
pub(super) fn separate_fields<'a>(target: &Target<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let names = target.resource.subresources.iter().map(|subresource| subresource.name.as_str());
    names.filter(|name| field_of(name) == *name)
}

/// The field that a subresource changes.
pub(super) fn field_of(subresource: &str) -> &str {
    match subresource {
        "approval" => "status",
        "ephemeralcontainers" | "resize" | "finalize" => "spec",
        other => other,
    }
}

/// Copies a field from another object.
fn take_over(fields: &mut Fields, other: &mut Fields, name: &str) {
    match other.remove(name) {
        Some(value) => drop(fields.insert(name.to_owned(), value)),
        None => drop(fields.remove(name)),
    }
}

/// Checks the UID and resource version of a precondition, if they are given.
fn check_precondition(
    target: &Target<'_>,
    current: &Object,
    what: &str,
    field: &str,
    wanted: &str,
) -> Result<(), Failure> {
    let actual = object::metadata_text(&current.fields, field);
    if wanted.is_empty() || wanted == actual {
        return Ok(());
    }
    let why = format!(
        "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
    );
    Err(Failure::conflict(target, &current.key.name, &why))
}

/// Checks that a deleted object gets no new finalizers.
fn check_finalizers(target: &Target<'_>, current: &Object, next: &Fields) -> Result<(), Failure> {
    if object::metadata_text(&current.fields, "deletionTimestamp").is_empty() {
        return Ok(());
    }
    let old = finalizers_of(&current.fields);
    let new: Vec<_> =
        finalizers_of(next).into_iter().filter(|finalizer| !old.contains(finalizer)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{\"{}\"}}",
        new.join("\", \"")
    );
    let fault = Fault::Forbidden(&why);
    Err(Failure::invalid_field(target, &current.key.name, "metadata.finalizers", fault))
}

/// Checks the name in a patch: it may be absent, but not another one.
pub(super) fn check_patched_name(target: &Target<'_>, fields: &Fields) -> Result<(), Failure> {
    match object::metadata_text(fields, "name") {
        "" => Ok(()),
        name => check_same_name(target, name),
    }
}

/// Checks that the name of an object is that of the path.
pub(super) fn check_same_name(target: &Target<'_>, name: &str) -> Result<(), Failure> {
    if name == target.name {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        target.name
    )))
}
