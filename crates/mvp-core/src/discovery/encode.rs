//! Discovery documents in the other encodings of kube-apiserver, converted from JSON. Entry item:
//! [`encode`].
//!
//! YAML has all the content of the JSON. Protobuf has only the fields of its schema: unknown fields
//! have no number and are left out, as by a server of that schema. CBOR is written as kube-apiserver
//! writes it since 1.37, where its gate is on: strings as byte strings, keys sorted.

use serde_json::Value;

use super::negotiate::Encoding;
use crate::wire::{put_bytes, put_number};

/// Converts a JSON document to another encoding; `None` if that encoding has no form for it.
pub(crate) fn encode(json: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    let document: Value = serde_json::from_slice(json).ok()?;
    match encoding {
        Encoding::Json => Some(json.to_vec()),
        Encoding::Yaml => serde_saphyr::to_string(&document).ok().map(String::into_bytes),
        Encoding::Cbor => Some(cbor(&document)),
        Encoding::Protobuf => protobuf(&document),
    }
}

/// The document as CBOR, with the tag by which Kubernetes recognizes it.
fn cbor(document: &Value) -> Vec<u8> {
    let mut out = vec![0xd9, 0xd9, 0xf7];
    put_cbor(&mut out, document);
    out
}

/// Appends a value. Discovery has no numbers but whole ones.
fn put_cbor(out: &mut Vec<u8>, value: &Value) {
    const UNSIGNED: u8 = 0;
    const NEGATIVE: u8 = 1;
    const BYTES: u8 = 2;
    const ARRAY: u8 = 4;
    const MAP: u8 = 5;
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(false) => out.push(0xf4),
        Value::Bool(true) => out.push(0xf5),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => put_head(out, UNSIGNED, number),
            (None, Some(number)) => put_head(out, NEGATIVE, number.unsigned_abs() - 1),
            (None, None) => {
                out.push(0xfb);
                out.extend_from_slice(&number.as_f64().unwrap_or_default().to_be_bytes());
            }
        },
        Value::String(text) => put_text(out, BYTES, text),
        Value::Array(items) => {
            put_head(out, ARRAY, items.len() as u64);
            items.iter().for_each(|item| put_cbor(out, item));
        }
        Value::Object(fields) => {
            put_head(out, MAP, fields.len() as u64);
            let mut fields: Vec<_> = fields.iter().collect();
            // By their bytes in CBOR: the length comes first.
            fields.sort_by_key(|(key, _)| (key.len(), *key));
            for (key, value) in fields {
                put_text(out, BYTES, key);
                put_cbor(out, value);
            }
        }
    }
}

