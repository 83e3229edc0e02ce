use std::io::Read;
use std::sync::OnceLock;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;

/// An object that Kubernetes encoded, and the JSON that Kubernetes makes of these bytes.
#[derive(Deserialize)]
struct Fixture {
    name: String,
    protobuf: String,
    json: Value,
}

/// Reads the fixtures once: name, body and expected JSON.
fn fixtures() -> &'static [(String, Vec<u8>, Value)] {
    static FIXTURES: OnceLock<Vec<(String, Vec<u8>, Value)>> = OnceLock::new();
    FIXTURES.get_or_init(read_fixtures)
}

fn read_fixtures() -> Vec<(String, Vec<u8>, Value)> {
    let mut text = String::new();
    let file: &[u8] = include_bytes!("../../tests/fixtures/protobuf.jsonl.gz");
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let line = |line| {
        let fixture: Fixture = serde_json::from_str(line).unwrap();
        (fixture.name, unbase64(&fixture.protobuf), fixture.json)
    };
    text.lines().map(line).collect()
}

fn unbase64(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits: Vec<u8> = text
        .trim_end_matches('=')
        .bytes()
        .flat_map(|letter| (0..6).rev().map(move |bit| digit(letter) >> bit & 1))
        .collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |value, bit| value << 1 | bit)).collect()
}

fn bytes_field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    for mut value in [number << 3 | 2, content.len() as u64] {
        while value >= 0x80 {
            field.push(value as u8 | 0x80);
            value >>= 7;
        }
        field.push(value as u8);
    }
    field.extend_from_slice(content);
    field
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta =
        [bytes_field(1, api_version.as_bytes()), bytes_field(2, kind.as_bytes())].concat();
    [PREFIX.to_vec(), bytes_field(1, &type_meta), bytes_field(2, raw)].concat()
}

fn message(body: &[u8]) -> String {
    let status = decode(body).expect_err("a failure").into_status();
    let status = serde_json::to_value(status).unwrap();
    assert_eq!(status["code"], 400);
    status["message"].as_str().unwrap().to_owned()
}

#[test]
fn objects_decode_as_in_kubernetes() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 150, "{}", fixtures.len());
    for (name, bytes, expected) in fixtures {
        match decode(bytes) {
            Ok(value) => assert_eq!(value, *expected, "{name}"),
            Err(failure) => panic!("{name}: {failure:?}"),
        }
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let name = bytes_field(1, &bytes_field(1, b"a"));
    let unknown = [&[0xf8, 0x7f, 1][..], &[0xf9, 0x7f], &[0; 8], &[0xfd, 0x7f], &[0; 4]].concat();
    let body = envelope("v1", "Namespace", &[bytes_field(900, b"new"), name, unknown].concat());
    let expected = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" }, "spec": {}, "status": {},
    });
    assert_eq!(decode(&body).unwrap(), expected);
}

#[test]
fn wrong_bodies_are_bad_requests() {
    assert!(message(b"").contains("empty data"));
    assert!(message(PREFIX).contains("empty body"));
    assert!(message(b"{\"kind\":\"Pod\"}").contains("expected prefix [107 56 115 0]"));
    assert!(message(&envelope("v1", "", b"")).contains("'Kind' is missing"));
    assert!(message(&envelope("", "Pod", b"")).contains("'apiVersion' is missing"));
    let unknown = message(&envelope("example.com/v1", "Widget", b""));
    assert!(unknown.contains("no kind \"Widget\" is registered for version \"example.com/v1\""));
    // `metadata` as a number, and a name that is longer than the message.
    assert!(message(&envelope("v1", "Pod", &[0x08, 1])).contains("metadata: wrong wire type"));
    assert!(message(&envelope("v1", "Pod", &[0x0a, 2, 0x0a, 9])).contains("malformed"));
    let encoded = [envelope("v1", "Pod", b""), bytes_field(3, b"gzip")].concat();
    assert!(message(&encoded).contains("content encoding"));
}

#[test]
fn nesting_is_bounded() {
    // `not` of a schema, again and again.
    let mut schema = bytes_field(4, b"leaf");
    for _ in 0..200 {
        schema = bytes_field(28, &schema);
    }
    let version = [bytes_field(1, b"v1"), bytes_field(4, &bytes_field(1, &schema))].concat();
    let spec = bytes_field(2, &bytes_field(7, &version));
    let body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &spec);
    assert!(message(&body).contains("nested too deeply"));
}

#[test]
fn the_number_of_values_is_bounded() {
    // Two bytes each, of which every one would become an object.
    let containers = bytes_field(2, &[]).repeat(1 << 20);
    let body = envelope("v1", "Pod", &bytes_field(2, &containers));
    assert!(message(&body).contains("too many values"));
}

#[test]
fn a_truncated_body_never_panics() {
    for (_, bytes, _) in fixtures().iter().take(40) {
        for end in 0..bytes.len() {
            let _ = decode(&bytes[..end]);
        }
    }
}

proptest! {
    #[test]
    fn a_changed_body_never_panics(which in 0usize..150, place in any::<usize>(), byte: u8) {
        let mut bytes = fixtures()[which].1.clone();
        let place = place % bytes.len();
        bytes[place] = byte;
        let _ = decode(&bytes);
    }
}
