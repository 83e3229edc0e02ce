//! The life of a namespace: it stays until its contents are deleted. Entries: [`born`], [`is_held`],
//! [`check_writable`].
//!
//! This holds for servers whose `namespaces` have the subresource `finalize`, as real ones do. A
//! controller deletes the contents (`controllers`), and then removes the finalizer through it.

use serde_json::{Value, json};

use crate::object;
use crate::route::Target;
use crate::spec::GroupSpec;
use crate::status::Failure;
use crate::storage::{CollectionKey, Fields, ObjectKey, Storage};

const FINALIZE: &str = "finalize";

/// Completes a new namespace.
pub(crate) fn born(target: &Target<'_>, fields: &mut Fields) {
    if !has_life(target) {
        return;
    }
    let name = object::metadata_text(fields, "name").to_owned();
    if let Value::Object(metadata) = fields.entry("metadata").or_insert_with(|| json!({})) {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Value::Object(labels) = labels {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
    }
    if let Value::Object(spec) = fields.entry("spec").or_insert_with(|| json!({})) {
        spec.insert("finalizers".to_owned(), json!(["kubernetes"]));
    }
    fields.insert("status".to_owned(), json!({"phase": "Active"}));
}

/// Whether finalizers of the namespace itself keep it.
pub(crate) fn is_held(target: &Target<'_>, fields: &Fields) -> bool {
    has_life(target) && finalizers(fields).is_some_and(|held| !held.is_empty())
}

/// Marks a namespace whose deletion begins.
pub(crate) fn terminate(target: &Target<'_>, fields: &mut Fields) {
    if has_life(target) {
        fields.insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
}

/// Keeps the finalizers of an updated namespace: only its subresource changes them.
pub(crate) fn keep_finalizers(target: &Target<'_>, sent: &mut Fields, current: &Fields) {
    if let (true, Some(held)) = (has_life(target), finalizers(current))
        && let Value::Object(spec) = sent.entry("spec").or_insert_with(|| json!({}))
    {
        spec.insert("finalizers".to_owned(), held.clone().into());
    }
}

/// Checks that an object can be created in the namespace of a target: it exists, and does not end.
pub(crate) fn check_writable(
    groups: &[GroupSpec],
    storage: &Storage,
    target: &Target<'_>,
    name: &str,
) -> Result<(), Failure> {
    let core = groups.iter().find(|group| group.name.is_empty());
    let mut resources = core.into_iter().flat_map(|group| &group.versions);
    let has_life = resources.any(|version| {
        let namespaces = version.resources.iter().find(|entry| entry.plural == "namespaces");
        namespaces.is_some_and(|entry| entry.subresources.iter().any(|sub| sub.name == FINALIZE))
    });
    if !has_life || target.namespace.is_empty() {
        return Ok(());
    }
    let collection = CollectionKey { group: String::new(), resource: "namespaces".to_owned() };
    let key = ObjectKey { namespace: String::new(), name: target.namespace.clone() };
    match storage.get(&collection, &key) {
        // Real servers create it when they start.
        None if target.namespace == "default" => Ok(()),
        None => Err(Failure::no_namespace(&target.namespace)),
        Some(namespace)
            if !object::metadata_text(&namespace.fields, "deletionTimestamp").is_empty() =>
        {
            Err(Failure::namespace_terminating(target, name))
        }
        Some(_) => Ok(()),
    }
}

fn has_life(target: &Target<'_>) -> bool {
    target.group.name.is_empty()
        && target.resource.plural == "namespaces"
        && target.resource.subresources.iter().any(|entry| entry.name == FINALIZE)
}

fn finalizers(fields: &Fields) -> Option<&Vec<Value>> {
    fields.get("spec")?.get("finalizers")?.as_array()
}
