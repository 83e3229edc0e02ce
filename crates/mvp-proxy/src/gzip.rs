//! Decompression within a limit.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::GzDecoder;

/// Decompresses gzip up to a limit: a small body can decompress to a huge one.
pub(crate) fn gunzip(packed: &[u8], limit: usize) -> io::Result<Bytes> {
    let mut unpacked = Vec::new();
    GzDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit {
        return Err(io::Error::other(format!("decompresses to more than {limit} bytes")));
    }
    Ok(unpacked.into())
}
