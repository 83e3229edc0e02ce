//! What the query of a list says: whether it is a watch, and whether it names one object.

use std::borrow::Cow;

use super::percent_decode;

/// Whether the query asks for a watch: `watch` is there, and its first value is not `0` or `false`.
pub(super) fn asks_watch(query: &str) -> bool {
    first(query, "watch").is_some_and(|value| value != "0" && !is_false(&value))
}

/// The one object that the field selector names, if it names one. As in kube-apiserver a list
/// option that cannot be read makes the selector count for nothing (a malformed label selector
/// excepted, which is not looked at: the name serves logs, never a decision).
pub(super) fn selected_name(query: &str) -> Option<String> {
    let selector = first(query, "fieldSelector")?;
    for number in ["limit", "timeoutSeconds"] {
        if let Some(value) = first(query, number) {
            value.parse::<i64>().ok()?;
        }
    }

    // kube-apiserver sorts the terms and takes the first that names an object.
    let mut named: Option<(&str, String)> = None;
    for term in split_terms(&selector) {
        let Some((field, negated, value)) = split_term(term)? else {
            continue;
        };
        let earlier = named.as_ref().is_none_or(|(first, _)| term < *first);
        if field == "metadata.name" && !negated && earlier {
            named = Some((term, value));
        }
    }
    let (_, name) = named?;
    let is_segment = name != "." && name != ".." && !name.contains(['/', '%']);
    (is_segment && !name.is_empty()).then_some(name)
}

/// In any case of its letters, by Unicode's rules, as Go compares.
fn is_false(value: &str) -> bool {
    value.eq_ignore_ascii_case("false") || (!value.is_ascii() && value.to_uppercase() == "FALSE")
}

/// Go passes over a query with more parameters than this.
const MAX_PARAMETERS: usize = 10_000;

/// The first value of a key. As in Go, a pair with a `;` or a broken escape is passed over.
fn first<'q>(query: &'q str, wanted: &str) -> Option<Cow<'q, str>> {
    if query.bytes().filter(|byte| *byte == b'&').count() >= MAX_PARAMETERS {
        return None;
    }
    query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if percent_decode(key, true)? != wanted {
            return None;
        }
        percent_decode(value, true)
    })
}

/// Splits a field selector at the commas that no backslash escapes.
fn split_terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    selector.split(move |character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
}

/// Field, whether negated, and value of one term; `Some(None)` for an empty one, `None` for one
/// that cannot be read.
fn split_term(term: &str) -> Option<Option<(&str, bool, String)>> {
    if term.is_empty() {
        return Some(None);
    }
    let at = term.char_indices().find_map(|(index, character)| match character {
        '=' => Some(index),
        '!' if term[index..].starts_with("!=") => Some(index),
        _ => None,
    })?;
    let (field, rest) = term.split_at(at);
    let (negated, value) = match rest.strip_prefix("!=") {
        Some(value) => (true, value),
        None => (false, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?),
    };
    Some(Some((field, negated, unescape(value)?)))
}

/// Undoes the escapes `\\`, `\,` and `\=`; any other, or a bare `,` or `=`, cannot be read.
fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                escaped @ ('\\' | ',' | '=') => plain.push(escaped),
                _ => return None,
            },
            ',' | '=' => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}
