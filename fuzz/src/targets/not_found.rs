//! What a 404 proves, by its body in any encoding. A body that proves that nothing was processed lets a
//! write be sent again, so "unrouted" must never be said of anything else.

use mvp_core::not_found::{NotFound, judge};
use serde_json::Value;

use crate::target::{Target, lines};

const TYPES: [&str; 6] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/yaml; charset=utf-8",
    "text/plain",
    "text/html",
];

const UNROUTED: &str = "the server could not find the requested resource";

pub const TARGET: Target = Target {
    name: "not_found",
    run,
    seeds,
    words: &[
        "\"kind\":\"Status\"",
        "\"message\":",
        "\"details\":",
        "\"name\":",
        UNROUTED,
        "admission webhook \\\"",
        "kind: Status",
        "message: ",
        "details:",
        "&a ",
        "*a",
        "<<: ",
        "k8s\0",
        "404 page not found",
        "\u{0}",
        "null",
        "{}",
        "!!binary ",
        "|-\n ",
        "---\n",
    ],
};

fn run(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let kind = TYPES[usize::from(*first) % TYPES.len()];
    let verdict = judge(kind, body);
    assert_eq!(judge(&kind.to_ascii_uppercase(), body), verdict, "any case");
    let text = String::from_utf8_lossy(body);
    if verdict == NotFound::Unrouted {
        // The body says so, in these words.
        let says = text.contains(UNROUTED) || text.trim().contains("404 page not found");
        let escaped = text.contains('\\') || text.contains('\n') || kind.contains("cbor");
        assert!(says || escaped, "{kind}: {text}");
    }
    if kind.starts_with("text/") && verdict != NotFound::Unclear {
        assert_eq!(body.trim_ascii(), b"404 page not found");
    }
    if kind == "application/json"
        && let Ok(value) = serde_json::from_slice::<Value>(body)
        && value["kind"] != "Status"
    {
        assert_eq!(verdict, NotFound::Unclear, "{text}");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for line in lines("crates/mvp-core/tests/fixtures/recorded/not-found.jsonl") {
        let kind = line["content_type"].as_str().unwrap_or_default();
        let same = |name: &&str| kind.starts_with(name.split(';').next().unwrap_or_default());
        let Some(place) = TYPES.iter().position(|name| same(name)) else { continue };
        let body = match (line["text"].as_str(), line["hex"].as_str()) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, hex) => unhex(hex.unwrap_or_default()),
        };
        all.push([&[place as u8][..], &body].concat());
    }
    all
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digits).collect()
}
