//! The objects that a garbage collector has listed, and who owns whom. Entry: [`Graph`].

use std::collections::HashMap;

use serde_json::Value;

use super::kinds::Kind;

/// All listed objects, by UID and by owner.
#[derive(Debug, Default)]
pub(super) struct Graph<'k> {
    nodes: Vec<Node<'k>>,
    by_owner: HashMap<String, Vec<usize>>,
}

/// An object, by its metadata.
#[derive(Debug)]
pub(super) struct Node<'k> {
    pub(super) kind: &'k Kind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) being_deleted: bool,
    pub(super) finalizers: Vec<String>,
    pub(super) owners: Vec<Owner>,
}

/// An owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) blocks: bool,
    /// The reference as it was sent.
    pub(super) value: Value,
}

impl<'k> Graph<'k> {
    /// Adds an object.
    pub(super) fn add(&mut self, kind: &'k Kind, object: &Value) {
        let Some(node) = Node::read(kind, object) else { return };
        let place = self.nodes.len();
        for owner in &node.owners {
            self.by_owner.entry(owner.uid.clone()).or_default().push(place);
        }
        self.nodes.push(node);
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node<'k>> {
        self.nodes.iter()
    }

    /// The objects that name this one as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Node<'k>> {
        let places = self.by_owner.get(uid).into_iter().flatten();
        places.filter_map(|place| self.nodes.get(*place))
    }
}

impl<'k> Node<'k> {
    fn read(kind: &'k Kind, object: &Value) -> Option<Node<'k>> {
        let metadata = object.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let list = |key: &str| metadata.get(key).and_then(Value::as_array).into_iter().flatten();
        Some(Node {
            kind,
            namespace: text("namespace").to_owned(),
            name: text("name").to_owned(),
            uid: text("uid").to_owned(),
            resource_version: text("resourceVersion").to_owned(),
            being_deleted: metadata.get("deletionTimestamp").is_some_and(Value::is_string),
            finalizers: list("finalizers").filter_map(Value::as_str).map(str::to_owned).collect(),
            owners: list("ownerReferences").map(Owner::read).collect(),
        })
    }

    /// The path of the object.
    pub(super) fn path(&self) -> String {
        self.kind.object(&self.namespace, &self.name)
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|held| held == finalizer)
    }
}

impl Owner {
    fn read(value: &Value) -> Owner {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        Owner {
            api_version: text("apiVersion").to_owned(),
            kind: text("kind").to_owned(),
            name: text("name").to_owned(),
            uid: text("uid").to_owned(),
            blocks: value.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
            value: value.clone(),
        }
    }
}
