//! The config file: the flags of `mvp serve` as keys of a YAML mapping.
//!
//! [`ConfigFile::read`] keeps values as text with their line numbers, so that `007` stays `007`.
//! [`ConfigFile::arguments`] turns the keys that the command line does not set into flags for clap.
//! [`Origins`] remembers the lines for error messages.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

use super::like::TakenOver;
use super::sentence::nearest;
use crate::files;
use crate::mistake::Mistake;

/// The keys and values of a config file, not yet checked.
#[derive(Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    line: usize,
    value: Value,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Nothing,
    One(String),
    Many(Vec<String>),
}

impl ConfigFile {
    /// Reads and parses the file.
    pub(super) fn read(path: &Path) -> Result<Self, Mistake> {
        let bytes = files::read(path).map_err(|what| Mistake::trouble("--config", what))?;
        Self::parse(path, bytes)
    }

    /// Parses the contents of the file.
    pub(super) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, Mistake> {
        let text = String::from_utf8(bytes).map_err(|_| {
            let shown = path.display();
            Mistake::trouble("--config", format!("{shown} is not text; give a YAML file in UTF-8"))
        })?;
        let entries =
            entries(&text).map_err(|(line, what)| Mistake::usage(at_line(path, line), what))?;
        Ok(Self { path: path.to_owned(), entries })
    }

    /// The flags to add to the command line, and the keys that they came from.
    ///
    /// `serve` defines the keys; `given` are the flags of the command line and the environment.
    pub(super) fn arguments(
        &self,
        serve: &Command,
        given: &ArgMatches,
    ) -> Result<(Vec<OsString>, Origins), Mistake> {
        let mut arguments = Vec::new();
        let mut lines = BTreeMap::new();
        for Entry { key, line, value } in &self.entries {
            let wrong = |what: String| Mistake::usage(at_line(&self.path, *line), what);
            let argument = find(serve, key).ok_or_else(|| wrong(unknown(serve, key)))?;
            let values = match value {
                Value::Nothing => {
                    return Err(wrong(format!("{key} has no value; give one or remove the key")));
                }
                Value::One(value) => std::slice::from_ref(value),
                Value::Many(values) if matches!(argument.get_action(), ArgAction::Append) => values,
                Value::Many(_) => {
                    return Err(wrong(format!("{key} takes one value; do not give a list")));
                }
            };
            let name = argument.get_long().unwrap_or(key);
            if let Some(earlier) = lines.insert(name.to_owned(), *line) {
                let what = format!("{key} is already set in line {earlier}; remove one of them");
                return Err(wrong(what));
            }
            let elsewhere = given.value_source(argument.get_id().as_str());
            if !matches!(elsewhere, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
                arguments.extend(values.iter().map(|value| format!("--{name}={value}").into()));
            }
        }
        lines.retain(|name, _| {
            let flag = format!("--{name}=");
            arguments
                .iter()
                .any(|argument: &OsString| argument.as_encoded_bytes().starts_with(flag.as_bytes()))
        });
        Ok((arguments, Origins { path: self.path.clone(), lines, like: None }))
    }
}

/// The lines of the config file that settings came from, and those that `--like` took over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    path: PathBuf,
    lines: BTreeMap<String, usize>,
    like: Option<Arc<TakenOver>>,
}

impl Origins {
    /// The name of a setting for error messages: `--key`, the line of the file and the key, or the flag
    /// of kube-apiserver.
    pub(crate) fn name(&self, key: &str) -> String {
        match self.lines.get(key) {
            Some(line) => format!("{}: {key}", at_line(&self.path, *line)),
            None => {
                let like = self.like.as_ref().and_then(|like| like.name(key));
                like.unwrap_or_else(|| format!("--{key}"))
            }
        }
    }

    /// What `--like` took over.
    pub(crate) fn like(&self) -> Option<&TakenOver> {
        self.like.as_deref()
    }

    /// The same with what `--like` took over.
    pub(super) fn with_like(self, like: TakenOver) -> Origins {
        Origins { like: Some(Arc::new(like)), ..self }
    }
}

fn at_line(path: &Path, line: usize) -> String {
    format!("{} line {line}", path.display())
}

fn find<'a>(serve: &'a Command, key: &str) -> Option<&'a Arg> {
    keys(serve).find(|argument| {
        argument.get_long() == Some(key)
            || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&key))
    })
}

