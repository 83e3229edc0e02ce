//! JSON patch (RFC 6902), with the habits of the library that real servers use. Entries:
//! [`decode`], [`apply`].

use serde::Deserialize;
use serde_json::Value;

use super::Misfit;

/// The number of operations that a patch may have, as in real servers.
pub(crate) const MOST_OPERATIONS: usize = 10_000;
/// The bytes that the copies of a patch may add, as in real servers.
const MOST_COPIED: usize = 3 << 20;
/// The deepest place of a value: no deeper than the parser of a body allows.
const DEEPEST: usize = 128;

/// An operation. Every field may be absent: the operation fails when it is executed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    #[serde(default)]
    value: Value,
}

/// Parses a patch.
pub(crate) fn decode(body: &[u8]) -> Result<Vec<Operation>, Misfit> {
    let operations: Vec<Operation> = serde_json::from_slice(body)
        .map_err(|error| Misfit::BadRequest(format!("error decoding patch: {error}")))?;
    match operations.len() {
        count if count > MOST_OPERATIONS => Err(Misfit::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {count}"
        ))),
        _ => Ok(operations),
    }
}

/// Applies the operations in order. After an error the document is in between.
pub(crate) fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), Misfit> {
    let mut copied = 0;
    for operation in operations {
        execute(document, operation, &mut copied).ok_or(Misfit::Unprocessable)?;
    }
    Ok(())
}

/// `None` if the operation does not fit the document. Real servers do not tell callers why.
fn execute(document: &mut Value, operation: &Operation, copied: &mut usize) -> Option<()> {
    let path = operation.path.as_deref();
    match operation.op.as_deref()? {
        "add" => add(document, path?, operation.value.clone()),
        "remove" => remove(document, path?).map(drop),
        "replace" => replace(document, path?, &operation.value),
        "move" => {
            let value = remove(document, operation.from.as_deref()?)?;
            add(document, path?, value)
        }
        "copy" => {
            let value = get(document, operation.from.as_deref()?)?.cloned().unwrap_or_default();
            *copied += serde_json::to_vec(&value).map_or(usize::MAX / 2, |bytes| bytes.len());
            (*copied <= MOST_COPIED).then_some(())?;
            add(document, path?, value)
        }
        "test" => {
            let actual = match path? {
                "" => Some(&*document),
                path => get(document, path)?,
            };
            // An absent field equals null.
            (actual.unwrap_or(&Value::Null) == &operation.value).then_some(())
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    check_depth(path, &value)?;
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => drop(fields.insert(key, value)),
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let place = place(&key, list.len() + 1)?;
            list.insert(place, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&key),
        Value::Array(list) => {
            let place = place(&key, list.len())?;
            Some(list.remove(place))
        }
        _ => None,
    }
}

/// Unlike RFC 6902, the field of an object need not exist.
fn replace(document: &mut Value, path: &str, value: &Value) -> Option<()> {
    if path.is_empty() {
        (value.is_object() || value.is_array()).then(|| *document = value.clone())?;
        return Some(());
    }
    check_depth(path, value)?;
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => drop(fields.insert(key, value.clone())),
        Value::Array(list) => {
            let place = place(&key, list.len())?;
            *list.get_mut(place)? = value.clone();
        }
        _ => return None,
    }
    Some(())
}

/// The value at a path: `Some(None)` for an absent field of an object.
fn get<'a>(document: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => Some(fields.get(&key)),
        Value::Array(list) => Some(list.get(place(&key, list.len())?)),
        _ => None,
    }
}

/// The container of a path's last step, and that step. What is before the first slash is ignored.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps = path.split('/').skip(1).map(unescape);
    let mut key = steps.next()?;
    let mut here = document;
    for next in steps {
        here = match here {
            Value::Object(fields) => fields.get_mut(&key)?,
            Value::Array(list) => {
                let place = place(&key, list.len())?;
                list.get_mut(place)?
            }
            _ => return None,
        };
        key = next;
    }
    Some((here, key))
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// An index of a list with `places` places. Negative ones count from the end.
fn place(key: &str, places: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let places = i64::try_from(places).ok()?;
    let index = if index < 0 { index.checked_add(places)? } else { index };
    usize::try_from(index).ok().filter(|_| index < places)
}

/// Bounds the depth of a document: recursive code must not run out of stack.
fn check_depth(path: &str, value: &Value) -> Option<()> {
    (path.split('/').count() + depth(value) <= DEEPEST).then_some(())
}

fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Object(fields) => fields.values().map(depth).max(),
        Value::Array(list) => list.iter().map(depth).max(),
        _ => return 0,
    };
    deepest.unwrap_or_default() + 1
}
