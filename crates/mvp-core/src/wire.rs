//! Protobuf's wire format, as much of it as documents need: fields of bytes written and read.

/// Appends a field of bytes: a string, a message.
pub(crate) fn put_bytes(to: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(to, number << 3 | BYTES);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a field of a number.
pub(crate) fn put_number(to: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(to, number << 3);
    put_varint(to, value);
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

const BYTES: u64 = 2;
/// More make no document that we know; each takes far more memory than its bytes.
const MAX_FIELDS: usize = 1 << 18;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    /// Its content, where it is one of bytes.
    pub(crate) bytes: Option<&'a [u8]>,
    /// All of it, as it was written.
    pub(crate) whole: &'a [u8],
}

/// The fields of a message; nothing where it is none.
pub(crate) fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let key = take_varint(&mut rest)?;
        let mut bytes = None;
        match key & 7 {
            0 => {
                take_varint(&mut rest)?;
            }
            1 => rest = rest.get(8..)?,
            BYTES => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                let (content, after) = rest.split_at_checked(length)?;
                bytes = Some(content);
                rest = after;
            }
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
        let whole = start.get(..start.len() - rest.len())?;
        if fields.len() == MAX_FIELDS {
            return None;
        }
        fields.push(Field { number: key >> 3, bytes, whole });
    }
    Some(fields)
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
    fn fields_are_read_as_they_were_written() {
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
    fn what_is_no_message_is_told() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x80], &[0x0b], &[0xff; 11], &[0x09, 1]] {
            assert_eq!(fields(bytes), None, "{bytes:?}");
        }
        // A length that no memory holds.
        assert_eq!(fields(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
    }
}
