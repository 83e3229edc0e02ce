//! No input from the wire causes a panic.

use bytes::Bytes;
use mvp_core::decide::{Asked, LocalHealth, Origin};
use mvp_core::discovery::convert::{from_legacy, resource_list};
use mvp_core::discovery::legacy::{self, ApiGroup, ApiGroupList, ApiResourceList, ApiVersions};
use mvp_core::discovery::merge::merge;
use mvp_core::discovery::negotiate::{Encoding, Form, Offer, negotiate};
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use mvp_core::member::Release;
use mvp_core::not_found::judge;
use mvp_core::{RequestInfo, decide};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::clusters::{at, clusters};
use crate::config;
use crate::documents::{document, parse};

/// Text made of meaningful pieces and random ones.
fn texts(pieces: &[&'static str]) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => select(pieces.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => any::<char>().prop_map(String::from),
    ];
    prop_oneof![4 => vec(piece, 0..12).prop_map(|pieces| pieces.concat()), 1 => any::<String>()]
}

fn paths() -> impl Strategy<Value = String> {
    texts(&[
        "/",
        "/",
        "/",
        "//",
        "api",
        "apis",
        "v1",
        "apps",
        "watch",
        "proxy",
        "namespaces",
        "status",
        "pods",
        "%",
        "%2",
        "%2F",
        "%2f",
        "%zz",
        "%00",
        "%ff",
        "%C3%A9",
        "%25",
        "..",
        "*",
        "openapi",
        "v2",
        "v3",
        "é",
        "\0",
        "\u{7f}",
        " ",
        "finalize",
    ])
}

fn queries() -> impl Strategy<Value = Option<String>> {
    prop::option::of(texts(&[
        "&",
        "=",
        "watch",
        "watch=true",
        "fieldSelector=",
        "metadata.name",
        "%3D",
        "==",
        "!=",
        "!",
        "%5C",
        "\\",
        ",",
        "%2C",
        "limit=",
        "timeoutSeconds=9",
        ";",
        "+",
        "%",
        "%4",
        "x",
        "é",
        "0",
    ]))
}

fn accepts() -> impl Strategy<Value = String> {
    texts(&[
        "application/json",
        "application",
        "/",
        "*",
        "*/*",
        ",",
        ";",
        "=",
        "q=",
        "q=0.5",
        "q=NaN",
        "q=-inf",
        "g=apidiscovery.k8s.io",
        "v=v2",
        "v=v2beta1",
        "as=APIGroupDiscoveryList",
        "profile=nopeer",
        "stream=watch",
        " ",
        "é",
        "\0",
    ])
}

/// A change of a document's bytes: the place, the kind of change and the byte.
fn mutations() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    let byte = prop_oneof![any::<u8>(), select(b"{}[]\",:\\0-e ntf".to_vec())];
    vec((any::<Index>(), 0..4u8, byte), 1..6)
}

fn mutated(text: String, mutations: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for (place, what, byte) in mutations {
        if bytes.is_empty() {
            break;
        }
        let place = place.index(bytes.len());
        match what {
            0 => bytes[place] = *byte,
            1 => bytes.insert(place, *byte),
            2 => drop(bytes.remove(place)),
            _ => bytes.truncate(place),
        }
    }
    bytes
}

