//! The query of a list: whether it makes the list a watch, and whether it names one object.

use std::borrow::Cow;

use super::text::{Parts, percent_decode};

/// Whether a query with this byte needs decoding.
pub(super) fn is_special(byte: u8) -> bool {
    (byte == b'%') | (byte == b'+') | (byte == b';')
}

/// Whether a value of `watch` asks for a watch.
pub(super) fn asks_watch(value: &str) -> bool {
    value != "0" && !is_false(value)
}

/// The name of the one object that the field selector selects, if it selects one. As in
/// kube-apiserver, a malformed list option disables the selector. A malformed label selector does
/// not, because it is not parsed: the name is for logs only, never for a decision.
pub(super) fn selected_name(query: &str, odd: bool, selector: &str) -> Option<String> {
    for value in first(query, odd, ["limit", "timeoutSeconds"]).into_iter().flatten() {
        value.parse::<i64>().ok()?;
    }

    // kube-apiserver sorts the terms and takes the first that names an object.
    let mut named: Option<(&str, String)> = None;
    for term in split_terms(selector) {
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

/// Whether the value is `false` in any case, by Unicode's rules, as Go compares.
fn is_false(value: &str) -> bool {
    value.eq_ignore_ascii_case("false") || (!value.is_ascii() && value.to_uppercase() == "FALSE")
}

/// Go ignores a query with more parameters than this.
const MAX_PARAMETERS: usize = 10_000;

/// The first value of each key. As in Go, a pair with a `;` or a malformed escape is ignored.
pub(super) fn first<'q, const N: usize>(
    query: &'q str,
    odd: bool,
    wanted: [&str; N],
) -> [Option<Cow<'q, str>>; N] {
    let mut found = [const { None }; N];
    let too_many = || query.bytes().filter(|byte| *byte == b'&').count() >= MAX_PARAMETERS;
    if query.is_empty() || (query.len() >= MAX_PARAMETERS && too_many()) {
        return found;
    }
    for pair in Parts::new(query, b'&') {
        for (wanted, found) in wanted.iter().zip(&mut found) {
            let may_be = odd || pair.as_bytes().first() == wanted.as_bytes().first();
            if may_be && found.is_none() {
                *found = if odd { decoded_value(pair, wanted) } else { plain_value(pair, wanted) };
            }
        }
    }
    found
}

fn plain_value<'q>(pair: &'q str, wanted: &str) -> Option<Cow<'q, str>> {
    let rest = pair.strip_prefix(wanted)?;
    let value = if rest.is_empty() { rest } else { rest.strip_prefix('=')? };
    Some(Cow::Borrowed(value))
}

fn decoded_value<'q>(pair: &'q str, wanted: &str) -> Option<Cow<'q, str>> {
    if pair.contains(';') {
        return None;
    }
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if percent_decode(key, true)? != wanted {
        return None;
    }
    percent_decode(value, true)
}

/// Splits a field selector at its unescaped commas.
fn split_terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    selector.split(move |character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
}

/// The field of a term, whether it is negated, and its value; `Some(None)` for an empty term, `None`
/// for a malformed one.
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

/// Decodes the escapes `\\`, `\,` and `\=`; `None` for any other, and for a bare `,` or `=`.
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