fn put_text(out: &mut Vec<u8>, kind: u8, text: &str) {
    put_head(out, kind, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the type of a value with its number or length, in as few bytes as possible.
fn put_head(out: &mut Vec<u8>, kind: u8, number: u64) {
    let kind = kind << 5;
    match number {
        0..=23 => out.push(kind | number as u8),
        24..=0xff => out.extend_from_slice(&[kind | 24, number as u8]),
        0x100..=0xffff => {
            out.push(kind | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(kind | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(kind | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A message of Kubernetes' protobuf schema: its fields in the order of their numbers.
type Schema = &'static [(u64, &'static str, Type)];

/// The type of a field, and when the field is written.
#[derive(Clone, Copy)]
enum Type {
    /// A string, always written.
    Text,
    /// A boolean, always written.
    Bool,
    /// Repeated strings.
    Texts,
    /// A list of strings wrapped in a message, written if present.
    Verbs,
    /// A message, written if present.
    Optional(Schema),
    /// A message, always written.
    Embedded(Schema),
    /// Repeated messages.
    Messages(Schema),
    /// A number, always written as 0: discovery never sets it.
    Zero,
}

use Type::{Bool, Embedded, Messages, Optional, Text, Texts, Verbs, Zero};

const API_VERSIONS: Schema =
    &[(1, "versions", Texts), (2, "serverAddressByClientCIDRs", Messages(SERVER_ADDRESS))];
const SERVER_ADDRESS: Schema = &[(1, "clientCIDR", Text), (2, "serverAddress", Text)];
const GROUP_LIST: Schema = &[(1, "groups", Messages(GROUP))];
const GROUP: Schema = &[
    (1, "name", Text),
    (2, "versions", Messages(GROUP_VERSION)),
    (3, "preferredVersion", Embedded(GROUP_VERSION)),
    (4, "serverAddressByClientCIDRs", Messages(SERVER_ADDRESS)),
];
const GROUP_VERSION: Schema = &[(1, "groupVersion", Text), (2, "version", Text)];
const RESOURCE_LIST: Schema = &[(1, "groupVersion", Text), (2, "resources", Messages(RESOURCE))];
const RESOURCE: Schema = &[
    (1, "name", Text),
    (2, "namespaced", Bool),
    (3, "kind", Text),
    (4, "verbs", Verbs),
    (5, "shortNames", Texts),
    (6, "singularName", Text),
    (7, "categories", Texts),
    (8, "group", Text),
    (9, "version", Text),
    (10, "storageVersionHash", Text),
];

const AGGREGATED: Schema =
    &[(1, "metadata", Embedded(LIST_META)), (2, "items", Messages(AGGREGATED_GROUP))];
const LIST_META: Schema =
    &[(1, "selfLink", Text), (2, "resourceVersion", Text), (3, "continue", Text)];
const AGGREGATED_GROUP: Schema =
    &[(1, "metadata", Embedded(OBJECT_META)), (2, "versions", Messages(AGGREGATED_VERSION))];
const OBJECT_META: Schema = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Zero),
    (8, "creationTimestamp", Embedded(&[])),
];
const AGGREGATED_VERSION: Schema = &[
    (1, "version", Text),
    (2, "resources", Messages(AGGREGATED_RESOURCE)),
    (3, "freshness", Text),
];
const AGGREGATED_RESOURCE: Schema = &[
    (1, "resource", Text),
    (2, "responseKind", Optional(KIND)),
    (3, "scope", Text),
    (4, "singularResource", Text),
    (5, "verbs", Texts),
    (6, "shortNames", Texts),
    (7, "categories", Texts),
    (8, "subresources", Messages(AGGREGATED_SUBRESOURCE)),
];
const AGGREGATED_SUBRESOURCE: Schema = &[
    (1, "subresource", Text),
    (2, "responseKind", Optional(KIND)),
    (3, "acceptedTypes", Messages(KIND)),
    (4, "verbs", Texts),
];
const KIND: Schema = &[(1, "group", Text), (2, "version", Text), (3, "kind", Text)];

/// The document in Kubernetes' protobuf envelope.
fn protobuf(document: &Value) -> Option<Vec<u8>> {
    let text = |key| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = text("kind");
    let schema = match kind {
        "APIVersions" => API_VERSIONS,
        "APIGroupList" => GROUP_LIST,
        "APIGroup" => GROUP,
        "APIResourceList" => RESOURCE_LIST,
        "APIGroupDiscoveryList" => AGGREGATED,
        _ => return None,
    };
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, text("apiVersion").as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());

    let mut out = b"k8s\0".to_vec();
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, &message(document, schema));
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Some(out)
}

fn message(value: &Value, schema: Schema) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, name, kind) in schema {
        put_field(&mut out, *number, value.get(name).filter(|value| !value.is_null()), *kind);
    }
    out
}

