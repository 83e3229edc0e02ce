//! Strategic merge patch: a merge patch that merges lists by the keys that the schema declares.
//! Entry: [`apply`].
//!
//! The directives of a patch: `$patch` in a map or an element of a list, `$retainKeys` in a map, and
//! next to a list `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`. Lists are merged in
//! [`list`], and put in order in [`order`].

mod list;
mod order;

use std::collections::HashSet;

use serde_json::Value;

use self::list::ListPatch;
use super::Misfit;
use super::go::{Kind, print};
use crate::schema::{PatchStrategy, Schema};
use crate::storage::Fields;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges a patch into an object of this schema. After an error the object is in between.
pub(crate) fn apply(
    original: &mut Fields,
    patch: Fields,
    schema: Schema<'_>,
) -> Result<(), Misfit> {
    merge_map(original, patch, Some(schema))
}

/// Merges a map. Without a schema, as in maps of scalars, lists are replaced.
fn merge_map(
    original: &mut Fields,
    mut patch: Fields,
    schema: Option<Schema<'_>>,
) -> Result<(), Misfit> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                *original = patch;
            }
            Some("delete") => original.clear(),
            _ => return Err(unknown_directive(&patch)),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    set_orders(original, &mut patch, schema)?;
    patch.into_iter().try_for_each(|(key, value)| merge_field(original, key, value, schema))
}

/// Merges one field of a map.
fn merge_field(
    original: &mut Fields,
    key: String,
    patch: Value,
    schema: Option<Schema<'_>>,
) -> Result<(), Misfit> {
    let deletes = key.starts_with(DELETE_FROM);
    let key = match deletes {
        true => list_of(&key, DELETE_FROM, "invalid patch format of primitive list")?,
        false => key,
    };
    if patch.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let field = schema.and_then(|schema| schema.field(&key));
    let strategy = field.map(|field| field.patch_strategy()).unwrap_or_default();
    match (original.get_mut(&key), patch) {
        (Some(Value::Object(original)), Value::Object(patch)) => match strategy.replace {
            true => *original = patch,
            false => merge_map(original, patch, field)?,
        },
        (Some(Value::Array(original)), Value::Array(patch)) => {
            let items = field.and_then(|field| field.items());
            let patch = ListPatch { elements: patch, deletes, strategy, items };
            *original = patch.merge(std::mem::take(original))?;
        }
        (Some(original), patch) if Kind::of(original) == Kind::of(&patch) => *original = patch,
        // Nothing to delete from.
        _ if deletes => {}
        (_, mut patch) => {
            discard_nulls(&mut patch);
            match without_directives(patch) {
                Some(value) => drop(original.insert(key, value)),
                None => drop(original.remove(&key)),
            }
        }
    }
    Ok(())
}

/// Removes the fields that `$retainKeys` does not name.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), Misfit> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || Misfit::BadRequest("invalid patch format of retainKeys".to_owned());
    let Value::Array(names) = directive else { return Err(malformed()) };
    let names: HashSet<&str> = names.iter().filter_map(Value::as_str).collect();
    let is_exempt = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    let fits = |(key, value): (&String, &Value)| {
        value.is_null() || is_exempt(key) || names.contains(key.as_str())
    };
    if !patch.iter().all(fits) {
        return Err(malformed());
    }
    original.retain(|key, _| names.contains(key.as_str()));
    Ok(())
}

/// Merges the lists that have a `$setElementOrder`, and takes them from the patch.
fn set_orders(
    original: &mut Fields,
    patch: &mut Fields,
    schema: Option<Schema<'_>>,
) -> Result<(), Misfit> {
    let keys = patch.keys().filter(|key| key.starts_with(SET_ORDER));
    for directive in keys.cloned().collect::<Vec<_>>() {
        let wanted = as_list(patch.remove(&directive).unwrap_or_default())?;
        let key = list_of(&directive, SET_ORDER, "invalid patch format of setElementOrder list")?;
        let current = original.get(&key).cloned().map(as_list).transpose()?;
        let sent = patch.get(&key).cloned().map(as_list).transpose()?;
        let Some(field) = schema.and_then(|schema| schema.field(&key)) else {
            let message =
                format!("unable to find api field in struct for the json field \"{key}\"");
            return Err(Misfit::Internal(message));
        };
        let strategy = field.patch_strategy();
        order::check(sent.as_deref().unwrap_or_default(), &wanted, strategy.merge_key)?;
        let merged = match (&current, &sent) {
            (None, None) => continue,
            (Some(current), None) => current.clone(),
            (None, Some(sent)) => sent.iter().cloned().filter_map(without_directives).collect(),
            (Some(current), Some(sent)) => {
                let items = field.items();
                let patch = ListPatch { elements: sent.clone(), deletes: false, strategy, items };
                patch.merge(current.clone())?
            }
        };
        let (current, sent) = (current.unwrap_or_default(), sent.unwrap_or_default());
        list::element_kind(&current, &sent)?;
        let ordered = order::arrange(merged, &wanted, &current, strategy.merge_key)?;
        original.insert(key.clone(), Value::Array(ordered));
        patch.remove(&key);
    }
    Ok(())
}

/// The name of the list that a directive is for.
fn list_of(directive: &str, prefix: &str, message: &str) -> Result<String, Misfit> {
    let name = directive.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    name.map(str::to_owned).ok_or_else(|| Misfit::BadRequest(message.to_owned()))
}

fn as_list(value: Value) -> Result<Vec<Value>, Misfit> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(wrong_type(Kind::List, &other)),
    }
}

/// A value that is new to the object: `None` if it is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = |(key, value)| Some((key, without_directives(value)?));
            Some(Value::Object(fields.into_iter().filter_map(kept).collect()))
        }
        Value::Array(list) => {
            Some(Value::Array(list.into_iter().filter_map(without_directives).collect()))
        }
        scalar => Some(scalar),
    }
}

/// Removes the fields of maps that are null.
pub(super) fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn unknown_directive(patch: &Fields) -> Misfit {
    let directive = print(patch.get(DIRECTIVE).unwrap_or(&Value::Null));
    let map = print(&Value::Object(patch.clone()));
    Misfit::Internal(format!("unknown patch type: {directive} in map: {map}"))
}

fn no_merge_key(element: &Value, key: &str) -> Misfit {
    let map = print(element);
    Misfit::Internal(format!("map: {map} does not contain declared merge key: {key}"))
}

fn wrong_type(expected: Kind, actual: &Value) -> Misfit {
    let (expected, actual) = (expected.name(), Kind::of(actual).name());
    Misfit::Internal(format!("expected a {expected}, but received a {actual}"))
}
