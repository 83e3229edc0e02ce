//! Custom resources (`apiextensions.k8s.io/v1`): their definitions, and what a server does with objects
//! of a custom kind. Entries: [`Definitions`], [`controller::start`].
//!
//! A definition is an object like others. When it is written, it gets its defaults ([`prepare`]) and is
//! validated ([`validate`], [`structural`]). Each server follows the definitions in the storage
//! ([`controller`]), accepts their names ([`naming`]), and serves each of them after a delay of its own:
//! from then on it is among the [`Definitions`] of the server's surface. Objects of a custom kind get the
//! [`shape`] of their schema and are validated by it ([`check`]).
//!
//! Rules in CEL (`x-kubernetes-validations`) are not evaluated, and webhooks do not convert: a definition
//! that asks for them is accepted with a warning.

mod check;
mod column;
pub(crate) mod controller;
mod definition;
mod format;
mod name;
mod naming;
mod pattern;
mod prepare;
mod schema;
mod shape;
mod structural;
mod validate;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(crate) use column::CustomColumn;
pub(crate) use definition::{CustomResource, CustomVersion, ScalePaths};
pub(crate) use prepare::{checked, is_definition, marked_for_deletion, prepared, warnings};

use crate::route::Target;
use crate::spec::GroupSpec;
use crate::storage::{CollectionKey, Fields};
use crate::surface::serve;

/// The custom resources that a server serves.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    resources: Vec<Arc<CustomResource>>,
    /// The schemas of their OpenAPI documents, by group and version.
    schemas: HashMap<(String, String), Map<String, Value>>,
}

/// A custom resource in one of its versions.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    pub(crate) resource: Arc<CustomResource>,
    pub(crate) version: Arc<CustomVersion>,
}

impl Definitions {
    fn new(resources: Vec<Arc<CustomResource>>) -> Definitions {
        let mut schemas: HashMap<_, Map<String, Value>> = HashMap::new();
        for resource in &resources {
            for version in &resource.versions {
                let key = (resource.group.clone(), version.name.clone());
                schemas.entry(key).or_default().extend(resource.components(version));
            }
        }
        Definitions { resources, schemas }
    }

    /// The custom resource of a target, in the version that the request is for.
    pub(crate) fn find(&self, target: &Target<'_>) -> Option<Custom> {
        let resource = self.resources.iter().find(|resource| {
            resource.group == target.group.name && resource.plural == target.resource.plural
        })?;
        let version = resource.versions.iter().find(|version| version.name == target.version)?;
        Some(Custom { resource: Arc::clone(resource), version: Arc::clone(version) })
    }

    /// The component schemas of a group and version.
    pub(crate) fn schemas(&self, group: &str, version: &str) -> Option<&Map<String, Value>> {
        self.schemas.get(&(group.to_owned(), version.to_owned()))
    }

    /// Adds the custom resources to groups. A resource that a group has already stays as it is, and
    /// gets no more versions.
    pub(crate) fn add_to(&self, groups: &mut Vec<GroupSpec>) {
        let is_new =
            |resource: &&Arc<CustomResource>| !serve(groups, &resource.group, &resource.plural);
        for resource in self.resources.iter().filter(is_new).collect::<Vec<_>>() {
            if !groups.iter().any(|group| group.name == resource.group) {
                groups.push(GroupSpec::new(&resource.group));
            }
            for group in groups.iter_mut().filter(|group| group.name == resource.group) {
                for version in &resource.versions {
                    if !group.versions.iter().any(|known| known.version == version.name) {
                        *group = std::mem::take(group).version(&version.name, []);
                    }
                    let mut known = group.versions.iter_mut();
                    let known = known.find(|known| known.version == version.name);
                    if let Some(known) = known
                        && !known.resources.iter().any(|entry| entry.plural == resource.plural)
                    {
                        known.resources.push(resource.spec(version));
                    }
                }
                group.versions.sort_by_key(|version| name::version_order(&version.version));
            }
        }
    }
}

/// The storage key of definitions.
fn collection() -> CollectionKey {
    CollectionKey {
        group: "apiextensions.k8s.io".to_owned(),
        resource: "customresourcedefinitions".to_owned(),
    }
}

/// Whether a condition of a definition is true.
fn condition_is_true(fields: &Fields, kind: &str) -> bool {
    let conditions = fields.get("status").and_then(|status| status.get("conditions")?.as_array());
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").is_some_and(|value| value == kind)
            && condition.get("status").is_some_and(|value| value == "True")
    })
}

/// Sets a condition of a definition. Its time changes only with its status.
fn set_condition(fields: &mut Fields, kind: &str, status: &str, reason: &str, message: &str) {
    let root = fields.entry("status").or_insert_with(|| json!({}));
    let Value::Object(root) = root else {
        return;
    };
    let list = root.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else {
        return;
    };
    let place = list.iter().position(|entry| entry.get("type").is_some_and(|value| value == kind));
    let old = place.and_then(|place| list.get(place));
    let same = old.filter(|old| old.get("status").is_some_and(|value| value == status));
    let time = same.and_then(|old| old.get("lastTransitionTime")).cloned();
    let condition = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": time.unwrap_or_else(|| crate::stamp::now().into()),
        "reason": reason,
        "message": message,
    });
    match place.and_then(|place| list.get_mut(place)) {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}
