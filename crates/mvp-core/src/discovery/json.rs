//! JSON as text: checked once, then split and joined without losing unknown fields. All functions
//! work on compact text, so equal content has equal bytes.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use hashbrown::HashSet;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Limits, Problem};

/// Checks size, encoding and depth, and removes white space between tokens.
pub(crate) fn prepare(document: Bytes, limits: &Limits) -> Result<Bytes, Problem> {
    if document.len() > limits.max_bytes {
        return Err(Problem::TooLarge { bytes: document.len(), limit: limits.max_bytes });
    }
    let text = std::str::from_utf8(&document)
        .map_err(|error| Problem::NotUtf8 { offset: error.valid_up_to() })?;

    let scan = scan(text.as_bytes(), limits.max_depth)?;
    if scan.white_space == 0 {
        return Ok(document);
    }
    // Syntax errors must have the lines of the server's text, not those of the compact text.
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return Err(Problem::syntax(&error));
    }
    Ok(compact(text.as_bytes(), text.len() - scan.white_space))
}

struct Scan {
    white_space: usize,
}

fn scan(text: &[u8], max_depth: usize) -> Result<Scan, Problem> {
    let (mut depth, mut white_space) = (0usize, 0usize);
    let mut tokens = Tokens::default();
    for (offset, &byte) in text.iter().enumerate() {
        if tokens.within_string(byte) {
            continue;
        }
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > max_depth {
                    return Err(Problem::TooDeep { limit: max_depth, offset });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' | b'\t' | b'\r' | b'\n' => white_space += 1,
            _ => {}
        }
    }
    Ok(Scan { white_space })
}

fn compact(text: &[u8], length: usize) -> Bytes {
    let mut compacted = Vec::with_capacity(length);
    let mut tokens = Tokens::default();
    compacted.extend(text.iter().copied().filter(|&byte| {
        tokens.within_string(byte) || !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
    }));
    compacted.into()
}

/// Tells bytes inside strings from bytes between tokens.
#[derive(Default)]
struct Tokens {
    string: bool,
    escaped: bool,
}

impl Tokens {
    fn within_string(&mut self, byte: u8) -> bool {
        if !self.string {
            self.string = byte == b'"';
            return false;
        }
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.string = false;
        }
        true
    }
}

/// A JSON object: its fields in order, each value as text.
#[derive(Debug, Default)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Object<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Object<'a>, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    /// The elements of an array field; empty if it is absent or `null`.
    pub(crate) fn array(&self, key: &str) -> Result<Vec<&str>, serde_json::Error> {
        array(self.get(key).unwrap_or("null"))
    }

    /// The value of a string field; empty if it is absent or `null`.
    pub(crate) fn string(&self, key: &str) -> Result<Cow<'_, str>, serde_json::Error> {
        match self.get(key) {
            Some(text) => string(text),
            None => Ok(Cow::Borrowed("")),
        }
    }

    /// Sets a field in place, or appends it.
    pub(crate) fn set(&mut self, key: &'a str, value: String) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(key), Cow::Owned(value))),
        }
    }

    /// Adds the fields of `other` that are not in `known` and that this object lacks.
    pub(crate) fn adopt_unknown(&mut self, other: Object<'a>, known: &[&str]) {
        let mut present: HashSet<Cow<'a, str>> =
            self.0.iter().map(|(key, _)| key.clone()).collect();
        for (key, value) in other.0 {
            if !known.contains(&key.as_ref()) && present.insert(key.clone()) {
                self.0.push((key, value));
            }
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "{" } else { "," })?;
            write!(f, "{}:{value}", quoted(key))?;
        }
        f.write_str(if self.0.is_empty() { "{}" } else { "}" })
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut object = Object::default();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &RawValue>()? {
                    object.0.push((key, Cow::Borrowed(value.get())));
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The elements of an array; empty for `null`.
pub(crate) fn array(text: &str) -> Result<Vec<&str>, serde_json::Error> {
    let elements: Option<Vec<&RawValue>> = serde_json::from_str(text)?;
    Ok(elements.unwrap_or_default().into_iter().map(RawValue::get).collect())
}

/// A string; empty for `null`.
pub(crate) fn string(text: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    let string: Option<Key<'_>> = serde_json::from_str(text)?;
    Ok(string.map_or(Cow::Borrowed(""), |Key(string)| string))
}

/// A JSON array of elements that are JSON already.
pub(crate) fn joined<I: IntoIterator<Item = S>, S: AsRef<str>>(elements: I) -> String {
    let mut text = String::from("[");
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(element.as_ref());
    }
    text.push(']');
    text
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An array of strings as JSON.
pub(crate) fn quoted_list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    joined(texts.into_iter().map(quoted))
}
