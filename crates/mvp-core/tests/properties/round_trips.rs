//! Aggregated documents that are read and written again.

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
    fn nothing_is_lost_on_the_way((part, document) in documents()) {
        let list = parse(part, &document);
        prop_assert_eq!(&written(&list), &document);
        prop_assert_eq!(facts_of_model(&list), routable(facts(&document)));
    }

    #[test]
    fn white_space_does_not_show((part, document) in documents(), tabs in any::<bool>()) {
        let mut spaced = serde_json::to_string_pretty(&document).expect("JSON");
        if tabs {
            spaced = format!("\r\n\t {}\t\n", spaced.replace("\n  ", "\r\n\t"));
        }
        let compact = parse(part, &document).to_aggregated_json("v2");
        prop_assert_eq!(parse_text(part, spaced).to_aggregated_json("v2"), compact);
    }

    #[test]
    fn the_two_versions_of_the_api_differ_in_its_name_alone((part, document) in documents()) {
        let list = parse(part, &document);
        let beta: Value = serde_json::from_slice(&list.to_aggregated_json("v2beta1")).expect("JSON");
        prop_assert_eq!(beta["apiVersion"].as_str(), Some("apidiscovery.k8s.io/v2beta1"));
        let again = parse_text(part, beta.to_string());
        prop_assert_eq!(&*again, &*list);
    }

    #[test]
    fn a_group_is_its_own_bytes((part, document) in documents()) {
        let list_of_groups = parse(part, &document);
        for (group, item) in list_of_groups.groups.iter().zip(list(&document, "items")) {
            let raw: Value = serde_json::from_slice(&group.raw).expect("JSON");
            prop_assert_eq!(&raw, item);
        }
    }
}
