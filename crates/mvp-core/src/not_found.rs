//! Unrouted 404s: the server has no such API. An unrouted 404 proves that the server did not process
//! the request, but not that no other member serves the API. Any other 404 is about an object. Entry
//! item: [`is_unrouted`].

use serde::Deserialize;

use crate::wire::bytes_field;

/// The message of a server that has the group, but not the version, resource or subresource.
const MESSAGE: &str = "the server could not find the requested resource";

/// Whether a 404 with this body is unrouted. The body must be without content encoding.
pub fn is_unrouted(content_type: &str, body: &[u8]) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("text/plain") {
        return body.trim_ascii() == b"404 page not found";
    }
    if media_type.eq_ignore_ascii_case("application/json") {
        return is_unrouted_json(body);
    }
    if media_type.eq_ignore_ascii_case("application/yaml") {
        return is_unrouted_yaml(body);
    }
    if media_type.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
        return is_unrouted_protobuf(body).unwrap_or(false);
    }
    false
}

fn is_unrouted_json(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        message: Option<String>,
        details: Option<serde_json::Map<String, serde_json::Value>>,
    }
    serde_json::from_slice::<Status>(body).is_ok_and(|status| {
        status.kind == "Status"
            && status.message.as_deref() == Some(MESSAGE)
            && status.details.is_none_or(|details| details.is_empty())
    })
}

/// A server's YAML has one line for each field of a Status; details follow on lines of their own.
fn is_unrouted_yaml(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let field = |name: &str| {
        let value = |line| str::strip_prefix(line, name)?.strip_prefix(": ").map(str::trim_end);
        text.lines().find_map(value)
    };
    let no_details = !text.lines().any(|line| line.trim_end() == "details:");
    field("kind") == Some("Status")
        && field("message") == Some(MESSAGE)
        && no_details
        && matches!(field("details"), None | Some("{}" | "null"))
}

/// After `k8s\0`, an envelope has the Status in field 2: its message is field 3, its details field 5.
fn is_unrouted_protobuf(body: &[u8]) -> Option<bool> {
    let envelope = body.strip_prefix(b"k8s\0")?;
    let status = bytes_field(envelope, 2)?;
    let kind = bytes_field(bytes_field(envelope, 1)?, 2)?;
    // Go writes the fields of details even if they are empty: name, group, kind, causes, uid.
    let details = bytes_field(status, 5).unwrap_or_default();
    let names_nothing =
        [1, 2, 3, 4, 6].iter().all(|n| bytes_field(details, *n).is_none_or(<[u8]>::is_empty));
    Some(kind == b"Status" && bytes_field(status, 3)? == MESSAGE.as_bytes() && names_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let expected = case.contains("unknown") && case != "CRD unknown subresource";
            let content_type = line["content_type"].as_str().unwrap();
            assert_eq!(is_unrouted(content_type, &body), expected, "{line}");
            *(if expected { &mut unrouted } else { &mut object }) += 1;
        }
        assert!(unrouted > 20 && object > 15, "{unrouted} and {object}");
    }

    #[test]
    fn malformed_and_foreign_404s_are_not_unrouted() {
        let status =
            r#"{"kind":"Status","message":"the server could not find the requested resource""#;
        let cases = [
            ("text/plain", "404 page not found, dear user"),
            ("text/html", "404 page not found"),
            ("application/json", status),
            ("application/json", &format!("{status},\"details\":{{\"name\":\"x\"}}}}")),
            ("application/json", "{\"kind\":\"Status\"}"),
            ("application/json", "[]"),
            ("application/yaml", "kind: Status\nmessage: nothing\n"),
            ("application/vnd.kubernetes.protobuf", "k8s\0\u{12}\u{7f}"),
            ("application/vnd.kubernetes.protobuf", ""),
            ("", ""),
        ];
        for (content_type, body) in cases {
            assert!(!is_unrouted(content_type, body.as_bytes()), "{content_type} {body}");
        }
        let whole = format!("{status}}}");
        assert!(is_unrouted("application/json; charset=utf-8", whole.as_bytes()));
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }
}
