//! Aggregated documents that are parsed and written again.

use mvp_core::discovery::Part;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::config;
use crate::contents::{facts, facts_of_model, list, routable};
use crate::documents::{document, parse, parse_text, written};

fn documents() -> impl Strategy<Value = (Part, Value)> {
    select(Part::ALL.to_vec())
        .prop_flat_map(|part| document(part).prop_map(move |document| (part, document)))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn aggregated_documents_round_trip((part, document) in documents()) {
        let list = parse(part, &document);
        prop_assert_eq!(&written(&list), &document);
        prop_assert_eq!(facts_of_model(&list), routable(facts(&document)));
    }

    #[test]
    fn white_space_does_not_matter((part, document) in documents(), tabs in any::<bool>()) {
        let mut spaced = serde_json::to_string_pretty(&document).expect("JSON");
        if tabs {
            spaced = format!("\r\n\t {}\t\n", spaced.replace("\n  ", "\r\n\t"));
        }
        let compact = parse(part, &document).to_aggregated_json("v2");
        prop_assert_eq!(parse_text(part, spaced).to_aggregated_json("v2"), compact);
    }

    #[test]
    fn v2_and_v2beta1_differ_only_in_the_api_version((part, document) in documents()) {
        let list = parse(part, &document);
        let beta: Value = serde_json::from_slice(&list.to_aggregated_json("v2beta1")).expect("JSON");
        prop_assert_eq!(beta["apiVersion"].as_str(), Some("apidiscovery.k8s.io/v2beta1"));
        let again = parse_text(part, beta.to_string());
        prop_assert_eq!(&*again, &*list);
    }

    #[test]
    fn a_group_keeps_its_bytes((part, document) in documents()) {
        let list_of_groups = parse(part, &document);
        for (group, item) in list_of_groups.groups.iter().zip(list(&document, "items")) {
            let raw: Value = serde_json::from_slice(&group.raw).expect("JSON");
            prop_assert_eq!(&raw, item);
        }
    }
}
