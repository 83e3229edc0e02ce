//! Parses header blocks (RFC 7541) to find the value of `:path`. Entry: [`Decoder::follow`].
//!
//! This parser must agree with h2 on every block that h2 accepts, above all on the entry of the
//! dynamic table that an index means: otherwise it could mistake a `:path` for another header. If h2
//! ends the connection, the result does not matter.

use std::collections::VecDeque;

use super::ParseError;
use super::huffman::{self, PATH};

/// The largest table that h2 allows: the default, which the listener does not change.
const GREATEST_TABLE: u32 = 4096;
/// The size of an entry in addition to its name and value.
const ENTRY_OVERHEAD: u32 = 32;
/// `matched` of a `Field` whose name is not a prefix of `:path`.
const OTHER: u8 = u8::MAX;

/// The lengths of the names in the static table, from index 1 on.
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];
const STATIC_PATHS: [u32; 2] = [4, 5];

/// The parser of the header blocks of a connection, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    table: Table,
    state: State,
    field: Field,
    huffman: huffman::Decoder,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// At the first byte of a field, or of a change of the table's size.
    #[default]
    Start,
    /// In an integer that does not fit into its first byte.
    Integer { of: Integer, value: u32, shift: u32 },
    /// At the length of a string.
    Length(Part),
    /// In a string, with this many bytes left.
    Text { part: Part, huffman: bool, left: u32 },
}

/// The meaning of an integer.
#[derive(Debug, Clone, Copy)]
enum Integer {
    Indexed,
    Name { indexing: bool },
    TableSize,
    Length { part: Part, huffman: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Name,
    Value,
}

/// The current literal field.
#[derive(Debug, Default, Clone, Copy)]
struct Field {
    /// Whether it becomes an entry of the dynamic table.
    indexing: bool,
    name_length: u32,
    value_length: u32,
    /// The length of the prefix of `:path` that its name is so far, or `OTHER`.
    matched: u8,
}

impl Field {
    fn is_path(self) -> bool {
        usize::from(self.matched) == PATH.len()
    }

    /// Adds a byte of the name, which has this position in `:path`, from 1.
    fn extend_name(&mut self, place: u8) {
        let expected = self.matched.checked_add(1);
        self.matched = if expected == Some(place) { place } else { OTHER };
    }
}

impl Decoder {
    /// Parses the next bytes of a header block. Replaces a `#` in the value of `:path` by a `>`.
    pub(super) fn follow(&mut self, mut bytes: &mut [u8]) -> Result<(), ParseError> {
        while let Some(&first) = bytes.first() {
            let read = match self.state {
                State::Start => {
                    self.start(first)?;
                    1
                }
                State::Integer { of, value, shift } => {
                    self.integer(of, value, shift, first)?;
                    1
                }
                State::Length(part) => {
                    let huffman = first & 0x80 != 0;
                    self.prefix(Integer::Length { part, huffman }, first, 7)?;
                    1
                }
                State::Text { part, huffman, left } => {
                    let length = bytes.len().min(left as usize);
                    let text = bytes.get_mut(..length).unwrap_or_default();
                    let left = left - length as u32;
                    self.text(part, huffman, text, left == 0)?;
                    self.state = State::Text { part, huffman, left };
                    if left == 0 {
                        self.text_ends(part, huffman)?;
                    }
                    length
                }
            };
            bytes = bytes.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends the header block; it must not end within a field.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        match self.state {
            State::Start => Ok(()),
            _ => Err(ParseError("a header block ends within a field")),
        }
    }

    fn start(&mut self, first: u8) -> Result<(), ParseError> {
        match first {
            0x80.. => self.prefix(Integer::Indexed, first, 7),
            0x40.. => self.prefix(Integer::Name { indexing: true }, first, 6),
            0x20.. => self.prefix(Integer::TableSize, first, 5),
            _ => self.prefix(Integer::Name { indexing: false }, first, 4),
        }
    }

    /// Parses the first byte of an integer, of which the last `bits` count.
    fn prefix(&mut self, of: Integer, first: u8, bits: u8) -> Result<(), ParseError> {
        let greatest = (1 << bits) - 1;
        let value = first & greatest;
        if value < greatest {
            return self.integer_ends(of, value.into());
        }
        self.state = State::Integer { of, value: value.into(), shift: 0 };
        Ok(())
    }

    fn integer(&mut self, of: Integer, value: u32, shift: u32, byte: u8) -> Result<(), ParseError> {
        // At most four bytes after the first, as in h2, so that 32 bits are enough.
        let value = value + (u32::from(byte & 0x7f) << shift);
        if byte & 0x80 == 0 {
            return self.integer_ends(of, value);
        }
        if shift == 21 {
            return Err(ParseError("an integer in a header block is too large"));
        }
        self.state = State::Integer { of, value, shift: shift + 7 };
        Ok(())
    }

    fn integer_ends(&mut self, of: Integer, value: u32) -> Result<(), ParseError> {
        self.state = match of {
            Integer::Indexed => {
                // Its value was a literal before, and was checked then.
                self.table.name(value)?;
                State::Start
            }
            Integer::TableSize => {
                self.table.resize(value)?;
                State::Start
            }
            Integer::Name { indexing } => {
                self.field = Field { indexing, ..Field::default() };
                if value == 0 {
                    State::Length(Part::Name)
                } else {
                    let (length, is_path) = self.table.name(value)?;
                    self.field.name_length = length;
                    self.field.matched = if is_path { PATH.len() as u8 } else { OTHER };
                    State::Length(Part::Value)
                }
            }
            Integer::Length { part, huffman } => {
                self.state = State::Text { part, huffman, left: value };
                if value == 0 {
                    return self.text_ends(part, huffman);
                }
                return Ok(());
            }
        };
        Ok(())
    }

    /// Parses bytes of a string; `ends` with its last ones.
    fn text(
        &mut self,
        part: Part,
        huffman: bool,
        bytes: &mut [u8],
        ends: bool,
    ) -> Result<(), ParseError> {
        let field = &mut self.field;
        if part == Part::Name {
            let mut length = bytes.len();
            if huffman {
                length = self.huffman.places(bytes, |place| field.extend_name(place))?;
            } else {
                for byte in bytes {
                    let place = PATH.iter().position(|of_path| of_path == byte);
                    field.extend_name(place.map_or(0, |place| place as u8 + 1));
                }
            }
            field.name_length = field.name_length.saturating_add(length as u32);
            return Ok(());
        }
        let length = match (huffman, field.is_path()) {
            // Its bytes and its length do not matter.
            (_, false) if !field.indexing => 0,
            // Most paths have none, and seeing that costs much less than to look for it.
            (true, true) if !field.indexing && ends && self.huffman.rest_has_no_hash(bytes) => 0,
            (true, true) => self.huffman.replace(bytes)?,
            (true, false) => self.huffman.count(bytes)?,
            (false, is_path) => {
                if is_path {
                    bytes.iter_mut().filter(|byte| **byte == b'#').for_each(|byte| *byte = b'>');
                }
                bytes.len()
            }
        };
        field.value_length = field.value_length.saturating_add(length as u32);
        Ok(())
    }

    fn text_ends(&mut self, part: Part, huffman: bool) -> Result<(), ParseError> {
        if huffman {
            self.huffman.end()?;
        }
        let field = self.field;
        if part == Part::Name {
            // h2 treats an empty name as incomplete, and loses its position.
            if field.name_length == 0 {
                return Err(ParseError("the name of a header is empty"));
            }
            self.state = State::Length(Part::Value);
            return Ok(());
        }
        if field.indexing {
            self.table.insert(field);
        }
        self.state = State::Start;
        Ok(())
    }
}

/// The dynamic table: only the sizes of entries, and whether their name is `:path`.
#[derive(Debug)]
struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: u32,
    max_size: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    size: u16,
    name_length: u16,
    is_path: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size: GREATEST_TABLE }
    }
}

