//! Decompression within a limit.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};

/// Decompresses gzip up to a limit: a small body can decompress to a huge one.
pub(crate) fn gunzip(packed: &[u8], limit: usize) -> io::Result<Bytes> {
    read(GzDecoder::new(packed), limit)
}

/// Decodes a content encoding up to a limit. Fails for an encoding other than `identity`, `gzip` and
/// `deflate`.
pub(crate) fn unpack(encoding: &str, packed: &[u8], limit: usize) -> io::Result<Bytes> {
    let is = |name| encoding.trim().eq_ignore_ascii_case(name);
    if is("gzip") || is("x-gzip") {
        gunzip(packed, limit)
    } else if is("deflate") {
        read(ZlibDecoder::new(packed), limit)
    } else if is("identity") || is("") {
        read(packed, limit)
    } else {
        Err(io::Error::other(format!("unknown content encoding {encoding:?}")))
    }
}

fn read(decoder: impl Read, limit: usize) -> io::Result<Bytes> {
    let mut unpacked = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit {
        return Err(io::Error::other(format!("decompresses to more than {limit} bytes")));
    }
    Ok(unpacked.into())
}
