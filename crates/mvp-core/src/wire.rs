//! Protobuf's wire format, as far as documents need it: writes fields, and reads those that hold
//! bytes. Entry items: [`fields`] and [`put_bytes`].

/// Appends a field that holds bytes: a string or a message.
pub(crate) fn put_bytes(to: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(to, number << 3 | BYTES);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a field that holds a number.
pub(crate) fn put_number(to: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(to, number << 3 | VARINT);
    put_varint(to, value);
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// The wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// The limit of fields in a message. No known document has more, and a field takes far more memory
/// than its bytes.
const MAX_FIELDS: usize = 1 << 18;

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    /// The content, if the field holds bytes.
    pub(crate) bytes: Option<&'a [u8]>,
    /// The whole field as written, key included.
    pub(crate) whole: &'a [u8],
}

/// The fields of a message; `None` if it is malformed.
pub(crate) fn fields(mut message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        if fields.len() == MAX_FIELDS {
            return None;
        }
        fields.push(take_field(&mut message)?);
    }
    Some(fields)
}

/// The content of the first field of that number that holds bytes. It reads no further than that.
pub(crate) fn bytes_field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let field = take_field(&mut message)?;
        if field.number == number && field.bytes.is_some() {
            return field.bytes;
        }
    }
    None
}

fn take_field<'a>(message: &mut &'a [u8]) -> Option<Field<'a>> {
    let start = *message;
    let key = take_varint(message)?;
    let mut bytes = None;
    match key & 7 {
        VARINT => {
            take_varint(message)?;
        }
        FIXED_64 => *message = message.get(8..)?,
        BYTES => {
            let length = usize::try_from(take_varint(message)?).ok()?;
            let (content, rest) = message.split_at_checked(length)?;
            bytes = Some(content);
            *message = rest;
        }
        FIXED_32 => *message = message.get(4..)?,
        _ => return None,
    }
    let whole = start.get(..start.len() - message.len())?;
    Some(Field { number: key >> 3, bytes, whole })
}

fn take_varint(from: &mut &[u8]) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut message = Vec::new();
        put_number(&mut message, 1, 300);
        put_bytes(&mut message, 2, &[7; 200]);
        put_bytes(&mut message, 16, b"");
        // The wire format's own example: 300 is 0xac 0x02.
        assert_eq!(message.get(..3), Some(&[0x08, 0xac, 0x02][..]));
        let read = fields(&message).expect("a message");
        let contents: Vec<_> = read.iter().map(|f| (f.number, f.bytes.map(<[u8]>::len))).collect();
        assert_eq!(contents, [(1, None), (2, Some(200)), (16, Some(0))]);
        let whole: Vec<u8> = read.iter().flat_map(|field| field.whole).copied().collect();
        assert_eq!(whole, message);
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x80], &[0x0b], &[0xff; 11], &[0x09, 1]] {
            assert_eq!(fields(bytes), None, "{bytes:?}");
        }
        // A length beyond any memory.
        assert_eq!(fields(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
    }

    #[test]
    fn a_field_is_found_by_its_number_if_it_holds_bytes() {
        let mut message = Vec::new();
        put_number(&mut message, 2, 7);
        put_bytes(&mut message, 1, b"other");
        put_bytes(&mut message, 2, b"first");
        put_bytes(&mut message, 2, b"second");
        // What follows the field is not read.
        message.push(0x80);
        assert_eq!(bytes_field(&message, 2), Some(&b"first"[..]));
        assert_eq!(bytes_field(&message, 3), None);
        assert_eq!(bytes_field(&[], 1), None);
    }
}
