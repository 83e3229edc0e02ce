//! A view of an OpenAPI v3 schema: what a patch, pruning or defaulting asks of a field. Entry:
//! [`Schema`].
//!
//! The view borrows the document and is cheap to copy. References (`$ref`, or an `allOf` of one
//! element, as Kubernetes writes them) are followed when the view is made. A keyword next to a
//! reference wins over the same keyword of the referenced schema.

use serde_json::{Map, Value};

/// A schema within a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema<'a> {
    components: Option<&'a Value>,
    /// The node itself.
    node: &'a Map<String, Value>,
    /// The node that it refers to; the same one if it is no reference.
    target: &'a Map<String, Value>,
}

/// The way in which a strategic merge patch changes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PatchStrategy<'a> {
    /// The list or map is replaced.
    pub(crate) replace: bool,
    /// The list or map is merged.
    pub(crate) merge: bool,
    /// Only the keys that the patch names are retained.
    pub(crate) retain_keys: bool,
    /// The field that identifies the elements of a list; empty for lists of scalars.
    pub(crate) merge_key: &'a str,
}

/// Who owns the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The whole list has one owner.
    Atomic,
    /// Each value has its owners.
    Set,
    /// Each element has its owners. Its key fields identify it.
    Map,
}

/// A bound for chains of references: a document of a caller may have a cycle.
const LONGEST_CHAIN: usize = 16;

impl<'a> Schema<'a> {
    /// A schema of a document by its name. `components` is the `components.schemas` of the document.
    /// `None` for a node that is no object, or refers to nothing.
    pub(crate) fn component(components: &'a Value, name: &str) -> Option<Schema<'a>> {
        Schema::follow(Some(components), components.get(name)?)
    }

    /// A schema without references, such as that of a custom resource.
    pub(crate) fn plain(node: &'a Value) -> Option<Schema<'a>> {
        Schema::follow(None, node)
    }

    /// Whether the schema is that of a built-in resource. A schema of a custom resource, which has no
    /// references, cannot declare patch strategies.
    pub(crate) fn has_patch_strategies(&self) -> bool {
        self.components.is_some()
    }

    /// The schema of a declared property.
    pub(crate) fn property(&self, name: &str) -> Option<Schema<'a>> {
        self.child(self.keyword("properties")?.get(name)?)
    }

    /// The declared properties.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&'a str, Schema<'a>)> + use<'a> {
        let schema = *self;
        let declared = self.keyword("properties").and_then(Value::as_object);
        let declared = declared.into_iter().flatten();
        declared.filter_map(move |(name, node)| Some((name.as_str(), schema.child(node)?)))
    }

    /// The schema of the elements of a list.
    pub(crate) fn items(&self) -> Option<Schema<'a>> {
        self.child(self.keyword("items")?)
    }

    /// The schema of the values of a map.
    pub(crate) fn additional_properties(&self) -> Option<Schema<'a>> {
        self.child(self.keyword("additionalProperties")?)
    }

    /// The schema of a field: a declared property, or a value of a map.
    pub(crate) fn field(&self, name: &str) -> Option<Schema<'a>> {
        self.property(name).or_else(|| self.additional_properties())
    }

    /// The type, such as `object`; empty if the schema has none.
    pub(crate) fn kind(&self) -> &'a str {
        self.text("type")
    }

    /// How a strategic merge patch changes the field.
    pub(crate) fn patch_strategy(&self) -> PatchStrategy<'a> {
        let mut strategy = PatchStrategy {
            merge_key: self.text("x-kubernetes-patch-merge-key"),
            ..PatchStrategy::default()
        };
        for word in self.text("x-kubernetes-patch-strategy").split(',') {
            match word.trim() {
                "replace" => strategy.replace = true,
                "merge" => strategy.merge = true,
                "retainKeys" => strategy.retain_keys = true,
                _ => {}
            }
        }
        strategy
    }

    /// Who owns the elements of a list. A list without a type is atomic.
    pub(crate) fn list_type(&self) -> ListType {
        match self.text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map,
            _ => ListType::Atomic,
        }
    }

    /// The key fields of a list of type `map`.
    pub(crate) fn list_map_keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let keys = self.keyword("x-kubernetes-list-map-keys").and_then(Value::as_array);
        keys.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Whether the whole map or object has one owner.
    pub(crate) fn is_atomic_map(&self) -> bool {
        self.text("x-kubernetes-map-type") == "atomic"
    }

    /// Whether fields that the schema does not declare are kept.
    pub(crate) fn preserves_unknown_fields(&self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    /// Whether the value is an integer or a string.
    pub(crate) fn is_int_or_string(&self) -> bool {
        self.flag("x-kubernetes-int-or-string") || self.text("format") == "int-or-string"
    }

    /// The value of an absent field.
    pub(crate) fn default_value(&self) -> Option<&'a Value> {
        self.keyword("default")
    }

    /// A keyword, of the node or of the schema that it refers to.
    pub(crate) fn keyword(&self, name: &str) -> Option<&'a Value> {
        self.node.get(name).or_else(|| self.target.get(name))
    }

    fn text(&self, keyword: &str) -> &'a str {
        self.keyword(keyword).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(&self, keyword: &str) -> bool {
        self.keyword(keyword).and_then(Value::as_bool).unwrap_or_default()
    }

    fn child(&self, node: &'a Value) -> Option<Schema<'a>> {
        Schema::follow(self.components, node)
    }

    fn follow(components: Option<&'a Value>, node: &'a Value) -> Option<Schema<'a>> {
        let node = node.as_object()?;
        let mut target = node;
        for _ in 0..LONGEST_CHAIN {
            let Some(next) = reference(target) else {
                return Some(Schema { components, node, target });
            };
            target = match next {
                Reference::Name(name) => components?.get(name)?.as_object()?,
                Reference::Node(node) => node.as_object()?,
            };
        }
        None
    }
}

