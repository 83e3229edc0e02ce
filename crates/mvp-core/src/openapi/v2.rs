//! `/openapi/v2` of all members: paths and definitions united.
//!
//! Where two members give one name another content, the first document counts; whoever calls this
//! puts the newest member first, so that every gateway has the same. Entry item: [`merge`].

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

use crate::discovery::json::{self, Object};
use crate::discovery::{Limits, Problem};
use crate::wire::{self, put_bytes};

/// How a document of version 2 is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// As JSON.
    Json,
    /// As protobuf.
    Protobuf,
}

/// Something that is no document of version 2.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum V2Error {
    /// Of JSON.
    #[error("{0}")]
    Json(Problem),
    /// JSON of something else.
    #[error("it does not say that it is `swagger: 2.0`")]
    NotVersion2,
    /// Of protobuf.
    #[error("it is not an OpenAPI document in protobuf")]
    Protobuf,
}

/// The fields whose entries are united.
const UNITED: [&str; 5] =
    ["paths", "definitions", "parameters", "responses", "securityDefinitions"];

/// Checks that a document can be merged with others, and makes it ready for that.
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

/// One document of many, which were prepared; the first counts where they differ. Nothing where
/// there is none.
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

/// One object of many, in the order of its names, as kube-apiserver writes it.
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

/// The fields of a document in protobuf whose entries have names, and the number of the entries.
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
        // It says first that it is `2.0`.
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

/// Unites messages whose entries of that number have a name; of others, the first one's are taken.
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
    fn what_any_document_has_is_there_and_the_first_counts_where_they_differ() {
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
    fn protobuf_is_united_as_json_is() {
        let newer = protobuf(&[("/b", b"1"), ("/v", b"1")], &[("Pod", b"new")]);
        let older = protobuf(&[("/a", b"2"), ("/v", b"2")], &[("Pod", b"old"), ("Old", b"")]);
        let merged = merge(&[newer.clone(), older], Format::Protobuf).expect("a document");
        let expected =
            protobuf(&[("/a", b"2"), ("/b", b"1"), ("/v", b"1")], &[("Old", b""), ("Pod", b"new")]);
        assert_eq!(merged, expected);
        assert_eq!(merge(std::slice::from_ref(&newer), Format::Protobuf), Some(newer));
    }

    #[test]
    fn what_is_no_document_is_told() {
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
