//! Discovery documents in the other encodings of kube-apiserver, converted from JSON. Entry item:
//! [`encode`].
//!
//! YAML has all the content of the JSON. Protobuf has only the fields of its schema: unknown fields
//! have no number and are left out, as by a server of that schema. No server serves discovery as
//! CBOR.

use serde_json::Value;

use super::negotiate::Encoding;
use crate::wire::{put_bytes, put_number};

/// Converts a JSON document to another encoding; `None` if that encoding has no form for it.
pub(crate) fn encode(json: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    let document: Value = serde_json::from_slice(json).ok()?;
    match encoding {
        Encoding::Json => Some(json.to_vec()),
        Encoding::Yaml => serde_saphyr::to_string(&document).ok().map(String::into_bytes),
        Encoding::Cbor => None,
        Encoding::Protobuf => protobuf(&document),
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
}
