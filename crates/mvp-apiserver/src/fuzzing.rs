//! What the fuzz targets in `fuzz/` reach of this crate's inner modules. Exists with `cfg(fuzzing)` alone.

use serde_json::Value;

/// Decodes an object in Kubernetes' protobuf encoding; `None` if it is refused.
pub fn decode_protobuf(body: &[u8]) -> Option<Value> {
    crate::protobuf::decode(body).ok()
}
