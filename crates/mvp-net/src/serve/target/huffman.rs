//! HPACK's Huffman code (RFC 7541, appendix B), four bits at a time. Entry: [`Decoder`].
//!
//! Strings are not decoded into bytes: only their length matters, whether a name is `:path`, and the
//! positions of `#`. `#` and `>` are the only codes of 12 bits and differ in the last one.

use super::ParseError;

/// The header name to find.
pub(super) const PATH: &[u8; 5] = b":path";

/// The length of each symbol's code; the last one is EOS. The code is canonical: shorter codes come
/// first, and those of one length are in the order of their symbols.
pub(crate) const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

const LONGEST: u8 = 30;
const EOS: usize = 256;
/// Marks a child that is a symbol, not a node.
const LEAF: usize = 256;

/// A step of four bits. The low byte is the next node. Above it:
const SYMBOL: u16 = 1 << 8;
/// The symbol was EOS, which is not allowed in a string.
const INVALID: u16 = 1 << 9;
/// The position of the symbol in `:path`, from 1.
const PLACE: u16 = 10;
/// The symbol was `#`.
const HASH: u16 = 1 << 13;
/// The last of the four bits that belongs to the symbol, counted from the right.
const LAST_BIT: u16 = 14;

static STEPS: [u16; 256 * 16] = steps();
/// The nodes at which a string may end: after a whole symbol, and up to seven bits of padding.
static MAY_END: [bool; 256] = may_end();

/// The decoder of one string.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Decoder {
    node: u8,
}

impl Decoder {
    /// The number of symbols that end in these bytes.
    pub(super) fn count(&mut self, bytes: &[u8]) -> Result<usize, ParseError> {
        let (mut symbols, mut seen) = (0, 0);
        for byte in bytes {
            for nibble in [byte >> 4, byte & 0xf] {
                let step = self.step(nibble);
                symbols += usize::from(step >> 8 & 1);
                seen |= step;
            }
        }
        if seen & INVALID == 0 { Ok(symbols) } else { Err(EOS_IN_STRING) }
    }

    /// The same; replaces each `#` by a `>`.
    pub(super) fn replace(&mut self, bytes: &mut [u8]) -> Result<usize, ParseError> {
        let (mut symbols, mut seen) = (0, 0);
        for byte in bytes {
            for shift in [4, 0] {
                let step = self.step(*byte >> shift & 0xf);
                symbols += usize::from(step >> 8 & 1);
                seen |= step;
                if step & HASH != 0 {
                    *byte ^= 1 << (step >> LAST_BIT) << shift;
                }
            }
        }
        if seen & INVALID == 0 { Ok(symbols) } else { Err(EOS_IN_STRING) }
    }

    /// Whether the last bytes of a string have no `#` for sure. They are not decoded.
    ///
    /// The code of `#` begins with nine ones, which codes of letters, digits and `?` have only if others
    /// precede them.
    pub(super) fn rest_has_no_hash(self, bytes: &[u8]) -> bool {
        // Bits of a symbol before these bytes could be its beginning.
        if self.node != 0 {
            return false;
        }
        let pairs = bytes.iter().zip(bytes.iter().skip(1));
        let runs = pairs.fold(0, |runs, (byte, next)| {
            let bits = u16::from_be_bytes([*byte, *next]);
            let two = bits & bits << 1;
            let four = two & two << 2;
            let eight = four & four << 4;
            runs | eight & eight << 1
        });
        runs == 0
    }

    /// The same as `count`; calls `place` with the position of each symbol in `:path`, or 0.
    pub(super) fn places(
        &mut self,
        bytes: &[u8],
        mut place: impl FnMut(u8),
    ) -> Result<usize, ParseError> {
        let mut symbols = 0;
        for byte in bytes {
            for nibble in [byte >> 4, byte & 0xf] {
                let step = self.step(nibble);
                if step & INVALID != 0 {
                    return Err(EOS_IN_STRING);
                }
                if step & SYMBOL != 0 {
                    symbols += 1;
                    place((step >> PLACE & 7) as u8);
                }
            }
        }
        Ok(symbols)
    }

    /// Ends the string and starts the next one.
    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        let Decoder { node } = std::mem::take(self);
        match MAY_END.get(usize::from(node)) {
            Some(true) => Ok(()),
            _ => Err(ParseError("a Huffman string ends within a symbol")),
        }
    }

    #[inline]
    fn step(&mut self, nibble: u8) -> u16 {
        let index = usize::from(self.node) << 4 | usize::from(nibble & 0xf);
        // Always in bounds: eight and four bits make an index below 4096.
        let step = STEPS.get(index).copied().unwrap_or(INVALID);
        self.node = (step & 0xff) as u8;
        step
    }
}

const EOS_IN_STRING: ParseError = ParseError("a Huffman string has EOS");

