//! Changes of typed values: the merge of an applied object, and the removal of fields. Entries:
//! [`merge`], [`remove`].

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use super::fields::{FieldSet, field_step};
use super::types::{ListRule, Type};
use super::walk::type_at;

/// The live object with an applied one merged into it.
pub(super) fn merge(live: &Value, applied: &Value, kind: Type<'_>) -> Value {
    merge_at(live, applied, kind, 0)
}

fn merge_at(live: &Value, applied: &Value, kind: Type<'_>, depth: usize) -> Value {
    match (live, applied) {
        (Value::Object(_), Value::Object(_)) if kind.is_atomic_map() => applied.clone(),
        (Value::Object(live), Value::Object(applied)) => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let value = match live.get(name) {
                    Some(live) => merge_at(live, value, type_at(kind, depth, name), depth + 1),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(live_list), Value::Array(list)) => match kind.list_rule() {
            _ if live_list.is_empty() && list.is_empty() => applied.clone(),
            ListRule::Atomic => applied.clone(),
            rule => Value::Array(merge_lists(live_list, list, &rule, depth + 1)),
        },
        // A null does not remove the elements of others.
        (Value::Object(fields), Value::Null) if !fields.is_empty() && !kind.is_atomic_map() => {
            live.clone()
        }
        (Value::Array(list), Value::Null) => match kind.list_rule() {
            ListRule::Atomic => Value::Null,
            _ if list.is_empty() => Value::Null,
            _ => live.clone(),
        },
        _ => applied.clone(),
    }
}

/// Merges lists by the steps of their elements. The applied elements get the order in which they are
/// applied; the others stay where they are between them.
fn merge_lists(live: &[Value], applied: &[Value], rule: &ListRule<'_>, depth: usize) -> Vec<Value> {
    let step = |element: &Value| rule.step(element).unwrap_or_default();
    let live: Vec<(String, &Value)> = live.iter().map(|element| (step(element), element)).collect();
    let applied: Vec<_> = applied.iter().map(|element| (step(element), element)).collect();
    let mut of_live: HashMap<&str, Option<&Value>> = HashMap::new();
    for (step, element) in &live {
        // A repeated element is not merged, but replaced.
        of_live.entry(step).and_modify(|known| *known = None).or_insert(Some(element));
    }
    let of_applied: HashSet<&str> = applied.iter().map(|(step, _)| step.as_str()).collect();
    let combined = |step: &str, element: &Value| match of_live.get(step).copied().flatten() {
        Some(live) => merge_at(live, element, rule.elements(), depth),
        None => element.clone(),
    };

    let mut shared: VecDeque<&str> = applied
        .iter()
        .map(|(step, _)| step.as_str())
        .filter(|step| of_live.contains_key(step))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut done: HashSet<&str> = HashSet::new();
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let (mut left, mut right) = (live.iter().peekable(), applied.iter().peekable());
    while left.peek().is_some() || right.peek().is_some() {
        if let (Some((mine, _)), Some((theirs, element))) = (left.peek(), right.peek()) {
            if mine == theirs {
                done.insert(theirs);
                merged.push(combined(theirs, element));
                left.next();
                right.next();
                next_shared = shared.pop_front();
                continue;
            }
            // A shared element, but not the one whose turn it is.
            if of_applied.contains(mine.as_str()) && next_shared.is_some_and(|next| next != mine) {
                left.next();
                continue;
            }
        }
        if let Some((mine, element)) = left.peek() {
            if !of_applied.contains(mine.as_str()) {
                merged.push((*element).clone());
                left.next();
                continue;
            }
            if done.contains(mine.as_str()) {
                left.next();
            }
        }
        if let Some((theirs, element)) = right.next() {
            done.insert(theirs);
            merged.push(combined(theirs, element));
            if next_shared == Some(theirs) {
                next_shared = shared.pop_front();
            }
        }
    }
    merged
}

/// An object without the fields of a set.
pub(super) fn remove(object: &Value, set: &FieldSet, kind: Type<'_>) -> Value {
    remove_at(object, set, kind, 0).unwrap_or_else(|| Value::Object(Map::new()))
}

/// `None` if nothing is left.
fn remove_at(value: &Value, set: &FieldSet, kind: Type<'_>, depth: usize) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.is_empty() || kind.is_atomic_map() {
                return None;
            }
            let mut left = Map::new();
            for (name, value) in fields {
                let step = field_step(name);
                if set.has(&step) {
                    continue;
                }
                let value = match set.under(&step) {
                    Some(inner) => remove_at(value, inner, type_at(kind, depth, name), depth + 1),
                    None => Some(value.clone()),
                };
                left.extend(value.map(|value| (name.clone(), value)));
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Value::Array(list) => {
            let rule = kind.list_rule();
            if list.is_empty() || matches!(rule, ListRule::Atomic) {
                return None;
            }
            let left: Vec<Value> = list
                .iter()
                .filter_map(|element| {
                    let step = rule.step(element).unwrap_or_default();
                    match set.under(&step) {
                        _ if set.has(&step) => None,
                        Some(inner) => remove_at(element, inner, rule.elements(), depth + 1),
                        None => Some(element.clone()),
                    }
                })
                .collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        scalar => Some(scalar.clone()),
    }
}
