//! A finished span, as an exporter gets it. Entry item: [`Span`].

use std::borrow::Cow;

/// The longest text of an attribute, in bytes. Clients write paths and user agents.
const MAX_TEXT: usize = 1024;

/// A finished span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The ID of the trace.
    pub trace_id: [u8; 16],
    /// The ID of the span.
    pub span_id: [u8; 8],
    /// The span that caused it; `None` for the first one of a trace.
    pub parent: Option<[u8; 8]>,
    /// Whether that span is of another process.
    pub parent_is_remote: bool,
    /// The value of `tracestate`.
    pub state: Option<String>,
    /// The name, of which there are few.
    pub name: Cow<'static, str>,
    /// Its place between processes.
    pub kind: Kind,
    /// The start, in nanoseconds since 1970.
    pub start: u64,
    /// The end, in nanoseconds since 1970.
    pub end: u64,
    /// The attributes, by OpenTelemetry's names where it has them.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it failed.
    pub failed: bool,
}

/// The place of a span between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A step inside this process.
    Internal,
    /// A request that this process serves.
    Server,
    /// A request that this process sends.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Cow::Owned(text))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Value {
        Value::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

/// At most [`MAX_TEXT`] bytes of a text.
pub(super) fn bounded(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        let long = format!("{}é", "x".repeat(MAX_TEXT - 1));
        assert_eq!(bounded(&long), "x".repeat(MAX_TEXT - 1));
        assert_eq!(bounded(&long[1..]).len(), MAX_TEXT);
    }
}
