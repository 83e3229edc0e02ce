//! Warnings in the headers of a response. Entry: [`Warnings`].

use std::cell::RefCell;

use http::Response;
use http::header::{HeaderName, HeaderValue};

/// The warnings of one request.
#[derive(Debug, Default)]
pub(crate) struct Warnings(RefCell<Vec<String>>);

/// The most warnings of a response.
const MOST: usize = 32;

impl Warnings {
    /// Adds a warning.
    pub(crate) fn push(&self, text: impl Into<String>) {
        let mut texts = self.0.borrow_mut();
        let text = text.into();
        if texts.len() < MOST && !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Adds the warnings to a response.
    pub(crate) fn add_to<B>(&self, response: &mut Response<B>) {
        for text in self.0.borrow().iter() {
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(HeaderName::from_static("warning"), value);
            }
        }
    }
}
