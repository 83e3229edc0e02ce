//! Requests that no HTTP library would send, byte by byte: over HTTP/1.1 ([`http1_status`]) and over
//! HTTP/2 ([`http2_outcome`]).

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Client, DEADLINE};

/// Sends these bytes over a connection of its own and returns the status of the first response;
/// none if the connection ends without one.
pub(crate) async fn http1_status(
    client: &Client,
    to: SocketAddr,
    request: &[u8],
) -> anyhow::Result<Option<u16>> {
    let exchange = async {
        let mut stream = client.handshake(to, b"http/1.1").await?;
        stream.write_all(request).await?;
        let mut head = Vec::new();
        while head.iter().filter(|byte| **byte == b'\n').count() == 0 && head.len() < 4096 {
            let mut byte = [0];
            match stream.read(&mut byte).await {
                Ok(1) => head.extend_from_slice(&byte),
                _ => break,
            }
        }
        let line = String::from_utf8_lossy(&head).into_owned();
        if line.is_empty() {
            return Ok(None);
        }
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.with_context(|| format!("no status line: {line:?}")).map(Some)
    };
    timeout(DEADLINE, exchange).await.context("no answer")?
}

/// The outcome of an HTTP/2 request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Status(u16),
    /// RST_STREAM, with its code.
    Reset(u32),
    /// GOAWAY with a code other than 0, or the end of the connection.
    Closed,
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Sends one request with these pseudo-headers and headers unchanged, and returns the outcome.
pub(crate) async fn http2_outcome(
    client: &Client,
    to: SocketAddr,
    headers: &[(&str, &str)],
) -> anyhow::Result<Outcome> {
    let exchange = async {
        let mut stream = client.handshake(to, b"h2").await?;
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // No dynamic table: the status is then a static entry or a literal.
        write_frame(&mut out, SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])?;
        let mut block = Vec::new();
        for (name, value) in headers {
            // A literal that is not indexed, with a new name.
            block.push(0);
            write_string(&mut block, name)?;
            write_string(&mut block, value)?;
        }
        write_frame(&mut out, HEADERS, END_STREAM | END_HEADERS, 1, &block)?;
        stream.write_all(&out).await?;
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return Ok(Outcome::Closed);
            }
            let [a, b, c, kind, flags, s0, s1, s2, s3] = head;
            let length = u32::from_be_bytes([0, a, b, c]);
            let id = u32::from_be_bytes([s0, s1, s2, s3]);
            let mut payload = vec![0; usize::try_from(length)?];
            if stream.read_exact(&mut payload).await.is_err() {
                return Ok(Outcome::Closed);
            }
            match (kind, id) {
                (HEADERS, 1) => return status(&payload).map(Outcome::Status),
                (RST_STREAM, 1) => return code(&payload, 0).map(Outcome::Reset),
                (GOAWAY, _) if code(&payload, 4)? != 0 => return Ok(Outcome::Closed),
                (SETTINGS, _) if flags & 1 == 0 => {
                    let mut acknowledged = Vec::new();
                    write_frame(&mut acknowledged, SETTINGS, 1, 0, &[])?;
                    stream.write_all(&acknowledged).await?;
                }
                _ => {}
            }
        }
    };
    timeout(DEADLINE, exchange).await.context("no answer")?
}

fn write_frame(
    out: &mut Vec<u8>,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) -> anyhow::Result<()> {
    let [_, a, b, c] = u32::try_from(payload.len())?.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// A string in HPACK, without Huffman coding.
fn write_string(out: &mut Vec<u8>, text: &str) -> anyhow::Result<()> {
    match text.len() {
        short @ 0..127 => out.push(u8::try_from(short)?),
        long => {
            ensure!(long - 127 < 128 * 128, "too long for this client");
            let rest = long - 127;
            out.extend_from_slice(&[
                127,
                u8::try_from(rest % 128)? | 128,
                u8::try_from(rest / 128)?,
            ]);
        }
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn code(payload: &[u8], at: usize) -> anyhow::Result<u32> {
    let bytes = payload.get(at..at + 4).context("a short frame")?;
    Ok(u32::from_be_bytes(bytes.try_into()?))
}

/// `:status`, which is the first header of a response.
fn status(block: &[u8]) -> anyhow::Result<u16> {
    let mut block = block;
    // A table size update, which our SETTINGS requested.
    while let Some((first, rest)) = block.split_first().filter(|(first, _)| *first >> 5 == 1) {
        block = rest;
        if first & 31 == 31 {
            let end = block.iter().position(|byte| byte & 128 == 0).context("no end")?;
            block = block.get(end + 1..).unwrap_or_default();
        }
    }
    let (first, rest) = block.split_first().context("no header")?;
    let known = [200, 204, 206, 304, 400, 404, 500];
    if first & 128 != 0 {
        let index = usize::from(first & 127);
        let status = index.checked_sub(8).and_then(|index| known.get(index));
        return status.copied().with_context(|| format!("header {index} is no status"));
    }
    let (length, value) = rest.split_first().context("no value")?;
    let value = value.get(..usize::from(length & 127)).context("a short value")?;
    match length & 128 {
        0 => Ok(std::str::from_utf8(value)?.parse()?),
        _ => huffman_digits(value),
    }
}

/// Three digits in HPACK's Huffman code: 0 to 2 have five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> anyhow::Result<u16> {
    let bit = |at: usize| bytes.get(at / 8).map_or(1, |byte| u16::from(byte >> (7 - at % 8) & 1));
    let read = |at: usize, count: usize| (at..at + count).fold(0, |sum, at| sum * 2 + bit(at));
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        let digit = match (read(at, 5), read(at, 6)) {
            (short @ 0..=2, _) => {
                at += 5;
                short
            }
            (_, long @ 0x19..=0x1f) => {
                at += 6;
                long - 0x16
            }
            _ => bail!("no digit in {bytes:?}"),
        };
        number = number * 10 + digit;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_each_form_that_servers_write() {
        assert_eq!(status(&[0x88]).expect("static"), 200);
        assert_eq!(status(&[0x20, 0x8c]).expect("after a change of size"), 400);
        assert_eq!(status(&[0x08, 3, b'4', b'3', b'1']).expect("literal"), 431);
        // RFC 7541, C.6.1: `:status: 302`, by Huffman.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]).expect("Huffman"), 302);
    }
}
