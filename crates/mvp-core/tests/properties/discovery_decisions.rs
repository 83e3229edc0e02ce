//! The decision for discovery, OpenAPI and non-resource requests.

use mvp_core::decide::{Action, OnNotFound, Origin, Reason};
use mvp_core::discovery::Part;
use mvp_core::discovery::negotiate::Form;
use mvp_core::request::{DiscoveryPath, OpenApiPath};
use mvp_core::{RequestInfo, decide};
use proptest::prelude::*;

use crate::clusters::clusters;
use crate::config;
use crate::decisions::is_proved;
use crate::requests::other_cases;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_answer_has_a_document(
        cluster in clusters(), cases in other_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
        let (info, denials) = (target.info(), asked.denials());
        let decision = decide(&info, &snapshot, asked.asked(&denials));
        match (&info, decision.action) {
            (RequestInfo::Discovery(path), Action::Answer) => {
                prop_assert!(snapshot.document(path, Form::Legacy).is_some());
                prop_assert!(asked.origin != Origin::Peer && !asked.nopeer);
            }
            (RequestInfo::Discovery(path), Action::PassNotFound) => {
                prop_assert!(snapshot.document(path, Form::Legacy).is_none());
                prop_assert!(is_proved(&cluster, part(path), asked.arrived));
            }
            (RequestInfo::OpenApi(OpenApiPath::V3Document(key)), action) => {
                let listed = snapshot.openapi().entry(key).is_some();
                match action {
                    Action::Answer => prop_assert!(listed),
                    Action::PassNotFound => {
                        prop_assert!(!listed);
                        prop_assert!(is_proved(&cluster, Part::Apis, asked.arrived));
                    }
                    Action::Peers(_) => panic!("{action:?} of {info:?}"),
                    _ => {}
                }
            }
            (_, Action::Answer) => prop_assert!(matches!(info, RequestInfo::OpenApi(_))),
            (_, Action::PassNotFound | Action::Peers(_)) => {
                panic!("{:?} of {info:?}", decision.action)
            }
            _ => {}
        }
    }
    }

    #[test]
    fn peers_get_discovery_of_the_local_server_only(
        cluster in clusters(), cases in other_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
        let (info, denials) = (target.info(), asked.denials());
        let decision = decide(&info, &snapshot, asked.asked(&denials));
        let described = matches!(info, RequestInfo::Discovery(_) | RequestInfo::OpenApi(_));
        if let (Origin::Peer, true) = (asked.origin, described) {
            let local = matches!(decision.action, Action::Local { nopeer: true });
            prop_assert!(local || matches!(decision.action, Action::Refuse));
        } else if let Action::Local { nopeer } = decision.action {
            prop_assert!(!nopeer, "the caller asked for it, or it means nothing here");
        }
    }
    }

    #[test]
    fn non_resource_requests_go_to_the_local_server_only(
        cluster in clusters(), cases in other_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
        let (info, denials) = (target.info(), asked.denials());
        if let RequestInfo::NonResource(_) | RequestInfo::Malformed = info {
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            let fits = match decision.action {
                Action::Local { nopeer } => cluster.local.is_some() && !nopeer,
                Action::AskAny => cluster.local.is_none(),
                Action::Refuse => decision.reason != Reason::NonResource,
                _ => false,
            };
            prop_assert!(fits, "{:?}", decision.action);
            prop_assert_eq!(decision.on_not_found, OnNotFound::PassThrough);
        }
    }
    }
}

fn part(path: &DiscoveryPath<'_>) -> Part {
    match path {
        DiscoveryPath::Api => Part::Api,
        DiscoveryPath::Apis | DiscoveryPath::Group(_) => Part::Apis,
        DiscoveryPath::GroupVersion(group, _) => Part::of_group(group),
    }
}
