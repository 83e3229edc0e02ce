//! Walks over typed values: their fields, and the difference of two of them. Entries: [`fields_of`],
//! [`compare`], [`check`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{FieldSet, field_step, show};
use super::types::{ListRule, Type};

/// The difference of two values.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// The type of a field at this depth.
pub(super) fn type_at<'a>(kind: Type<'a>, depth: usize, name: &str) -> Type<'a> {
    match depth {
        0 => kind.root_field(name),
        _ => kind.field(name),
    }
}

/// The fields of an object.
pub(super) fn fields_of(object: &Value, kind: Type<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    collect(object, kind, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, kind: Type<'_>, path: &mut Vec<String>, set: &mut FieldSet) {
    match value {
        Value::Object(_) if kind.is_atomic_map() => set.insert(path),
        Value::Object(fields) => {
            for (name, value) in fields {
                let inner = type_at(kind, path.len(), name);
                path.push(field_step(name));
                collect(value, inner, path, set);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if is_empty || !declares_at(kind, path.len() - 1, name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Value::Array(list) => match kind.list_rule() {
            ListRule::Atomic => set.insert(path),
            rule => {
                let mut counts: BTreeMap<String, usize> = BTreeMap::new();
                for element in list {
                    *counts.entry(rule.step(element).unwrap_or_default()).or_default() += 1;
                }
                for element in list {
                    let Ok(step) = rule.step(element) else { continue };
                    let unique = counts.get(&step) == Some(&1);
                    path.push(step);
                    set.insert(path);
                    if unique {
                        collect(element, rule.elements(), path, set);
                    }
                    path.pop();
                }
            }
        },
        _ => set.insert(path),
    }
}

/// Whether the field is one of a struct. The fields that every object has are.
fn declares_at(kind: Type<'_>, depth: usize, name: &str) -> bool {
    let is_common = depth == 0 && matches!(name, "apiVersion" | "kind" | "metadata");
    kind.declares(name) || (is_common && matches!(kind, Type::Known(..)))
}

/// The difference from one object to another.
pub(super) fn compare(old: &Value, new: &Value, kind: Type<'_>) -> Difference {
    let mut difference = Difference::default();
    difference.visit(Some(old), Some(new), kind, &mut Vec::new());
    difference
}

impl Difference {
    fn visit(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        kind: Type<'_>,
        path: &mut Vec<String>,
    ) {
        // A null is as empty as a map or list.
        let of = |value: Option<&Value>| value.map(shape).filter(|shape| *shape != Shape::Null);
        let is_empty = |value: Option<&Value>| match value {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) | None => true,
            Some(_) => false,
        };
        let rule = kind.list_rule();
        let granular = match (of(old), of(new)) {
            (Some(Shape::Map), Some(Shape::Map) | None) | (None, Some(Shape::Map)) => {
                !kind.is_atomic_map()
            }
            (Some(Shape::List), Some(Shape::List) | None) | (None, Some(Shape::List)) => {
                !matches!(rule, ListRule::Atomic)
            }
            _ => false,
        };
        if !granular || (is_empty(old) && is_empty(new)) {
            return self.leaf(old, new, path);
        }
        if of(old) == Some(Shape::List) || of(new) == Some(Shape::List) {
            self.lists(old, new, &rule, path);
        } else {
            let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned();
            let (old, new) = (map(old).unwrap_or_default(), map(new).unwrap_or_default());
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names {
                let inner = type_at(kind, path.len(), name);
                path.push(field_step(name));
                self.visit(old.get(name), new.get(name), inner, path);
                path.pop();
            }
        }
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            _ => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[String]) {
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if old != new => self.modified.insert(path),
            _ => {}
        }
    }

    fn lists(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        rule: &ListRule<'_>,
        path: &mut Vec<String>,
    ) {
        let mut elements: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for element in old.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(step) = rule.step(element) {
                elements.entry(step).or_default().0.push(element);
            }
        }
        for element in new.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(step) = rule.step(element) {
                elements.entry(step).or_default().1.push(element);
            }
        }
        for (step, (old, new)) in elements {
            path.push(step);
            match (old.as_slice(), new.as_slice()) {
                // Repeated elements are one value together.
                ([_, _, ..], [_, _, ..]) if old != new => self.modified.insert(path),
                ([_, _, ..], [_, _, ..]) => {}
                ([_, _, ..], new) => {
                    if let [new, ..] = new {
                        self.visit(None, Some(new), rule.elements(), path);
                    }
                    self.removed.insert(path);
                }
                (old, [_, _, ..]) => {
                    if let [old, ..] = old {
                        self.visit(Some(old), None, rule.elements(), path);
                    }
                    self.added.insert(path);
                }
                (old, new) => {
                    let (old, new) = (old.first().copied(), new.first().copied());
                    self.visit(old, new, rule.elements(), path);
                }
            }
            path.pop();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Null,
    Scalar,
    List,
    Map,
}

fn shape(value: &Value) -> Shape {
    match value {
        Value::Null => Shape::Null,
        Value::Array(_) => Shape::List,
        Value::Object(_) => Shape::Map,
        _ => Shape::Scalar,
    }
}

/// Checks that an applied object fits its type. The error names the field.
pub(super) fn check(object: &Value, kind: Type<'_>) -> Result<(), String> {
    check_at(object, kind, &mut Vec::new())
}

fn check_at(value: &Value, kind: Type<'_>, path: &mut Vec<String>) -> Result<(), String> {
    let wrong = |why: &str, path: &[String]| Err(format!("{}: {why}", show(path)));
    match (kind, kind.name(), value) {
        (Type::Undeclared, ..) => return wrong("field not declared in schema", path),
        (_, _, Value::Null) => return Ok(()),
        (_, "object", Value::Object(_)) | (_, "array", Value::Array(_)) | (_, "", _) => {}
        (_, "object", _) => return wrong("expected map", path),
        (_, "array", _) => return wrong("expected list", path),
        (_, "string", value) if !value.is_string() => return wrong("expected string", path),
        (_, "boolean", value) if !value.is_boolean() => return wrong("expected boolean", path),
        (_, "integer" | "number", value) if !value.is_number() => {
            return wrong("expected numeric (int or float)", path);
        }
        _ => {}
    }
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            let inner = type_at(kind, path.len(), name);
            path.push(field_step(name));
            let checked = check_at(value, inner, path);
            path.pop();
            checked
        }),
        Value::Array(list) => match kind.list_rule() {
            ListRule::Atomic => Ok(()),
            rule => {
                let mut seen = BTreeMap::new();
                for (place, element) in list.iter().enumerate() {
                    let step = match rule.step(element) {
                        Ok(step) => step,
                        Err(why) => return wrong(&format!("element {place}: {why}"), path),
                    };
                    if seen.insert(step.clone(), ()).is_some() {
                        let key = show(&[step]);
                        return wrong(&format!("duplicate entries for key {key}"), path);
                    }
                    path.push(step);
                    check_at(element, rule.elements(), path)?;
                    path.pop();
                }
                Ok(())
            }
        },
        _ => Ok(()),
    }
}
