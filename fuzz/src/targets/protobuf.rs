//! Objects in Kubernetes' protobuf encoding, as the small API server decodes them.

use std::io::Read;

use flate2::read::GzDecoder;
use mvp_apiserver::fuzzing::decode_protobuf;
use serde_json::Value;

use crate::target::{Target, repository};

pub const TARGET: Target = Target {
    name: "protobuf",
    run,
    seeds,
    words: &["k8s\0", "v1", "apps/v1", "Pod", "Deployment", "ConfigMap", "\n", "\u{12}", "\u{1a}"],
};

fn run(data: &[u8]) {
    check(data);
    // Most changes break the frame; what is in it counts, too.
    check(&[b"k8s\0", data].concat());
    let raw = |kind: &[u8], version: &[u8]| {
        let mut out = b"k8s\0\x0a".to_vec();
        out.push((kind.len() + version.len() + 4) as u8);
        for (number, text) in [(0x0a, version), (0x12, kind)] {
            out.extend([number, text.len() as u8]);
            out.extend(text);
        }
        out.push(0x12);
        let mut length = data.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        [&out, data].concat()
    };
    for (kind, version) in [(&b"Pod"[..], &b"v1"[..]), (b"Deployment", b"apps/v1")] {
        check(&raw(kind, version));
    }
}

fn check(body: &[u8]) {
    let Some(object) = decode_protobuf(body) else { return };
    assert!(body.starts_with(b"k8s\0"));
    let text = |name: &str| object[name].as_str().is_some_and(|text| !text.is_empty());
    assert!(text("kind") && text("apiVersion"), "{object}");
    let again: Value = serde_json::from_str(&object.to_string()).expect("JSON");
    assert_eq!(again, object);
}

fn seeds() -> Vec<Vec<u8>> {
    let path = repository("crates/mvp-apiserver/tests/fixtures/protobuf.jsonl.gz");
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("the fixture");
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = line["protobuf"].as_str().unwrap_or_default();
        data_encoding::BASE64.decode(text.as_bytes()).expect("base64")
    };
    let all = text.lines().map(line).filter(|seed| seed.len() < 3000);
    all.chain([b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00".to_vec()]).take(120).collect()
}
