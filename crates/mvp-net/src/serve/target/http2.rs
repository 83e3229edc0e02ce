//! Parses the frames of an HTTP/2 connection (RFC 9113) to find header blocks. Entry:
//! [`Follower::follow`].

use super::ParseError;
use super::hpack;

/// `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, which h2 checks.
const PREFACE: u32 = 24;
const HEAD: usize = 9;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The length of a stream dependency and a weight.
const PRIORITY_LENGTH: u32 = 5;

/// The parser of the bytes of a client.
#[derive(Debug)]
pub(super) struct Follower {
    state: State,
    head: [u8; HEAD],
    frame: Frame,
    /// The stream of a header block that continues in the next frame.
    unfinished: Option<u32>,
    headers: hpack::Decoder,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Skips this many bytes.
    Skip(u32),
    /// In the head of a frame, after this many bytes.
    Head(usize),
    /// At the length of the padding.
    Padding,
    /// In the priority, after this many bytes, with the stream that this one depends on.
    Priority(u32, u32),
    /// In a header block.
    Block,
}

/// The current frame.
#[derive(Debug, Default, Clone, Copy)]
struct Frame {
    flags: u8,
    stream: u32,
    /// The remaining bytes of its part of the header block.
    block: u32,
    padding: u32,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            state: State::Skip(PREFACE),
            head: [0; HEAD],
            frame: Frame::default(),
            unfinished: None,
            headers: hpack::Decoder::default(),
        }
    }
}

impl Follower {
    /// Parses the next bytes of the client. Replaces a `#` in the value of `:path` by a `>`; then h2
    /// resets that stream only.
    pub(super) fn follow(&mut self, mut bytes: &mut [u8]) -> Result<(), ParseError> {
        while let Some(&first) = bytes.first() {
            let read = match self.state {
                State::Skip(left) => {
                    let length = bytes.len().min(left as usize);
                    self.skip(left - length as u32);
                    length
                }
                State::Head(have) => {
                    let missing = self.head.get_mut(have..).unwrap_or_default();
                    let length = bytes.len().min(missing.len());
                    for (to, from) in missing.iter_mut().zip(&*bytes) {
                        *to = *from;
                    }
                    self.state = State::Head(have + length);
                    if have + length == HEAD {
                        self.frame_begins()?;
                    }
                    length
                }
                State::Padding => {
                    self.padded(first.into())?;
                    1
                }
                State::Priority(have, stream) => {
                    self.priority(have, stream, first)?;
                    1
                }
                State::Block => {
                    let length = bytes.len().min(self.frame.block as usize);
                    self.headers.follow(bytes.get_mut(..length).unwrap_or_default())?;
                    self.frame.block -= length as u32;
                    self.block()?;
                    length
                }
            };
            bytes = bytes.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    fn skip(&mut self, left: u32) {
        self.state = if left == 0 { State::Head(0) } else { State::Skip(left) };
    }

    fn frame_begins(&mut self) -> Result<(), ParseError> {
        let [length @ .., kind, flags, a, b, c, d] = self.head;
        let length = length.into_iter().fold(0, |length, byte| length << 8 | u32::from(byte));
        let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        let continues = kind == CONTINUATION;
        if continues != self.unfinished.is_some()
            || self.unfinished.is_some_and(|unfinished| unfinished != stream)
        {
            return Err(ParseError("a header block is not continued by its next frame"));
        }
        match kind {
            HEADERS => {
                let padded = u32::from(flags & PADDED != 0);
                let priority = if flags & PRIORITY == 0 { 0 } else { PRIORITY_LENGTH };
                let block = length.checked_sub(padded + priority).ok_or(TOO_SHORT)?;
                self.frame = Frame { flags, stream, block, padding: 0 };
                if padded > 0 {
                    self.state = State::Padding;
                    return Ok(());
                }
                self.before_block()
            }
            CONTINUATION => {
                self.frame = Frame { flags, stream, block: length, padding: 0 };
                self.block()
            }
            PUSH_PROMISE => Err(ParseError("a client promises a push")),
            _ => {
                self.skip(length);
                Ok(())
            }
        }
    }

    fn padded(&mut self, padding: u32) -> Result<(), ParseError> {
        self.frame.block = self.frame.block.checked_sub(padding).ok_or(TOO_SHORT)?;
        self.frame.padding = padding;
        self.before_block()
    }

    fn before_block(&mut self) -> Result<(), ParseError> {
        if self.frame.flags & PRIORITY == 0 {
            return self.block();
        }
        self.state = State::Priority(0, 0);
        Ok(())
    }

    fn priority(&mut self, have: u32, stream: u32, byte: u8) -> Result<(), ParseError> {
        // The first bit says whether the dependency is exclusive, the last byte is the weight.
        if have + 1 < PRIORITY_LENGTH {
            let stream = (stream << 8 | u32::from(byte)) & 0x7fff_ffff;
            self.state = State::Priority(have + 1, stream);
            return Ok(());
        }
        // h2 resets such a stream without reading its header block. Its header table then differs from
        // the client's.
        if stream == self.frame.stream {
            return Err(ParseError("a stream depends on itself"));
        }
        self.block()
    }

    /// At the header block, or at its end in this frame.
    fn block(&mut self) -> Result<(), ParseError> {
        if self.frame.block > 0 {
            self.state = State::Block;
            return Ok(());
        }
        let ends = self.frame.flags & END_HEADERS != 0;
        if ends {
            self.headers.end()?;
        }
        self.unfinished = (!ends).then_some(self.frame.stream);
        self.skip(self.frame.padding);
        Ok(())
    }
}

const TOO_SHORT: ParseError = ParseError("a HEADERS frame is too short");
