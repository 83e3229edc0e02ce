//! Merges lists. Entry: [`ListPatch::merge`].

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::go::{Kind, print_list};
use super::{DIRECTIVE, Misfit, PatchStrategy, merge_map, no_merge_key, order, unknown_directive};
use crate::schema::Schema;
use crate::storage::Fields;

/// The change of a list.
pub(super) struct ListPatch<'a> {
    pub(super) elements: Vec<Value>,
    /// The elements are deleted, not added.
    pub(super) deletes: bool,
    pub(super) strategy: PatchStrategy<'a>,
    pub(super) items: Option<Schema<'a>>,
}

impl ListPatch<'_> {
    /// The list after the change. Elements of the patch get the order of the patch.
    pub(super) fn merge(self, original: Vec<Value>) -> Result<Vec<Value>, Misfit> {
        if !self.strategy.merge && !self.deletes {
            return Ok(self.elements);
        }
        if original.is_empty() && self.elements.is_empty() {
            return Ok(original);
        }
        let key = self.strategy.merge_key;
        match element_kind(&original, &self.elements)? {
            Kind::Map if key.is_empty() => {
                Err(Misfit::Internal("cannot merge lists without merge key for struct".to_owned()))
            }
            Kind::Map => {
                let (original, elements) = execute_directives(original, self.elements, key)?;
                let merged = merge_maps(original.clone(), &elements, key, self.items)?;
                order::arrange(merged, &elements, &original, key)
            }
            _ if self.deletes => {
                let deleted: HashSet<String> = self.elements.iter().map(Value::to_string).collect();
                let stays = |value: &Value| !deleted.contains(&value.to_string());
                Ok(original.into_iter().filter(stays).collect())
            }
            _ => {
                let mut seen = HashSet::new();
                let all = original.iter().chain(&self.elements).cloned();
                let merged = all.filter(|value| seen.insert(value.to_string())).collect();
                order::arrange(merged, &self.elements, &original, key)
            }
        }
    }
}

/// The one kind of the elements of two lists.
pub(super) fn element_kind(original: &[Value], patch: &[Value]) -> Result<Kind, Misfit> {
    let mut kinds = original.iter().chain(patch).map(Kind::of);
    let Some(kind) = kinds.next() else {
        return Err(Misfit::Internal("no elements in any of the given slices".to_owned()));
    };
    if kind == Kind::List {
        return Err(Misfit::Unprocessable);
    }
    if kind == Kind::Null || kinds.any(|other| other != kind) {
        let (original, patch) = (print_list(original), print_list(patch));
        return Err(Misfit::Internal(format!(
            "list element types are not identical: [{original} {patch}]"
        )));
    }
    Ok(kind)
}

/// Executes the elements with a `$patch`. Returns the rest of both lists.
fn execute_directives(
    mut original: Vec<Value>,
    elements: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Misfit> {
    let (mut plain, mut deleted, mut replace) = (Vec::new(), HashSet::new(), false);
    for element in elements {
        let Some(directive) = element.get(DIRECTIVE) else {
            plain.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = element.get(key).ok_or_else(|| no_merge_key(&element, key))?;
                deleted.insert(value.to_string());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(Misfit::Internal(message.to_owned()));
            }
            _ => return Err(unknown_directive(element.as_object().unwrap_or(&Fields::new()))),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    if !deleted.is_empty() {
        let named = |element: &Value| element.get(key).map(Value::to_string);
        original.retain(|element| named(element).is_none_or(|name| !deleted.contains(&name)));
    }
    Ok((original, plain))
}

/// Merges each element of the patch into the first element with its key, or appends it.
fn merge_maps(
    mut merged: Vec<Value>,
    elements: &[Value],
    key: &str,
    items: Option<Schema<'_>>,
) -> Result<Vec<Value>, Misfit> {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, element) in merged.iter().enumerate() {
        if let Some(name) = element.get(key) {
            places.entry(name.to_string()).or_insert(place);
        }
    }
    for element in elements {
        let name = element.get(key).ok_or_else(|| no_merge_key(element, key))?.to_string();
        let found = places.get(&name).and_then(|place| merged.get_mut(*place));
        match (found, element) {
            (Some(Value::Object(original)), Value::Object(patch)) => {
                merge_map(original, patch.clone(), items)?;
            }
            _ => {
                places.insert(name, merged.len());
                merged.push(element.clone());
            }
        }
    }
    Ok(merged)
}
