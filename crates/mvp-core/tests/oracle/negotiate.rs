//! `NegotiateMediaTypeOptions`, for aggregated and for legacy documents.

use mvp_core::discovery::negotiate::{Encoding, Form, Offer, negotiate};
use serde_json::Value;

use crate::{fixture, text};

const ENCODINGS: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

#[test]
fn accept_headers_negotiate_as_in_kube_apiserver_1_36() {
    check("negotiate.jsonl", &[Form::AggregatedV2, Form::Legacy]);
}

#[test]
fn accept_headers_negotiate_as_in_a_server_with_v2beta1() {
    let forms = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
    check("negotiate-beta.jsonl", &forms);
}

fn check(name: &str, forms: &[Form]) {
    let offer = Offer { forms, encodings: &ENCODINGS };
    let (mut wrong, mut kinder) = (Vec::new(), 0);
    for line in fixture(name, 120) {
        let accept = text(&line, "/accept");
        let ours = negotiate(accept, offer)
            .map(|answer| (answer.form, answer.encoding.media_type(), answer.nopeer))
            .ok();
        let theirs = theirs(&line);
        if ours == theirs || differs_on_purpose(accept).is_some() {
            continue;
        }
        // The one intended difference: any case matches where kube-apiserver needs lower case. So
        // kube-apiserver must give the same result for the header in its usual case.
        let usual = usual_case(accept);
        if usual != accept {
            let again = negotiate(&usual, offer)
                .map(|answer| (answer.form, answer.encoding.media_type(), answer.nopeer))
                .ok();
            assert_eq!(ours, again, "{accept:?} and {usual:?}");
            kinder += 1;
            continue;
        }
        wrong.push(format!("{accept:?}: {ours:?}, expected {theirs:?}"));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(kinder > 0, "the fixture has headers in unusual case");
}

/// Headers with an intended difference to kube-apiserver, and the reason.
fn differs_on_purpose(accept: &str) -> Option<&'static str> {
    if accept.split(',').count() > 12 {
        return Some(
            "beyond 12 clauses Go sorts in an order that depends on its library's version",
        );
    }
    match accept {
        "application/json;q=0x1p-1,application/yaml;q=0.4"
        | "application/json;q=0x_1p-1,application/yaml;q=0.4"
        | "application/json;q=1_0,application/yaml;q=0.4" => {
            Some("Go's own spellings of numbers are none of the standard's")
        }
        "application/json;profile=nopeer" => {
            Some("nopeer counts for legacy documents too, which Kubernetes does not merge")
        }
        _ => None,
    }
}

/// An aggregated document if possible; else the legacy one; else 406.
fn theirs(line: &Value) -> Option<(Form, &str, bool)> {
    let aggregated = match text(line, "/aggregated/v") {
        "v2" => Some(Form::AggregatedV2),
        "v2beta1" => Some(Form::AggregatedV2beta1),
        _ => None,
    };
    if let (Some(form), true) = (aggregated, line["aggregated"]["ok"] == true) {
        let nopeer = text(line, "/aggregated/profile") == "nopeer";
        return Some((form, text(line, "/aggregated/type"), nopeer));
    }
    (line["legacy"]["ok"] == true).then(|| (Form::Legacy, text(line, "/legacy/type"), false))
}

fn usual_case(accept: &str) -> String {
    accept.to_ascii_lowercase().replace("apigroupdiscoverylist", "APIGroupDiscoveryList")
}
