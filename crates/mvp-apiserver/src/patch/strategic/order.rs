//! The order of a merged list: elements of the patch in the order of the patch, the others where they
//! were. Entries: [`check`], [`arrange`].

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::super::go::{Kind, print_list};
use super::{DIRECTIVE, Misfit, SET_ORDER, no_merge_key, wrong_type};

/// Checks that the elements of a patch are among those of a `$setElementOrder`, in the same order.
pub(super) fn check(elements: &[Value], wanted: &[Value], key: &str) -> Result<(), Misfit> {
    if elements.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut rest = wanted.iter();
    for element in elements {
        if !key.is_empty() && !element.is_object() {
            return Err(wrong_type(Kind::Map, element));
        }
        if element.get(DIRECTIVE).is_some() {
            continue;
        }
        let name = identity(element, key)?;
        loop {
            let Some(next) = rest.next() else {
                let (elements, wanted) = (print_list(elements), print_list(wanted));
                return Err(Misfit::Internal(format!(
                    "The order in patch list:\n{elements}\n doesn't match {SET_ORDER} \
                     list:\n{wanted}\n"
                )));
            };
            if identity(next, key)? == name {
                break;
            }
        }
    }
    Ok(())
}

/// Sorts a list. Elements of `wanted` get its order. Each other element stays before the first of
/// those that follows it in the original.
pub(super) fn arrange(
    list: Vec<Value>,
    wanted: &[Value],
    original: &[Value],
    key: &str,
) -> Result<Vec<Value>, Misfit> {
    let (wanted, original) = (places(wanted, key)?, places(original, key)?);
    let (mut sent, mut others) = (Vec::new(), Vec::new());
    for element in list {
        let name = identity(&element, key)?;
        let before = original.get(&name).copied();
        match wanted.get(&name) {
            Some(place) => sent.push((*place, before, element)),
            None => others.push((before.unwrap_or(usize::MAX), before, element)),
        }
    }
    sent.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, ..)| *place);

    let mut others = VecDeque::from(others);
    let mut arranged = Vec::with_capacity(sent.len() + others.len());
    for (_, before, element) in sent {
        while let (Some(end), Some((_, Some(place), _))) = (before, others.front())
            && *place < end
        {
            arranged.extend(others.pop_front().map(|(.., element)| element));
        }
        arranged.push(element);
    }
    arranged.extend(others.into_iter().map(|(.., element)| element));
    Ok(arranged)
}

/// The first place of each element.
fn places(list: &[Value], key: &str) -> Result<HashMap<String, usize>, Misfit> {
    let mut places = HashMap::new();
    for (place, element) in list.iter().enumerate() {
        places.entry(identity(element, key)?).or_insert(place);
    }
    Ok(places)
}

/// The value of the merge key; the value itself in a list of scalars.
fn identity(element: &Value, key: &str) -> Result<String, Misfit> {
    if key.is_empty() {
        return Ok(element.to_string());
    }
    match element {
        Value::Object(fields) => {
            let value = fields.get(key).ok_or_else(|| no_merge_key(element, key))?;
            Ok(value.to_string())
        }
        other => Err(wrong_type(Kind::Map, other)),
    }
}