fn keys(serve: &Command) -> impl Iterator<Item = &Arg> {
    let not_keys = |argument: &&Arg| !matches!(argument.get_id().as_str(), "config" | "help");
    serve.get_arguments().filter(not_keys)
}

fn unknown(serve: &Command, key: &str) -> String {
    match nearest(key, keys(serve).filter_map(Arg::get_long)) {
        Some(known) => format!("{key:?} is not a known key; did you mean {known}?"),
        None => format!("{key:?} is not a known key; see mvp serve --help: each flag is a key"),
    }
}

/// The entries of the one mapping in the text, or the line of an error and what is wrong there.
fn entries(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    const SHAPE: &str = "write lines of key: value, where a value may be a list";
    let mut entries = Vec::new();
    let mut depth = 0_usize;
    let mut documents = 0_usize;
    let mut open: Option<Entry> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            (error.marker().line(), format!("not valid YAML ({}); correct it", error.info()))
        })?;
        let line = span.start.line();
        match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents > 1 {
                    return Err((line, format!("a second document starts here; {SHAPE}")));
                }
            }
            Event::MappingStart(..) if depth == 0 => depth = 1,
            Event::MappingEnd => depth = 0,
            Event::SequenceStart(..) if depth == 1 && open.is_some() => {
                depth = 2;
                if let Some(entry) = &mut open {
                    entry.value = Value::Many(Vec::new());
                }
            }
            Event::SequenceEnd => {
                depth = 1;
                entries.extend(open.take());
            }
            Event::Scalar(text, style, ..) => {
                let empty = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let text = text.into_owned();
                match &mut open {
                    None if depth == 1 => {
                        open = Some(Entry { key: text, line, value: Value::Nothing });
                    }
                    // The file has only comments.
                    None if empty => {}
                    None => return Err((line, format!("no key here; {SHAPE}"))),
                    Some(entry) => match &mut entry.value {
                        Value::Many(values) if !empty => values.push(text),
                        Value::Many(_) => {
                            let key = &entry.key;
                            return Err((line, format!("an item of {key} is empty; remove it")));
                        }
                        _ => {
                            if !empty {
                                entry.value = Value::One(text);
                            }
                            entries.extend(open.take());
                        }
                    },
                }
            }
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                return Err((line, format!("nested too deep; {SHAPE}")));
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err((line, "aliases are not supported; repeat the value".to_owned()));
            }
            _ => {}
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_lists_keep_their_text() {
        let text = "# a comment\nsecure-port: 007\npeer: # more\n  - a=https://a:1\n  - 'b'\nx: \"\"\ny: []\nz:\n";
        let entry = |key: &str, line, value| Entry { key: key.to_owned(), line, value };
        assert_eq!(
            entries(text).unwrap(),
            [
                entry("secure-port", 2, Value::One("007".into())),
                entry("peer", 3, Value::Many(vec!["a=https://a:1".into(), "b".into()])),
                entry("x", 6, Value::One(String::new())),
                entry("y", 7, Value::Many(Vec::new())),
                entry("z", 8, Value::Nothing),
            ]
        );
        for nothing in ["", "# only this\n", "---\n", "{}"] {
            assert_eq!(entries(nothing).unwrap(), [], "{nothing:?}");
        }
    }

    #[test]
    fn errors_of_other_shapes_name_the_line() {
        for (text, line, what) in [
            ("a: 1\nb: {c: 1}\n", 2, "nested too deep"),
            ("- a\n", 1, "nested too deep"),
            ("a:\n  - - b\n", 2, "nested too deep"),
            ("? [a]\n: b\n", 1, "nested too deep"),
            ("text\n", 1, "no key here"),
            ("a: 1\n---\nb: 1\n", 2, "a second document"),
            ("a: &x 1\nb: *x\n", 2, "aliases are not supported"),
            ("a:\n  - b\n  -\n", 3, "an item of a is empty"),
            ("a: 1\nb: ]\n", 2, "not valid YAML"),
            ("a: 1\nb: c: d\n", 2, "not valid YAML"),
        ] {
            let (at, error) = entries(text).unwrap_err();
            assert!(error.starts_with(what), "{text:?}: {error}");
            assert_eq!(at, line, "{text:?}: {error}");
        }
    }
}
