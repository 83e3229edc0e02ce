//! Request parsing, compared with a second implementation of kube-apiserver's `RequestInfoFactory`
//! that follows the Go source line by line (`reference`). That one has itself to give the answers of
//! Kubernetes' own packages in the oracle's fixtures, which are the seeds.
//!
//! `.ci/fuzz --oracle` sends what was found here through Kubernetes' own package.

mod reference;

use std::sync::OnceLock;

use mvp_core::RequestInfo;
use mvp_core::request::{DiscoveryPath, OpenApiPath};

use crate::target::{Target, lines};
use reference::{Answer, answer};

const FIXTURE: &str = "crates/mvp-core/tests/fixtures/oracle/requests.jsonl";

pub const TARGET: Target = Target {
    name: "request",
    run,
    seeds,
    words: &[
        "GET ",
        "HEAD ",
        "POST ",
        "DELETE ",
        "OPTIONS ",
        "/api/v1/",
        "/apis/apps/v1/",
        "/watch/",
        "/proxy/",
        "/namespaces/",
        "/status",
        "/finalize",
        "/openapi/v3/",
        "/openapi/v2",
        "%2F",
        "%25",
        "%00",
        "%ff",
        "%C3%A9",
        "?watch=",
        "&watch=0",
        "false",
        "fieldSelector=",
        "metadata.name",
        "%3D",
        "==",
        "!=",
        "%5C",
        "%2C",
        "limit=",
        "timeoutSeconds=",
        ";",
        "+",
        "labelSelector=",
        "//",
        "&",
    ],
};

fn run(data: &[u8]) {
    static CHECKED: OnceLock<()> = OnceLock::new();
    CHECKED.get_or_init(the_reference_answers_as_kubernetes);
    let Ok(line) = std::str::from_utf8(data) else { return };
    let Some((method, target)) = line.split_once(' ') else { return };
    let (path, query) = split(target);
    let info = RequestInfo::parse(method, path, query);
    questions_agree(&info);
    if path.starts_with('/') {
        let expected = answer(method, path, query.unwrap_or_default());
        let ours = of(&info, &expected, query.unwrap_or_default());
        assert_eq!(ours, expected, "{method} {target}");
        if let RequestInfo::Discovery(discovery) = &info {
            described(method, path, discovery);
        }
    }
}

fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

/// What we say, in the form of the reference.
fn of(info: &RequestInfo<'_>, expected: &Answer, query: &str) -> Answer {
    match info {
        RequestInfo::Malformed => Answer::Malformed,
        RequestInfo::Resource(request) => {
            let field = |text: &str| text.to_owned();
            let mut name = field(&request.name);
            // A malformed label selector makes kube-apiserver ignore the field selector. We do not
            // parse label selectors: the name is for logs alone.
            if let Answer::Resource(fields) = expected
                && query.contains("abelSelector")
                && query.contains("ieldSelector")
            {
                name.clone_from(&fields[6]);
            }
            Answer::Resource([
                field(request.verb.as_str()),
                field(&request.group),
                field(&request.version),
                field(&request.resource),
                field(&request.subresource),
                field(&request.namespace),
                name,
            ])
        }
        RequestInfo::Discovery(_) | RequestInfo::OpenApi(_) | RequestInfo::NonResource(_) => {
            Answer::NonResource
        }
    }
}

/// A discovery path has exactly the segments of the path.
fn described(method: &str, path: &str, discovery: &DiscoveryPath<'_>) {
    assert!(matches!(method, "GET" | "HEAD"), "{method} {path}");
    let again = match discovery {
        DiscoveryPath::Api => "/api".to_owned(),
        DiscoveryPath::Apis => "/apis".to_owned(),
        DiscoveryPath::Group(group) => format!("/apis/{group}"),
        DiscoveryPath::GroupVersion(group, version) if group.is_empty() => {
            format!("/api/{version}")
        }
        DiscoveryPath::GroupVersion(group, version) => format!("/apis/{group}/{version}"),
    };
    let decoded = reference::decoded(path, false).expect("a valid path");
    assert_eq!(decoded.trim_end_matches('/'), again);
}

/// The answers to questions about one request do not contradict each other.
fn questions_agree(info: &RequestInfo<'_>) {
    let _ = (info.part(), format!("{info:?}"));
    assert!(info.is_read() || !info.may_be_replayed(false), "a write is never sent twice");
    assert!(!info.may_be_replayed(true), "an upgrade is never sent twice");
    match info {
        RequestInfo::Resource(request) => {
            assert!(!request.is_connect() || request.is_relayed());
            assert!(!request.is_connect() || !info.may_be_replayed(false));
        }
        RequestInfo::OpenApi(OpenApiPath::V3Document(key)) => assert!(!key.is_empty()),
        RequestInfo::Malformed => assert!(!info.is_read()),
        _ => {}
    }
}

/// The reference is worth nothing unless it gives Kubernetes' own answers.
fn the_reference_answers_as_kubernetes() {
    let mut checked = 0;
    for line in lines(FIXTURE) {
        let text = |pointer| line.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default();
        let (method, target) = (text("/method"), text("/target"));
        let is_token = method.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // Go's HTTP library refuses or splits these itself; other bytes than UTF-8 are no `str`.
        let odd = !is_token || method == "CONNECT" || target.contains(' ');
        if odd || !target.starts_with('/') || line["latin1"] == true {
            continue;
        }
        // Not followed, see tests/oracle of mvp-core.
        if target == "/api/v1/pods?watch=fal%C5%BFe&limit=abc" || target.contains("labelSelector=")
        {
            continue;
        }
        checked += 1;
        let (path, query) = split(target);
        let expected = if !text("/error").is_empty() {
            Answer::Malformed
        } else if line["info"]["resource_request"] == true {
            let field = |name: &str| line["info"][name].as_str().unwrap_or_default().to_owned();
            Answer::Resource(
                ["verb", "group", "version", "resource", "subresource", "namespace", "name"]
                    .map(field),
            )
        } else {
            Answer::NonResource
        };
        assert_eq!(answer(method, path, query.unwrap_or_default()), expected, "{method} {target}");
    }
    assert!(checked > 900, "{checked} lines of the fixture were checked");
}

fn seeds() -> Vec<Vec<u8>> {
    let line = |line: &serde_json::Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("method"), text("target")).into_bytes()
    };
    let all = lines(FIXTURE);
    all.iter().map(line).filter(|line| line.len() < 2048).collect()
}