/// What a node refers to.
enum Reference<'a> {
    Name(&'a str),
    Node(&'a Value),
}

fn reference(node: &Map<String, Value>) -> Option<Reference<'_>> {
    if let Some(Value::String(path)) = node.get("$ref") {
        let name = path.rsplit('/').next().unwrap_or_default();
        return Some(Reference::Name(name));
    }
    match node.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => Some(Reference::Node(only)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_followed_and_their_neighbours_win() {
        let document = json!({
            "Pod": { "type": "object", "properties": {
                "spec": { "allOf": [{ "$ref": "#/components/schemas/PodSpec" }], "default": {} },
                "status": { "$ref": "#/components/schemas/none" },
            } },
            "PodSpec": { "type": "object", "default": { "a": 1 }, "properties": {
                "containers": {
                    "type": "array",
                    "items": { "allOf": [{ "$ref": "#/components/schemas/Container" }] },
                    "x-kubernetes-list-map-keys": ["name"],
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-patch-merge-key": "name",
                    "x-kubernetes-patch-strategy": "merge,retainKeys",
                },
                "nodeSelector": {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "x-kubernetes-map-type": "atomic",
                },
            } },
            "Container": { "properties": { "image": { "type": "string" } } },
        });
        let pod = Schema::component(&document, "Pod").unwrap();
        assert!(pod.property("status").is_none());
        let spec = pod.property("spec").unwrap();
        assert_eq!((spec.kind(), spec.default_value()), ("object", Some(&json!({}))));
        let containers = spec.property("containers").unwrap();
        let strategy =
            PatchStrategy { merge: true, retain_keys: true, merge_key: "name", replace: false };
        assert_eq!(containers.patch_strategy(), strategy);
        assert_eq!(containers.list_type(), ListType::Map);
        assert_eq!(containers.list_map_keys().collect::<Vec<_>>(), ["name"]);
        assert_eq!(containers.items().unwrap().property("image").unwrap().kind(), "string");
        let selector = spec.property("nodeSelector").unwrap();
        assert!(selector.is_atomic_map());
        assert_eq!(selector.field("any").unwrap().kind(), "string");
        let names: Vec<_> = spec.properties().map(|(name, _)| name).collect();
        assert_eq!(names, ["containers", "nodeSelector"]);
    }

    #[test]
    fn cycles_and_malformed_nodes_are_no_schemas() {
        let document = json!({
            "a": { "$ref": "#/components/schemas/b" },
            "b": { "allOf": [{ "$ref": "#/components/schemas/a" }] },
            "c": { "properties": { "d": 7 }, "items": [], "type": 1, "allOf": [{}, {}] },
        });
        assert!(Schema::component(&document, "a").is_none());
        let odd = Schema::component(&document, "c").unwrap();
        assert!(odd.property("d").is_none() && odd.items().is_none() && odd.kind().is_empty());
        assert!(Schema::plain(&document["a"]).is_none(), "a plain schema has no references");
    }

    #[test]
    fn the_extensions_of_custom_resources_are_read() {
        let node = json!({
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-int-or-string": true,
        });
        let schema = Schema::plain(&node).unwrap();
        assert!(schema.preserves_unknown_fields() && schema.is_int_or_string());
        let empty = json!({});
        let schema = Schema::plain(&empty).unwrap();
        assert!(!schema.preserves_unknown_fields() && !schema.is_atomic_map());
        assert_eq!(schema.list_type(), ListType::Atomic);
        assert_eq!(schema.patch_strategy(), PatchStrategy::default());
    }
}
