//! The merge of `/openapi/v2` of all members: the union of paths and definitions.
//!
//! If two documents have different content for a name, the first counts. The caller puts the newest
//! member first, so that every gateway has the same result. Entry item: [`merge`].

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

use crate::discovery::json::{self, Object};
use crate::discovery::{Limits, Problem};
use crate::wire::{self, put_bytes};

/// The encoding of a document of version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON
    Json,
    /// Protobuf
    Protobuf,
}

/// The error for something that is not a document of version 2.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum V2Error {
    /// Malformed JSON.
    #[error("{0}")]
    Json(Problem),
    /// JSON of something else.
    #[error("the document has no `swagger: \"2.0\"`")]
    NotVersion2,
    /// Malformed protobuf, or protobuf of something else.
    #[error("the document is not OpenAPI v2 in protobuf")]
    Protobuf,
}

/// The fields whose entries are merged by name.
const UNITED: [&str; 5] =
    ["paths", "definitions", "parameters", "responses", "securityDefinitions"];

/// Checks that a document can be merged, and prepares it for [`merge`].
pub fn prepare(document: Bytes, format: Format, limits: &Limits) -> Result<Bytes, V2Error> {
    match format {
        Format::Json => {
            let document = json::prepare(document, limits).map_err(V2Error::Json)?;
            let bad = |error: serde_json::Error| V2Error::Json(Problem::syntax(&error));
            let whole: Object<'_> = serde_json::from_slice(&document).map_err(bad)?;
            if whole.string("swagger").map_err(bad)? != "2.0" {
                return Err(V2Error::NotVersion2);
            }
            merge_json(&[&document]).map_err(bad)?;
            Ok(document)
        }
        Format::Protobuf if document.len() > limits.max_bytes => {
            let (bytes, limit) = (document.len(), limits.max_bytes);
            Err(V2Error::Json(Problem::TooLarge { bytes, limit }))
        }
        Format::Protobuf => {
            merge_protobuf(&[&document]).ok_or(V2Error::Protobuf)?;
            Ok(document)
        }
    }
}

/// Merges documents from [`prepare`]. Where they differ, the first counts. `None` if there are none.
pub fn merge(documents: &[Bytes], format: Format) -> Option<Bytes> {
    let documents: Vec<&[u8]> = documents.iter().map(|document| &**document).collect();
    match (documents.as_slice(), format) {
        ([], _) => None,
        (documents, Format::Json) => merge_json(documents).ok().map(Bytes::from),
        (documents, Format::Protobuf) => merge_protobuf(documents).map(Bytes::from),
    }
}

fn merge_json(documents: &[&[u8]]) -> Result<Vec<u8>, serde_json::Error> {
    let parsed: Vec<Object<'_>> = documents
        .iter()
        .map(|document| serde_json::from_slice(document))
        .collect::<Result<_, _>>()?;
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    for document in &parsed {
        for (name, value) in document.fields() {
            let values = texts.entry(name).or_default();
            if values.is_empty() {
                names.push(name);
            }
            values.push(value);
        }
    }
    let mut out =
        Vec::with_capacity(documents.iter().map(|document| document.len()).max().unwrap_or(0));
    for (place, name) in names.into_iter().enumerate() {
        out.push(if place == 0 { b'{' } else { b',' });
        out.extend_from_slice(json::quoted(name).as_bytes());
        out.push(b':');
        let values = texts.get(name).map(Vec::as_slice).unwrap_or_default();
        if UNITED.contains(&name) {
            unite(&mut out, values)?;
        } else if let Some(first) = values.first() {
            out.extend_from_slice(first.as_bytes());
        }
    }
    out.extend_from_slice(if out.is_empty() { b"{}" } else { b"}" });
    Ok(out)
}

