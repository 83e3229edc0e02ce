//! What the fuzz targets in `fuzz/` reach of this crate's inner modules. Exists with `cfg(fuzzing)` alone.

use crate::discovery::encode;
use crate::discovery::negotiate::Encoding;
use crate::wire;

/// The fields of a protobuf message: number, content if it is bytes, and the whole field.
#[allow(clippy::type_complexity)]
pub fn protobuf_fields(message: &[u8]) -> Option<Vec<(u64, Option<&[u8]>, &[u8])>> {
    let fields = wire::fields(message)?;
    Some(fields.into_iter().map(|field| (field.number, field.bytes, field.whole)).collect())
}

/// The content of the first field of that number that holds bytes.
pub fn bytes_field(message: &[u8], number: u64) -> Option<&[u8]> {
    wire::bytes_field(message, number)
}

/// A JSON document in another encoding.
pub fn encode(json: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    encode::encode(json, encoding)
}
