//! Protobuf's wire format, and the conversion of JSON documents to YAML, protobuf and CBOR.

use bytes::Bytes;
use mvp_core::discovery::negotiate::Encoding;
use mvp_core::discovery::{Limits, Listed};
use mvp_core::fuzzing::{bytes_field, encode, protobuf_fields};
use mvp_core::not_found::judge;
use mvp_core::openapi::v2::{self, Format};
use serde_json::Value;

use super::seeds;
use crate::target::Target;

pub const TARGET: Target = Target { name: "encodings", run, seeds, words: seeds::WORDS };

fn run(data: &[u8]) {
    wire(data);
    let json = serde_json::from_slice::<Value>(data);
    for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor] {
        let encoded = encode(data, encoding);
        assert!(encoded.is_none() || json.is_ok(), "what is no JSON has no other encoding");
    }
    let Ok(json) = json else { return };
    let cbor = encode(data, Encoding::Cbor).expect("all JSON is CBOR");
    assert!(cbor.starts_with(&[0xd9, 0xd9, 0xf7]));
    // A list of resources means the same in protobuf.
    let list = Listed::parse(Bytes::copy_from_slice(data), Encoding::Json);
    if let (Some(list), Some(protobuf)) = (list, encode(data, Encoding::Protobuf)) {
        assert_eq!(Listed::parse(protobuf.into(), Encoding::Protobuf), Some(list));
    }
    // So does a `Status`, in CBOR and YAML.
    let verdict = judge("application/json", data);
    assert_eq!(judge("application/cbor", &cbor), judge_value(&json), "{json}");
    assert!(verdict == judge_value(&json) || has_duplicates(data, &json));
}

/// The verdict on a value that was parsed, so that no key is there twice.
fn judge_value(json: &Value) -> mvp_core::not_found::NotFound {
    judge("application/json", json.to_string().as_bytes())
}

/// Whether a text has keys twice, of which one is lost when it is parsed.
fn has_duplicates(text: &[u8], json: &Value) -> bool {
    let compact = |text: &[u8]| text.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
    compact(text) > compact(json.to_string().as_bytes())
}

fn wire(data: &[u8]) {
    let Some(fields) = protobuf_fields(data) else { return };
    let whole: Vec<u8> = fields.iter().flat_map(|(_, _, whole)| *whole).copied().collect();
    assert_eq!(whole, data, "no byte is lost");
    for (number, bytes, _) in &fields {
        let first = fields.iter().find(|(other, bytes, _)| other == number && bytes.is_some());
        assert_eq!(bytes_field(data, *number), first.and_then(|(_, bytes, _)| *bytes));
        let _ = bytes.map(wire_once);
    }
    let _ = v2::prepare(Bytes::copy_from_slice(data), Format::Protobuf, &Limits::default());
}

fn wire_once(data: &[u8]) -> usize {
    protobuf_fields(data).map_or(0, |fields| fields.len())
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all = seeds::documents();
    let protobuf: Vec<Vec<u8>> =
        all.iter().filter_map(|json| encode(json, Encoding::Protobuf)).collect();
    all.extend(protobuf);
    all
}
