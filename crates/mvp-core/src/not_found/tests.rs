//! Judgements of recorded, composed and malformed bodies.

use super::*;

const STATUS: &str =
    r#"{"kind":"Status","message":"the server could not find the requested resource""#;

/// As Kubernetes' CBOR serializer writes them.
const CBOR_UNROUTED: &str = "d9d9f7a844636f6465190194446b696e644653746174757346726561736f6e484e6f74\
    466f756e6446737461747573474661696c7572654764657461696c73a0476d6573736167655830746865207365727665\
    7220636f756c64206e6f742066696e642074686520726571756573746564207265736f75726365486d65746164617461\
    a04a61706956657273696f6e427631";
const CBOR_OBJECT: &str = "d9d9f7a844636f6465190194446b696e644653746174757346726561736f6e484e6f7446\
    6f756e6446737461747573474661696c7572654764657461696c73a3446b696e644b6465706c6f796d656e7473446e61\
    6d65446e6f70654567726f75704461707073476d65737361676558216465706c6f796d656e74732e6170707320226e6f\
    706522206e6f7420666f756e64486d65746164617461a04a61706956657273696f6e427631";

#[test]
fn recorded_404s_are_told_apart() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recorded/not-found.jsonl");
    let recorded = std::fs::read_to_string(path).unwrap();
    let (mut unrouted, mut object) = (0, 0);
    for line in recorded.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let case = line["case"].as_str().unwrap();
        let body = match line["text"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => unhex(line["hex"].as_str().unwrap()),
        };
        // For a custom resource, a missing subresource looks like a missing object.
        let is_unrouted = case.contains("unknown") && case != "CRD unknown subresource";
        let expected = if is_unrouted { NotFound::Unrouted } else { NotFound::Object };
        let content_type = line["content_type"].as_str().unwrap();
        assert_eq!(judge(content_type, &body), expected, "{line}");
        *(if is_unrouted { &mut unrouted } else { &mut object }) += 1;
    }
    assert!(unrouted > 20 && object > 15, "{unrouted} and {object}");
}

#[test]
fn cbor_is_read() {
    let cbor = "application/cbor";
    for (hex, expected) in [(CBOR_UNROUTED, NotFound::Unrouted), (CBOR_OBJECT, NotFound::Object)] {
        let body = unhex(hex);
        assert_eq!(judge(cbor, &body), expected);
        assert_eq!(judge(cbor, &body[3..]), expected, "without the tag");
        for cut in 0..body.len() {
            assert_eq!(judge(cbor, &body[..cut]), NotFound::Unclear, "cut at {cut}");
        }
    }
    // Texts as text strings instead of byte strings.
    let texts = b"\xa3\x64kind\x66Status\x67message\x62no\x67details\xa1\x64name\x61x";
    assert_eq!(judge(cbor, texts), NotFound::Object);
    let nested = [b"\xa1\x41x".as_slice(), &[0x81; 16 << 10]].concat();
    assert_eq!(judge(cbor, &nested), NotFound::Unclear, "nested too deeply");
    assert_eq!(judge(cbor, b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"), NotFound::Unclear);
}

#[test]
fn a_status_of_an_object_or_a_webhook_is_believed() {
    let cases = [
        // A webhook chooses the code, and need not name an object.
        ("application/json", r#"{"kind":"Status","message":"admission webhook \"x\" denied it"}"#),
        (
            "application/yaml",
            "kind: Status\nmessage: 'admission webhook \"x.example\" denied the request: no'\n",
        ),
        (
            "application/yaml",
            "kind: Status\nmessage: |-\n  admission webhook \"x\" denied it:\n  no\n",
        ),
        ("application/yaml", "details:\n  causes:\n  - message: x\n  name: \"1\"\nkind: Status\n"),
        ("APPLICATION/JSON;charset=utf-8", r#"{"details":{"name":"x"},"kind":"Status"}"#),
        // Unknown fields, and fields of other types.
        (
            "application/json",
            r#"{"kind":"Status","x":[{"name":""}],"details":{"y":{},"name":"x"}}"#,
        ),
    ];
    for (content_type, body) in cases {
        assert_eq!(judge(content_type, body.as_bytes()), NotFound::Object, "{content_type} {body}");
    }
}

#[test]
fn malformed_and_foreign_404s_prove_nothing() {
    let cases = [
        ("text/plain", "404 page not found, dear user"),
        ("text/html", "404 page not found"),
        ("application/json", STATUS),
        ("application/json", &format!("{STATUS},\"details\":{{\"kind\":\"x\"}}}}")),
        ("application/json", &format!("{STATUS},\"details\":{{\"name\":1}}}}")),
        ("application/json", "{\"kind\":\"Status\"}"),
        ("application/json", r#"{"kind":"Status","details":{"name":""}}"#),
        ("application/json", r#"{"kind":"Status","details":{"causes":[{"name":"x"}]}}"#),
        ("application/json", r#"{"kind":"Pod","details":{"name":"x"}}"#),
        ("application/json", r#"{"details":{"name":"x"}}"#),
        (
            "application/json",
            r#"{"kind":"Status","message":"an admission webhook \"x\" denied it"}"#,
        ),
        ("application/json", "[]"),
        ("application/yaml", "kind: Status\nmessage: nothing\n"),
        ("application/yaml", "kind: Status\nmessage: |\n  details:\n    name: x\n"),
        ("application/vnd.kubernetes.protobuf", "k8s\0\u{12}\u{7f}"),
        ("application/vnd.kubernetes.protobuf", ""),
        ("application/cbor", ""),
        ("application/octet-stream", r#"{"kind":"Status","details":{"name":"x"}}"#),
        ("", ""),
    ];
    for (content_type, body) in cases {
        assert_eq!(
            judge(content_type, body.as_bytes()),
            NotFound::Unclear,
            "{content_type} {body}"
        );
    }
    for end in ["}", ",\"details\":{}}", ",\"details\":null}"] {
        let whole = format!("{STATUS}{end}");
        let judged = judge("application/json; charset=utf-8", whole.as_bytes());
        assert_eq!(judged, NotFound::Unrouted, "{whole}");
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}
