//! What is left in a namespace that is being deleted, as the conditions of the namespace say it.
//! Entry: [`Remaining::conditions`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api::Problem;
use super::kinds::Kind;
use crate::stamp;

/// What is left in a namespace.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// The number of objects of each resource, as `jobs.batch`.
    resources: BTreeMap<String, usize>,
    /// The number of objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// Why objects could not be deleted.
    pub(super) problems: Vec<Problem>,
}

/// The conditions of a namespace, each with its reason and message if there is nothing to say. The
/// words are those of kube-controller-manager.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

impl Remaining {
    /// Adds the objects of a kind that are left.
    pub(super) fn add(&mut self, kind: &Kind, objects: &[Value]) {
        if objects.is_empty() {
            return;
        }
        // Kubernetes writes `pods.`, too.
        let resource = format!("{}.{}", kind.plural, kind.group);
        *self.resources.entry(resource).or_default() += objects.len();
        for object in objects {
            let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
            for finalizer in finalizers.into_iter().flatten().filter_map(Value::as_str) {
                *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.problems.is_empty()
    }

    /// The conditions of the namespace, unless it has them already.
    pub(super) fn conditions(&self, namespace: &Value) -> Option<Vec<Value>> {
        let before = namespace.pointer("/status/conditions").and_then(Value::as_array);
        let before: &[Value] = before.map_or(&[], Vec::as_slice);
        let known = |kind: &str| {
            before.iter().find(|condition| condition.get("type").is_some_and(|value| value == kind))
        };
        let (mut after, mut changed) = (Vec::new(), false);
        for (kind, reason, message) in CONDITIONS {
            let (status, reason, message) = match self.finding(kind) {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", reason, message.to_owned()),
            };
            let mut condition = Map::new();
            let text = [("type", kind), ("status", status), ("reason", reason)];
            condition.extend(text.map(|(key, value)| (key.to_owned(), value.into())));
            condition.insert("message".to_owned(), message.into());
            let is_same =
                |key: &str| known(kind).and_then(|old| old.get(key)) == condition.get(key);
            changed |= !["status", "reason", "message"].into_iter().all(is_same);
            let since = known(kind).filter(|_| is_same("status"));
            let since = since.and_then(|old| old.get("lastTransitionTime")).cloned();
            let since = since.unwrap_or_else(|| json!(stamp::now()));
            condition.insert("lastTransitionTime".to_owned(), since);
            after.push(Value::Object(condition));
        }
        changed.then_some(after)
    }

    /// Why a condition is true.
    fn finding(&self, kind: &str) -> Option<(&'static str, String)> {
        let join = |counts: &BTreeMap<String, usize>, middle: &str| -> String {
            let each = counts.iter().map(|(name, count)| format!("{name} {middle} {count}"));
            let each: Vec<String> = each.map(|each| format!("{each} resource instances")).collect();
            each.join(", ")
        };
        match kind {
            "NamespaceDeletionContentFailure" if !self.problems.is_empty() => {
                let mut all: Vec<&str> =
                    self.problems.iter().map(|problem| problem.message.as_str()).collect();
                all.sort_unstable();
                let (count, all) = (all.len(), all.join(", "));
                let message =
                    format!("Failed to delete all resource types, {count} remaining: {all}");
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" if !self.resources.is_empty() => {
                let all = join(&self.resources, "has");
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {all}")))
            }
            "NamespaceFinalizersRemaining" if !self.finalizers.is_empty() => {
                let all = join(&self.finalizers, "in");
                let what = "Some content in the namespace has finalizers remaining";
                Some(("SomeFinalizersRemain", format!("{what}: {all}")))
            }
            _ => None,
        }
    }
}