/// Writes the union of objects, sorted by name as kube-apiserver does.
fn unite(out: &mut Vec<u8>, objects: &[&str]) -> Result<(), serde_json::Error> {
    let parsed: Vec<Option<Object<'_>>> =
        objects.iter().map(|object| serde_json::from_str(object)).collect::<Result<_, _>>()?;
    let mut united: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in parsed.iter().flatten().flat_map(Object::fields) {
        united.entry(name).or_insert(value);
    }
    for (place, (name, value)) in united.iter().enumerate() {
        out.push(if place == 0 { b'{' } else { b',' });
        out.extend_from_slice(json::quoted(name).as_bytes());
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(if united.is_empty() { b"{}" } else { b"}" });
    Ok(())
}

/// The protobuf fields whose entries are merged by name, with the field number of the entries.
const NAMED: [(u64, u64); 5] = [
    // paths: vendor extensions have number 1
    (8, 2),
    // definitions, parameters, responses, security definitions
    (9, 1),
    (10, 1),
    (11, 1),
    (13, 1),
];

fn merge_protobuf(documents: &[&[u8]]) -> Option<Vec<u8>> {
    let mut parsed = Vec::with_capacity(documents.len());
    for document in documents {
        let fields = wire::fields(document)?;
        // Field 1 is the version, `2.0`.
        fields.iter().find(|field| field.number == 1).and_then(|field| field.bytes)?;
        parsed.push(fields);
    }
    let mut out = Vec::with_capacity(documents.iter().map(|document| document.len()).max()?);
    let numbers: std::collections::BTreeSet<u64> =
        parsed.iter().flatten().map(|field| field.number).collect();
    for number in numbers {
        let of_number = |fields: &Vec<wire::Field<'_>>| fields.iter().any(|f| f.number == number);
        if let Some((_, entry)) = NAMED.iter().find(|(named, _)| *named == number) {
            let messages =
                parsed.iter().flatten().filter(|f| f.number == number).filter_map(|f| f.bytes);
            put_bytes(&mut out, number, &unite_named(messages, *entry)?);
        } else {
            let first = parsed.iter().find(|fields| of_number(fields));
            for field in first.into_iter().flatten().filter(|field| field.number == number) {
                out.extend_from_slice(field.whole);
            }
        }
    }
    Some(out)
}

/// The union of messages whose entries have a name. Other fields come from the first message.
fn unite_named<'a>(messages: impl Iterator<Item = &'a [u8]>, entry: u64) -> Option<Vec<u8>> {
    let mut named: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    let mut others: Vec<&[u8]> = Vec::new();
    for (place, message) in messages.enumerate() {
        for field in wire::fields(message)? {
            match field.bytes {
                Some(bytes) if field.number == entry => {
                    let name = wire::fields(bytes)?.into_iter().find(|field| field.number == 1);
                    let name = name.and_then(|field| field.bytes).unwrap_or_default();
                    named.entry(name).or_insert(field.whole);
                }
                _ if place == 0 => others.push(field.whole),
                _ => {}
            }
        }
    }
    Some(others.into_iter().chain(named.into_values()).flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document(value: &Value) -> Bytes {
        let limits = Limits::default();
        prepare(Bytes::from(value.to_string()), Format::Json, &limits).expect("a document")
    }

    #[test]
    fn json_documents_are_united_and_the_first_counts() {
        let newer = document(&json!({
            "swagger": "2.0", "info": {"version": "v1.36"},
            "paths": {"/apis/b": 1, "/version": 1},
            "definitions": {"Pod": {"new": true}, "Only36": {}},
        }));
        let older = document(&json!({
            "swagger": "2.0", "info": {"version": "v1.34"},
            "paths": {"/apis/a": 2, "/version": 2},
            "definitions": {"Pod": {"new": false}, "Only34": {}},
            "securityDefinitions": {"BearerToken": {}},
        }));
        let merged = merge(&[newer, older], Format::Json).expect("a document");
        let expected = json!({
            "swagger": "2.0", "info": {"version": "v1.36"},
            "paths": {"/apis/a": 2, "/apis/b": 1, "/version": 1},
            "definitions": {"Pod": {"new": true}, "Only34": {}, "Only36": {}},
            "securityDefinitions": {"BearerToken": {}},
        });
        assert_eq!(serde_json::from_slice::<Value>(&merged).expect("JSON"), expected);
    }

    fn named(number: u64, entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut message = Vec::new();
        for (name, value) in entries {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, name.as_bytes());
            put_bytes(&mut entry, 2, value);
            put_bytes(&mut message, number, &entry);
        }
        message
    }

    fn protobuf(paths: &[(&str, &[u8])], definitions: &[(&str, &[u8])]) -> Bytes {
        let mut document = Vec::new();
        put_bytes(&mut document, 1, b"2.0");
        put_bytes(&mut document, 8, &named(2, paths));
        put_bytes(&mut document, 9, &named(1, definitions));
        prepare(document.into(), Format::Protobuf, &Limits::default()).expect("a document")
    }

    #[test]
    fn protobuf_documents_are_united_and_the_first_counts() {
        let newer = protobuf(&[("/b", b"1"), ("/v", b"1")], &[("Pod", b"new")]);
        let older = protobuf(&[("/a", b"2"), ("/v", b"2")], &[("Pod", b"old"), ("Old", b"")]);
        let merged = merge(&[newer.clone(), older], Format::Protobuf).expect("a document");
        let expected =
            protobuf(&[("/a", b"2"), ("/b", b"1"), ("/v", b"1")], &[("Old", b""), ("Pod", b"new")]);
        assert_eq!(merged, expected);
        assert_eq!(merge(std::slice::from_ref(&newer), Format::Protobuf), Some(newer));
    }

    #[test]
    fn malformed_documents_are_rejected() {
        let limits = Limits { max_bytes: 100, ..Limits::default() };
        let bad = [
            "",
            "[]",
            "null",
            "{",
            r#"{"swagger":"2.0","paths":[]}"#,
            r#"{"swagger":"2.0","definitions":7}"#,
        ];
        for text in bad {
            let prepared = prepare(Bytes::copy_from_slice(text.as_bytes()), Format::Json, &limits);
            assert!(matches!(prepared, Err(V2Error::Json(_))), "{text}");
        }
        for text in ["{}", r#"{"kind":"Status","code":503}"#, r#"{"swagger":"1.2"}"#] {
            let prepared = prepare(Bytes::copy_from_slice(text.as_bytes()), Format::Json, &limits);
            assert_eq!(prepared, Err(V2Error::NotVersion2), "{text}");
        }
        for bytes in [&b"{}"[..], b"", b"\x0a\x05"] {
            let prepared = prepare(Bytes::from_static(bytes), Format::Protobuf, &limits);
            assert_eq!(prepared, Err(V2Error::Protobuf), "{bytes:?}");
        }
        for format in [Format::Json, Format::Protobuf] {
            let prepared = prepare(Bytes::from(vec![b' '; 101]), format, &limits);
            assert!(matches!(prepared, Err(V2Error::Json(Problem::TooLarge { .. }))));
        }
        assert_eq!(merge(&[], Format::Json), None);
    }
}
