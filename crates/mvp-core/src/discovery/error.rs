//! Errors of documents: the server, the document, the place in it and the problem.

use std::fmt;

use thiserror::Error;

/// An error in a document of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("server {server:?}: document {document}{}{location}: {problem}", if location.is_empty() { "" } else { " at " })]
pub struct DocumentError {
    /// The ID of the server that sent it.
    pub server: Box<str>,
    /// The path of the document.
    pub document: Box<str>,
    /// The place in the document, such as `items[3].versions[0]`; empty for the document as a whole.
    pub location: Box<str>,
    /// The problem at that place.
    pub problem: Problem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// The document is larger than the limit.
    #[error("it has {bytes} bytes, and the limit is {limit}")]
    TooLarge {
        /// The size of the document.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The text is not UTF-8.
    #[error("it is not UTF-8 from byte {offset} on")]
    NotUtf8 {
        /// The offset of the first invalid byte.
        offset: usize,
    },
    /// The nesting is deeper than the limit.
    #[error("it is nested deeper than {limit} levels at byte {offset}")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The offset at which it is exceeded.
        offset: usize,
    },
    /// The document is not JSON, or has another shape than expected.
    #[error("{0}")]
    Malformed(Box<str>),
    /// The document has another kind than the requested one.
    #[error("it is kind {kind:?} of apiVersion {api_version:?}, expected {expected}")]
    WrongKind {
        /// The `kind` of the document.
        kind: Box<str>,
        /// The `apiVersion` of the document.
        api_version: Box<str>,
        /// The requested kind.
        expected: &'static str,
    },
    /// An entry has no name.
    #[error("the {0} has no name; the entry is ignored")]
    MissingName(&'static str),
    /// The document of the core group lists a named group.
    #[error("the group {name:?} does not belong in the document of the core group; it is ignored")]
    Misplaced {
        /// The name.
        name: Box<str>,
    },
    /// A group has too many faults to repair each of them.
    #[error(
        "the group {group:?} lists more than {limit} entries twice or without a name; entries \
         without a name are ignored, and so are duplicates that differ beyond the first {limit}"
    )]
    TooManyFaults {
        /// The name of the group.
        group: Box<str>,
        /// The limit.
        limit: usize,
    },
    /// Two entries have the same name.
    #[error("the {what} {name:?} is listed twice; the entries are merged")]
    Duplicate {
        /// The kind of entry.
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
}

impl Problem {
    /// The whole text is not JSON: the error has the line and the column.
    pub(crate) fn syntax(error: &serde_json::Error) -> Problem {
        Problem::Malformed(error.to_string().into())
    }

    /// A piece has another shape than expected. [`DocumentError::location`] has the place; the line
    /// and the column within the piece would mislead.
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