/// Parses bytes as every document, and uses each result in every way.
fn read_as_everything(bytes: Vec<u8>, other: &GroupList) {
    let bytes = Bytes::from(bytes);
    let source = Source { server: "apiserver-a", document: "/apis" };
    let limits = Limits::default();
    for part in Part::ALL {
        let Ok(parsed) = GroupList::parse(source, part, bytes.clone(), &limits) else { continue };
        let merged = merge([&parsed.value, other]);
        for list in [&parsed.value, &merged] {
            serde_json::from_slice::<serde::de::IgnoredAny>(&list.to_aggregated_json("v2"))
                .expect("the output is JSON");
            for group in &list.groups {
                for version in &group.versions {
                    assert!(resource_list(group, &version.name).is_some(), "{group:?}");
                }
            }
        }
    }
    let _ = legacy::parse::<ApiVersions>(source, bytes.clone(), &limits);
    let _ = legacy::parse::<ApiGroup>(source, bytes.clone(), &limits);
    let groups = legacy::parse::<ApiGroupList>(source, bytes.clone(), &limits);
    let resources = legacy::parse::<ApiResourceList>(source, bytes, &limits);
    let _ = from_legacy(
        source,
        &groups.map(|list| list.groups).unwrap_or_default(),
        &Vec::from_iter(resources),
    );
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_request_parses_and_is_decided(
        cluster in clusters(),
        method in prop_oneof![select(vec!["GET", "HEAD", "POST", "OPTIONS"]).prop_map(str::to_owned), any::<String>()],
        requests in vec((paths(), queries()), 16),
    ) {
        let snapshot = cluster.snapshot();
        let asked = Asked {
            origin: Origin::Client,
            nopeer: false,
            arrived: at(cluster.now),
            local: LocalHealth::Ready,
            denials: &[],
        };
        for (path, query) in requests {
            let info = RequestInfo::parse(&method, &path, query.as_deref());
            let decision = decide(&info, &snapshot, asked);
            prop_assert!(!decision.reason.to_string().is_empty());
        }
    }

    #[test]
    fn any_accept_header_negotiates(headers in vec(accepts(), 16)) {
        let encodings = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
        let forms = [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy];
        for header in headers {
            for offer in [
                Offer { forms: &forms, encodings: &encodings },
                Offer { forms: &[Form::Legacy], encodings: &encodings[..1] },
                Offer { forms: &[], encodings: &[] },
            ] {
                match negotiate(&header, offer) {
                    Ok(negotiated) => {
                        prop_assert!(offer.encodings.contains(&negotiated.encoding));
                        let offered = offer.forms.contains(&negotiated.form);
                        prop_assert!(offered || negotiated.form == Form::Legacy);
                    }
                    Err(error) => prop_assert!(error.to_string().contains("accepted")),
                }
            }
        }
    }

    #[test]
    fn any_bytes_parse_without_a_panic(bytes in vec(any::<u8>(), 0..200), text in any::<String>()) {
        for kind in ["text/plain", "application/json", "application/yaml", "application/cbor", "", &text] {
            let _ = judge(kind, &bytes);
        }
        let envelope = [b"k8s\0".as_slice(), &bytes].concat();
        let _ = judge("application/vnd.kubernetes.protobuf", &envelope);
        read_as_everything(bytes, &GroupList::default());
        read_as_everything(text.into_bytes(), &GroupList::default());
    }

    #[test]
    fn mutated_documents_parse_or_are_rejected(
        valid in document(Part::Apis), other in document(Part::Apis), mutations in vec(mutations(), 8)
    ) {
        let other = parse(Part::Apis, &other);
        for mutations in &mutations {
            read_as_everything(mutated(valid.to_string(), mutations), &other);
        }
    }

    #[test]
    fn mutated_legacy_documents_parse_or_are_rejected(
        mutations in vec(mutations(), 16)
    ) {
        for mutations in &mutations {
            for text in [
                r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0"}]}"#,
                r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"a","versions":[{"groupVersion":"a/v1","version":"v1"}],"preferredVersion":{"groupVersion":"a/v1","version":"v1"}}]}"#,
                r#"{"kind":"APIResourceList","groupVersion":"a/v1","resources":[{"name":"b","singularName":"","namespaced":true,"kind":"B","verbs":["get"],"shortNames":["b"]},{"name":"b/c","verbs":null}]}"#,
            ] {
                read_as_everything(mutated(text.to_owned(), mutations), &GroupList::default());
            }
        }
    }

    #[test]
    fn any_release_parses_without_a_panic(text in texts(&["v", "1", "36", ".", "-", "+", "99999"])) {
        let _ = Release::parse(&text);
    }
}
