//! HTTP/2 frame by frame, for clients that no library would let one write. Entry item: [`RawHttp2`].

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A frame with a part of a body.
pub const DATA: u8 = 0;
/// A frame with the head of a request or response, or with trailers.
pub const HEADERS: u8 = 1;
/// A frame with the priority of a stream, which RFC 9113 deprecates.
pub const PRIORITY: u8 = 2;
/// A frame that ends a stream at once.
pub const RST_STREAM: u8 = 3;
/// A frame with settings of the connection.
pub const SETTINGS: u8 = 4;
/// A frame that the other side must echo.
pub const PING: u8 = 6;
/// A frame that ends the connection.
pub const GOAWAY: u8 = 7;
/// A frame that lets the other side send more.
pub const WINDOW_UPDATE: u8 = 8;
/// A frame with the rest of a header block.
pub const CONTINUATION: u8 = 9;

/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame of a header block.
pub const END_HEADERS: u8 = 4;

/// `GET / https`, by indices into the static table, and an authority of `a`.
pub const GET_ROOT: [u8; 6] = [0x82, 0x84, 0x87, 0x01, 0x01, b'a'];

/// The time limit of reads and writes: generous for slow machines.
const DEADLINE: Duration = Duration::from_secs(30);

/// A frame as bytes. Only the low 24 bits of its length count.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [.., high, middle, low] = payload.len().to_be_bytes();
    let mut frame = vec![high, middle, low, kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The head of a request without a body.
pub fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

/// A header block in which names and values are written as they are, whatever they contain.
pub fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal field that is not indexed, with a new name.
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// The length of a text that is not Huffman coded: an integer with a prefix of 7 bits.
fn length(block: &mut Vec<u8>, length: usize) {
    const PREFIX: usize = 0x7f;
    if length < PREFIX {
        block.push(length as u8);
        return;
    }
    block.push(PREFIX as u8);
    let mut rest = length - PREFIX;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// A frame that was received.
#[derive(Debug)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// What is in it.
    pub payload: Vec<u8>,
}

/// A connection over which preface and settings were sent.
#[derive(Debug)]
pub struct RawHttp2<S> {
    /// The connection itself.
    pub stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawHttp2<S> {
    /// Sends the preface, and these settings: pairs of a number and a value.
    pub async fn new(stream: S, settings: &[(u16, u32)]) -> io::Result<RawHttp2<S>> {
        let mut payload = Vec::new();
        for (number, value) in settings {
            payload.extend_from_slice(&number.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        preface.extend(frame(SETTINGS, 0, 0, &payload));
        let mut connection = RawHttp2 { stream };
        connection.send(&preface).await?;
        Ok(connection)
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(DEADLINE, async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        })
        .await?
    }

    /// The next frame; nothing once the connection is closed, or if none comes in time.
    pub async fn frame(&mut self) -> Option<Frame> {
        let read = async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
        };
        timeout(DEADLINE, read).await.ok()?
    }

    /// The first frame of this stream, or the GOAWAY that ends the connection; nothing if the
    /// connection is closed without either.
    pub async fn answer(&mut self, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == GOAWAY || frame.stream == stream {
                return Some(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of RFC 7541: C.1.2 (an integer), C.2.2 (a literal that is not indexed).
    #[test]
    fn integers_and_literals_are_those_of_the_rfc() {
        let mut bytes = Vec::new();
        length(&mut bytes, 127 + 1306);
        assert_eq!(bytes, [127, 0b1001_1010, 0b0000_1010]);
        let expected = b"\x00\x08password\x06secret";
        assert_eq!(block(&[(b"password", b"secret")]), expected);
    }

    #[test]
    fn a_frame_has_its_length_kind_flags_and_stream() {
        assert_eq!(frame(PING, 1, 3, b"12345678"), b"\0\0\x08\x06\x01\0\0\0\x0312345678");
    }
}
