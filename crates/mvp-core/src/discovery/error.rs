//! What can be wrong with a document, said so that the reader knows whom to ask and where to look.

use std::fmt;

use thiserror::Error;

/// Something is wrong with a document of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("server {server:?}: document {document}{}{location}: {problem}", if location.is_empty() { "" } else { " at " })]
pub struct DocumentError {
    /// The ID of the server that sent it.
    pub server: Box<str>,
    /// The path it was asked by.
    pub document: Box<str>,
    /// Where in the document, such as `items[3].versions[0]`; empty for the document as a whole.
    pub location: Box<str>,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// More than we are willing to keep.
    #[error("it has {bytes} bytes, and the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The most that we take.
        limit: usize,
    },
    /// Text in an unknown encoding.
    #[error("it is not UTF-8 from byte {offset} on")]
    NotUtf8 {
        /// The first byte that is not.
        offset: usize,
    },
    /// Nested beyond reason.
    #[error("it is nested deeper than {limit} levels at byte {offset}")]
    TooDeep {
        /// The deepest level that we follow.
        limit: usize,
        /// Where that is passed.
        offset: usize,
    },
    /// Not JSON, or JSON of another shape.
    #[error("{0}")]
    Malformed(Box<str>),
    /// A document of another kind than the one that was asked for.
    #[error("it is kind {kind:?} of apiVersion {api_version:?}, expected {expected}")]
    WrongKind {
        /// The kind that it names.
        kind: Box<str>,
        /// The apiVersion that it names.
        api_version: Box<str>,
        /// What was asked for.
        expected: &'static str,
    },
    /// An entry that cannot be asked for.
    #[error("the {0} has no name; it was left out")]
    MissingName(&'static str),
    /// A named group in the document of the core group.
    #[error(
        "the group {name:?} does not belong into the document of the core group; it was left out"
    )]
    Misplaced {
        /// Its name.
        name: Box<str>,
    },
    /// Too much is wrong to be mended.
    #[error("it lists more than {limit} entries twice or without a name")]
    TooManyFaults {
        /// The most that is mended.
        limit: usize,
    },
    /// Two entries of one name.
    #[error("the {what} {name:?} is listed twice; the entries were united")]
    Duplicate {
        /// What kind of entry.
        what: &'static str,
        /// Its name.
        name: Box<str>,
    },
}

impl Problem {
    /// The whole text is not JSON: its own lines and columns say where.
    pub(crate) fn syntax(error: &serde_json::Error) -> Problem {
        Problem::Malformed(error.to_string().into())
    }

    /// A piece has another shape than expected: the location says where, so that line and column
    /// within the piece would only mislead.
    pub(crate) fn shape(error: &serde_json::Error) -> Problem {
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        Problem::Malformed(text.get(..end).unwrap_or(&text).into())
    }
}

/// A place in a document: `items[3].versions[0].resources[7]`. The default is the document itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Location {
    /// Index of the group.
    pub(crate) group: Option<usize>,
    /// Index of the version in the group.
    pub(crate) version: Option<usize>,
    /// Index of the resource in the version.
    pub(crate) resource: Option<usize>,
    /// Index of the subresource in the resource.
    pub(crate) subresource: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [
            ("items", self.group),
            (".versions", self.version),
            (".resources", self.resource),
            (".subresources", self.subresource),
        ];
        for (step, index) in steps {
            let Some(index) = index else { break };
            write!(f, "{step}[{index}]")?;
        }
        Ok(())
    }
}
