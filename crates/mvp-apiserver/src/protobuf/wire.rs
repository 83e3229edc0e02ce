//! Protobuf's wire format: the fields of a message, one after the other. Entry: [`Fields`].

use super::Fault;

/// The content of a field as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Raw<'a> {
    /// A number: integers and booleans.
    Varint(u64),
    /// Eight bytes: `double`.
    Fixed64(u64),
    /// Four bytes; no known field has them.
    Fixed32,
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, with their numbers. It ends after the first error.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Raw<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = take_field(&mut self.0);
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| Fault::new("the protobuf message is malformed")))
    }
}

/// Takes one number from the start of packed numbers.
pub(super) fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Text, as Go writes it to JSON: invalid UTF-8 is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn take_field<'a>(message: &mut &'a [u8]) -> Option<(u64, Raw<'a>)> {
    let key = take_varint(message)?;
    let number = key >> 3;
    let raw = match key & 7 {
        0 => Raw::Varint(take_varint(message)?),
        1 => {
            let (content, rest) = message.split_first_chunk::<8>()?;
            *message = rest;
            Raw::Fixed64(u64::from_le_bytes(*content))
        }
        2 => {
            let length = usize::try_from(take_varint(message)?).ok()?;
            let (content, rest) = message.split_at_checked(length)?;
            *message = rest;
            Raw::Bytes(content)
        }
        5 => {
            *message = message.get(4..)?;
            Raw::Fixed32
        }
        _ => return None,
    };
    (number != 0).then_some((number, raw))
}