impl Table {
    /// The length of the name at this index, and whether it is `:path`.
    fn name(&self, index: u32) -> Result<(u32, bool), ParseError> {
        let invalid = ParseError("a header block has an index of nothing");
        let index_from_0 = index.checked_sub(1).ok_or(invalid)? as usize;
        if let Some(length) = STATIC_NAMES.get(index_from_0) {
            return Ok((u32::from(*length), STATIC_PATHS.contains(&index)));
        }
        let entry = self.entries.get(index_from_0 - STATIC_NAMES.len()).ok_or(invalid)?;
        Ok((entry.name_length.into(), entry.is_path))
    }

    fn resize(&mut self, size: u32) -> Result<(), ParseError> {
        if size > GREATEST_TABLE {
            return Err(ParseError("the table of headers is larger than allowed"));
        }
        self.max_size = size;
        self.make_room(0);
        Ok(())
    }

    fn insert(&mut self, field: Field) {
        let length = field.name_length.saturating_add(field.value_length);
        let size = length.saturating_add(ENTRY_OVERHEAD);
        self.make_room(size);
        // An entry larger than the table only empties it. An entry that fits is below 2^16.
        if size <= self.max_size {
            self.size += size;
            let (size, name_length) = (size as u16, field.name_length as u16);
            self.entries.push_front(Entry { size, name_length, is_path: field.is_path() });
        }
    }

    fn make_room(&mut self, size: u32) {
        while self.size.saturating_add(size) > self.max_size {
            match self.entries.pop_back() {
                Some(oldest) => self.size -= u32::from(oldest.size),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::huffman::tests::encode;
    use super::*;

    /// A piece of a path is not judged by its own bytes: the `#` can begin in the piece before.
    #[test]
    fn a_hash_is_replaced_however_the_path_is_split() {
        let block = |path: &str| {
            let path = encode(path.as_bytes());
            let length = u8::try_from(path.len()).unwrap();
            [&[0x04, 0x80 | length][..], &path].concat()
        };
        for before in ["/api/v1/secrets", "/a?x", "/v", ""] {
            let sent = block(&format!("{before}#one"));
            for split in 0..=sent.len() {
                let mut bytes = sent.clone();
                let mut decoder = Decoder::default();
                let (first, rest) = bytes.split_at_mut(split);
                decoder.follow(first).unwrap();
                decoder.follow(rest).unwrap();
                decoder.end().unwrap();
                assert_eq!(bytes, block(&format!("{before}>one")), "{before:?} at {split}");
            }
        }
    }
}