fn put_field(out: &mut Vec<u8>, number: u64, value: Option<&Value>, kind: Type) {
    let elements = || value.and_then(Value::as_array).into_iter().flatten();
    let texts = || elements().map(|element| element.as_str().unwrap_or_default());
    match kind {
        Text => {
            put_bytes(out, number, value.and_then(Value::as_str).unwrap_or_default().as_bytes())
        }
        Bool => {
            let value = value.and_then(Value::as_bool).unwrap_or_default();
            put_number(out, number, u64::from(value));
        }
        Zero => put_number(out, number, 0),
        Texts => texts().for_each(|text| put_bytes(out, number, text.as_bytes())),
        Verbs => {
            if value.is_some() {
                let mut items = Vec::new();
                texts().for_each(|text| put_bytes(&mut items, 1, text.as_bytes()));
                put_bytes(out, number, &items);
            }
        }
        Optional(schema) => {
            if let Some(value) = value {
                put_bytes(out, number, &message(value, schema));
            }
        }
        Embedded(schema) => {
            put_bytes(out, number, &message(value.unwrap_or(&Value::Null), schema));
        }
        Messages(schema) => {
            elements().for_each(|element| put_bytes(out, number, &message(element, schema)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fixtures hold the protobuf and the JSON of the same document, from real servers.
    #[test]
    fn protobuf_equals_that_of_real_servers() {
        for server in ["v1.34.10", "v1.36.4"] {
            let file = format!("tests/fixtures/recorded/{server}.json");
            let recorded: Value =
                serde_json::from_slice(&std::fs::read(file).expect("a fixture")).expect("JSON");
            let mut compared = 0;
            for (path, encodings) in recorded["encoded"].as_object().expect("paths") {
                for (accept, expected) in encodings.as_object().expect("encodings") {
                    let form = if accept.contains("as=") { "aggregated" } else { "legacy" };
                    let json = recorded[form][path].to_string();
                    let ours = encode(json.as_bytes(), Encoding::Protobuf).expect("a document");
                    let ours: String = ours.iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!(Some(ours.as_str()), expected.as_str(), "{server} {path} {accept}");
                    compared += 1;
                }
            }
            assert_eq!(compared, 7, "{server}");
        }
    }

    #[test]
    fn yaml_has_the_content_of_the_json() {
        let json = br#"{"kind":"APIGroup","name":"yes","versions":[{"version":"1.0"},{"version":"v1: x"}]}"#;
        let yaml = encode(json, Encoding::Yaml).expect("a document");
        let read: Value = serde_saphyr::from_slice(&yaml).expect("YAML");
        assert_eq!(read, serde_json::from_slice::<Value>(json).expect("JSON"));
    }

    /// The examples of RFC 8949, appendix A, with byte strings in the place of text.
    #[test]
    fn cbor_is_as_the_standard_says() {
        let cases: [(&str, &[u8]); 14] = [
            ("0", &[0x00]),
            ("23", &[0x17]),
            ("24", &[0x18, 0x18]),
            ("1000", &[0x19, 0x03, 0xe8]),
            ("1000000", &[0x1a, 0x00, 0x0f, 0x42, 0x40]),
            ("1000000000000", &[0x1b, 0x00, 0x00, 0x00, 0xe8, 0xd4, 0xa5, 0x10, 0x00]),
            ("-1", &[0x20]),
            ("-1000", &[0x39, 0x03, 0xe7]),
            ("1.1", &[0xfb, 0x3f, 0xf1, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a]),
            ("false", &[0xf4]),
            ("null", &[0xf6]),
            (r#""IETF""#, &[0x44, 0x49, 0x45, 0x54, 0x46]),
            ("[1,[2,3],[4,5]]", &[0x83, 0x01, 0x82, 0x02, 0x03, 0x82, 0x04, 0x05]),
            (r#"{"bb":true,"c":1}"#, &[0xa2, 0x41, 0x63, 0x01, 0x42, 0x62, 0x62, 0xf5]),
        ];
        for (json, expected) in cases {
            let encoded = encode(json.as_bytes(), Encoding::Cbor).expect("CBOR");
            let (tag, value) = encoded.split_at(3);
            assert_eq!((tag, value), (&[0xd9, 0xd9, 0xf7][..], expected), "{json}");
        }
        let long = format!("\"{}\"", "x".repeat(300));
        let encoded = encode(long.as_bytes(), Encoding::Cbor).expect("CBOR");
        assert_eq!(encoded.get(3..6), Some(&[0x59, 0x01, 0x2c][..]));
        assert_eq!(encoded.len(), 306);
    }
}
