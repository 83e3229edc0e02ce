//! Errors of clap as one sentence each: which flag, what is wrong, what to do. Entry: [`from_clap`].
//!
//! A bad value in the config file is reported with the file and the line, although clap only saw a
//! flag.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::file::Origins;
use crate::mistake::Mistake;

/// The sentence for an error of clap.
pub(super) fn from_clap(error: &clap::Error, origins: &Origins) -> Mistake {
    let flag = context(error, ContextKind::InvalidArg);
    // clap writes it as `--secure-port <PORT>`.
    let flag = flag.split(['=', ' ', '[']).next().unwrap_or_default();
    let name = flag.strip_prefix("--").map_or_else(|| flag.to_owned(), |key| origins.name(key));
    let value = context(error, ContextKind::InvalidValue);
    // clap does not tell which values came from the environment.
    let from_environment =
        flag == "--log-level" && std::env::var("MVP_LOG").is_ok_and(|it| it == value);
    let name = if from_environment { "MVP_LOG".to_owned() } else { name };
    match error.kind() {
        ErrorKind::ValueValidation => match error.source() {
            Some(reason) => Mistake::usage(name, reason),
            None => Mistake::usage(name, format!("{value:?} is not valid; see mvp --help")),
        },
        ErrorKind::InvalidValue if value.is_empty() => {
            Mistake::usage(name, format!("has no value; write {flag}=VALUE"))
        }
        ErrorKind::InvalidValue => {
            let valid = context(error, ContextKind::ValidValue);
            Mistake::usage(name, format!("{value:?} is not a valid value; use {valid}"))
        }
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            let suggested = context(error, ContextKind::SuggestedArg);
            let fix = match suggested.is_empty() {
                true => "see --help".to_owned(),
                false => format!("did you mean {suggested}?"),
            };
            Mistake::usage(name, format!("not a known flag; {fix}"))
        }
        ErrorKind::UnknownArgument => {
            Mistake::usage(name, "unexpected argument; give settings as --FLAG=VALUE")
        }
        ErrorKind::InvalidSubcommand => {
            let name = context(error, ContextKind::InvalidSubcommand);
            let suggested = context(error, ContextKind::SuggestedSubcommand);
            let fix = match suggested.is_empty() {
                true => "see mvp --help for all commands".to_owned(),
                false => format!("did you mean {suggested}?"),
            };
            Mistake::usage(name, format!("not a command of mvp; {fix}"))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = context(error, ContextKind::InvalidArg);
            Mistake::usage(missing, "is missing; see --help")
        }
        ErrorKind::ArgumentConflict => {
            let prior = context(error, ContextKind::PriorArg);
            match prior.split(['=', ' ', '[']).next() {
                Some(other) if !other.is_empty() && other != flag => {
                    Mistake::usage(name, format!("cannot be used with {other}; remove one of them"))
                }
                _ => Mistake::usage(name, "given twice; remove one of them"),
            }
        }
        ErrorKind::InvalidUtf8 => {
            Mistake::Usage("an argument is not UTF-8; only paths may be".to_owned())
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            Mistake::Usage(format!("{line}; see --help"))
        }
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" or "),
        _ => String::new(),
    }
}

/// The known word that is most like `word`, if one is near enough.
///
/// Dashes, underscores and case do not count: `peerCAFile` is `peer-ca-file`.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| -> Vec<char> {
        let letters = word.chars().filter(|character| character.is_alphanumeric());
        letters.flat_map(char::to_lowercase).take(64).collect()
    };
    let word = plain(word);
    known
        .map(|known| (distance(&word, &plain(known)), known))
        .filter(|(distance, known)| *distance * 3 <= known.len().min(word.len() + 2))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The Levenshtein distance: insertions, deletions and replacements.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, left) in from.iter().zip(1..) {
        let mut diagonal = left - 1;
        let mut before = left;
        for (cell, target) in row.iter_mut().skip(1).zip(to) {
            let replaced = diagonal + usize::from(above != target);
            diagonal = *cell;
            before = replaced.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            assert_eq!(distance(&letters(from), &letters(to)), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_similar_keys_are_suggested() {
        let known = ["peer", "peer-ca-file", "local-ca-file", "workers"];
        for (word, expected) in [
            ("peer-ca-fil", Some("peer-ca-file")),
            ("peerCAFile", Some("peer-ca-file")),
            ("peers", Some("peer")),
            ("loca_ca_file", Some("local-ca-file")),
            ("etcd-servers", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
        }
    }
}
