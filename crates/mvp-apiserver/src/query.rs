//! The query of a request, and percent-encoding. Entry: [`Query`].

use std::borrow::Cow;

use crate::status::Failure;

/// The parameters of a query, in order.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses a query. As in Go, a pair with a `;` or an invalid escape is ignored.
    pub(crate) fn parse(query: &'a str) -> Query<'a> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Query(
            pairs
                .filter_map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((decode(key, true)?, decode(value, true)?))
                })
                .collect(),
        )
    }

    /// The first value of a parameter; empty if it is absent.
    pub(crate) fn get(&self, wanted: &str) -> &str {
        self.0.iter().find(|(key, _)| key == wanted).map_or("", |(_, value)| value)
    }

    /// All values of a parameter.
    pub(crate) fn all<'q>(&'q self, wanted: &'q str) -> impl Iterator<Item = &'q str> {
        let pairs = self.0.iter().filter(move |(key, _)| key == wanted);
        pairs.map(|(_, value)| value.as_ref())
    }

    /// A number parameter; `None` if it is absent or empty.
    pub(crate) fn number(&self, wanted: &str) -> Result<Option<u64>, Failure> {
        let value = self.get(wanted);
        if value.is_empty() {
            return Ok(None);
        }
        let malformed = |_| {
            let message = format!("{wanted}: Invalid value: \"{value}\": not a whole number");
            Failure::bad_request(message)
        };
        value.parse().map(Some).map_err(malformed)
    }

    /// A boolean parameter; `None` if it is absent.
    pub(crate) fn flag(&self, wanted: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(key, _)| key == wanted)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether the request is a dry run.
    pub(crate) fn dry_run(&self) -> Result<bool, Failure> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let message = format!("dryRun: Unsupported value: \"{other}\": supported: \"All\"");
                Err(Failure::bad_request(message))
            }
        }
    }
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hexadecimal digits.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || (plus_is_space && byte == b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