/// The code as a tree: both children of each node, the root first.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn tree() -> [[usize; 2]; 256] {
    let mut nodes = [[0; 2]; 256];
    let mut used = 1;
    let mut code: u32 = 0;
    let mut length = 1;
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] == length {
                let mut node = 0;
                let mut bit = length - 1;
                while bit > 0 {
                    let side = (code >> bit & 1) as usize;
                    if nodes[node][side] == 0 {
                        nodes[node][side] = used;
                        used += 1;
                    }
                    node = nodes[node][side];
                    bit -= 1;
                }
                nodes[node][(code & 1) as usize] = LEAF + symbol;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    nodes
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn steps() -> [u16; 256 * 16] {
    let tree = tree();
    let mut steps = [0; 256 * 16];
    let mut index = 0;
    while index < steps.len() {
        let (mut node, mut step) = (index >> 4, 0);
        let mut bit = 4;
        while bit > 0 {
            bit -= 1;
            let child = tree[node][index >> bit & 1];
            if child < LEAF {
                node = child;
            } else {
                node = 0;
                step |= ended(child - LEAF, bit);
            }
        }
        steps[index] = step | node as u16;
        index += 1;
    }
    steps
}

/// The flags of a symbol whose last bit is this one of the four.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn ended(symbol: usize, bit: usize) -> u16 {
    if symbol == EOS {
        return INVALID;
    }
    let mut step = SYMBOL;
    if symbol == b'#' as usize {
        step |= HASH | (bit as u16) << LAST_BIT;
    }
    let mut place = 0;
    while place < PATH.len() {
        if symbol == PATH[place] as usize {
            step |= (place as u16 + 1) << PLACE;
        }
        place += 1;
    }
    step
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn may_end() -> [bool; 256] {
    let tree = tree();
    let mut may_end = [false; 256];
    let mut node = 0;
    let mut bits = 0;
    while bits < 8 {
        may_end[node] = true;
        node = tree[node][1];
        bits += 1;
    }
    may_end
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The Huffman code of `text`.
    pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
        let mut codes = [0; 257];
        let mut code: u32 = 0;
        for length in 1..=LONGEST {
            for (symbol, of) in LENGTHS.iter().enumerate() {
                if *of == length {
                    codes[symbol] = code;
                    code += 1;
                }
            }
            code <<= 1;
        }
        let (mut bytes, mut bits, mut number) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let length = LENGTHS[usize::from(*byte)];
            bits = bits << length | u64::from(codes[usize::from(*byte)]);
            number += length;
            while number >= 8 {
                number -= 8;
                bytes.push((bits >> number) as u8);
            }
        }
        if number > 0 {
            let padding = 8 - number;
            bytes.push(((bits << padding) as u8) | ((1 << padding) - 1));
        }
        bytes
    }

    #[test]
    fn all_symbols_are_counted() {
        let text: Vec<u8> = (0..=255).collect();
        for length in 0..text.len() {
            let bytes = encode(&text[..length]);
            let mut decoder = Decoder::default();
            assert_eq!(decoder.count(&bytes), Ok(length));
            assert_eq!(decoder.end(), Ok(()));
        }
    }

    #[test]
    fn a_hash_is_replaced_wherever_it_is() {
        for before in 0..20 {
            let text = [&b"a/b:c%d?e&f=g-h_i~jk"[..before], b"#", b"x#"].concat();
            let mut bytes = encode(&text);
            let mut decoder = Decoder::default();
            assert_eq!(decoder.replace(&mut bytes), Ok(text.len()));
            let expected: Vec<u8> =
                text.iter().map(|byte| if *byte == b'#' { b'>' } else { *byte }).collect();
            assert_eq!(bytes, encode(&expected));
        }
    }

    #[test]
    fn no_hash_is_overlooked() {
        let all: Vec<u8> = (0..=255).collect();
        for before in &all {
            for after in &all {
                for text in [vec![*before, b'#', *after], vec![b'#', *before], vec![*after, b'#']] {
                    assert!(!Decoder::default().rest_has_no_hash(&encode(&text)), "{text:?}");
                }
            }
        }
        // In the middle of a symbol, the first bits could be the end of a `#`.
        let mut within = Decoder::default();
        within.count(&[0xff]).unwrap();
        assert!(!within.rest_has_no_hash(&[0xa0]));
    }

    #[test]
    fn an_ordinary_path_is_not_decoded() {
        for path in ["/api/v1/pods?limit=500", "/apis/apps/v1/namespaces/kube-system/deployments"] {
            assert!(Decoder::default().rest_has_no_hash(&encode(path.as_bytes())), "{path}");
        }
    }

    #[test]
    fn what_is_no_string_is_refused() {
        let read = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.count(bytes).and_then(|_| decoder.end())
        };
        // Only a byte of padding, padding of zeros, EOS, half a symbol.
        for bytes in [&[0xff][..], &[0x18], &[0xff, 0xff, 0xff, 0xff], &[0xff, 0xc0]] {
            assert!(read(bytes).is_err(), "{bytes:x?}");
        }
    }
}
