//! The type of a value as server-side apply sees it: what has owners of its own. Entry: [`Type`].

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::fields::{key_step, value_step};
use crate::schema::{ListType, Schema};

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    /// A schema. The flag says whether fields that it does not declare are kept.
    Known(Schema<'a>, bool),
    /// No schema: each field of a map has its owners, a list has one.
    Deduced,
    /// A field that the schema does not declare.
    Undeclared,
}

/// How the elements of a list are owned.
#[derive(Debug, Clone)]
pub(super) enum ListRule<'a> {
    /// As one value.
    Atomic,
    /// Each by its value.
    Set,
    /// Each by its keys.
    Map(Vec<&'a str>, Type<'a>),
}

/// The metadata of custom resources, as far as its lists have owners.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "object", "additionalProperties": text });
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "labels": texts,
        "annotations": texts,
        "finalizers": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-map-type": "atomic",
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
        },
    } })
});

impl<'a> Type<'a> {
    /// The type of the objects of a resource.
    pub(super) fn of(schema: Option<Schema<'a>>) -> Type<'a> {
        match schema {
            Some(schema) => Type::Known(schema, schema.preserves_unknown_fields()),
            None => Type::Deduced,
        }
    }

    /// The type of a field of the whole object.
    pub(super) fn root_field(self, name: &str) -> Type<'a> {
        match self {
            // A custom resource does not declare the fields that every object has.
            Type::Known(schema, _) if !schema.has_patch_strategies() => match name {
                "metadata" => Type::of(Schema::plain(&METADATA)),
                "apiVersion" | "kind" => Type::Deduced,
                _ => self.field(name),
            },
            _ => self.field(name),
        }
    }

    /// The type of a field of a map.
    pub(super) fn field(self, name: &str) -> Type<'a> {
        let Type::Known(schema, kept) = self else { return self };
        let below =
            |schema: Schema<'a>| Type::Known(schema, kept || schema.preserves_unknown_fields());
        if let Some(declared) = schema.property(name) {
            return below(declared);
        }
        match schema.keyword("additionalProperties") {
            Some(Value::Bool(false)) => Type::Undeclared,
            Some(Value::Bool(true)) => Type::Deduced,
            Some(_) => schema.additional_properties().map_or(Type::Deduced, below),
            None if kept || schema.properties().next().is_none() => Type::Deduced,
            None => Type::Undeclared,
        }
    }

    /// Whether a field is one of a struct, not of a map.
    pub(super) fn declares(self, name: &str) -> bool {
        matches!(self, Type::Known(schema, _) if schema.property(name).is_some())
    }

    /// Whether a map has one owner.
    pub(super) fn is_atomic_map(self) -> bool {
        matches!(self, Type::Known(schema, _) if schema.is_atomic_map())
    }

    /// The type name of the schema; empty if any type fits.
    pub(super) fn name(self) -> &'a str {
        match self {
            Type::Known(schema, _) if !schema.is_int_or_string() => schema.kind(),
            _ => "",
        }
    }

    /// How the elements of a list are owned.
    pub(super) fn list_rule(self) -> ListRule<'a> {
        let Type::Known(schema, kept) = self else { return ListRule::Atomic };
        let elements = || match schema.items() {
            Some(items) => Type::Known(items, kept || items.preserves_unknown_fields()),
            None => Type::Deduced,
        };
        let strategy = schema.patch_strategy();
        match schema.list_type() {
            ListType::Set => ListRule::Set,
            ListType::Map => ListRule::Map(schema.list_map_keys().collect(), elements()),
            ListType::Atomic if schema.keyword("x-kubernetes-list-type").is_some() => {
                ListRule::Atomic
            }
            // Without a list type, the patch strategy decides.
            ListType::Atomic if strategy.merge && strategy.merge_key.is_empty() => ListRule::Set,
            ListType::Atomic if strategy.merge => {
                ListRule::Map(vec![strategy.merge_key], elements())
            }
            ListType::Atomic => ListRule::Atomic,
        }
    }
}

impl<'a> ListRule<'a> {
    /// The type of the elements.
    pub(super) fn elements(&self) -> Type<'a> {
        match self {
            ListRule::Map(_, elements) => *elements,
            _ => Type::Deduced,
        }
    }

    /// The step of an element. An error says why it has none.
    pub(super) fn step(&self, element: &Value) -> Result<String, String> {
        match (self, element) {
            (ListRule::Atomic, _) => Err("invalid indexing of non-associative list".to_owned()),
            (ListRule::Map(keys, elements), Value::Object(fields)) => {
                let of_schema = |key: &str| match elements {
                    Type::Known(schema, _) => schema.property(key)?.default_value(),
                    _ => None,
                };
                let value = |key: &&str| fields.get(*key).or_else(|| of_schema(key)).cloned();
                let found: Map<String, Value> =
                    keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect();
                if found.is_empty() && !keys.is_empty() {
                    let keys = keys.join("\" \"");
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields \
                         [\"{keys}\"] (and doesn't have default values for any key fields)"
                    ));
                }
                Ok(key_step(found))
            }
            (ListRule::Map(..), Value::Null) => {
                Err("associative list with keys may not have a null element".to_owned())
            }
            (ListRule::Map(..), _) => {
                Err("associative list with keys may not have non-map elements".to_owned())
            }
            (ListRule::Set, Value::Object(_)) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            (ListRule::Set, Value::Array(_)) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            (ListRule::Set, Value::Null) => {
                let why = "associative list without keys has an element that's an explicit null";
                Err(why.to_owned())
            }
            (ListRule::Set, value) => Ok(value_step(value)),
        }
    }
}
