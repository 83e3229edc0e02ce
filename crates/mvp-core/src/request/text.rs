//! The texts of a request target: split, checked and decoded as a Go server does.

use std::borrow::Cow;

/// The parts of a text between separators of one ASCII byte; faster than `str::split`.
pub(super) struct Parts<'a>(Option<&'a str>, u8);

impl<'a> Parts<'a> {
    pub(super) fn new(text: &'a str, separator: u8) -> Parts<'a> {
        Parts(Some(text), separator)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let end = rest.bytes().position(|byte| byte == self.1).unwrap_or(rest.len());
        self.0 = rest.get(end + 1..);
        rest.get(..end)
    }
}

/// Whether a Go server answers 400 to a request target that contains this byte.
pub(super) fn is_control(byte: u8) -> bool {
    (byte < b' ') | (byte == 0x7f)
}

/// Whether the text contains such a byte. It checks every byte, many at a time, because ordinary
/// requests contain none.
pub(super) fn any_byte(text: &str, is: impl Fn(u8) -> bool) -> bool {
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, byte| any | is(*byte));
    let bytes = text.as_bytes();
    let (chunks, rest) = bytes.as_chunks::<16>();
    let ends = match bytes.last_chunk::<16>() {
        Some(_) if rest.is_empty() => false,
        Some(last) => any(last),
        None => any(rest),
    };
    chunks.iter().fold(ends, |found, chunk| found | any(chunk))
}

/// Decodes percent-encoding as a Go server does; `None` for a `%` without two hexadecimal digits
/// after it. Bytes that are not UTF-8 become U+FFFD, which no served name contains.
pub(super) fn percent_decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !any_byte(text, |byte| (byte == b'%') | ((byte == b'+') & plus_is_space)) {
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
    Some(Cow::Owned(match String::from_utf8(decoded) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
