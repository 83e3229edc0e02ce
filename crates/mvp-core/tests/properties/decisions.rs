//! The decision for resources, compared with the members' documents.

use std::collections::HashSet;

use mvp_core::decide::{Action, Denial, LocalHealth, OnNotFound, Origin, Reason};
use mvp_core::discovery::Part;
use mvp_core::member::Member;
use mvp_core::{Verb, decide};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::clusters::{Cluster, Server, at, clusters};
use crate::config;
use crate::listings::Listing;
use crate::requests::{Circumstances, all_cases, resource_cases};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn local_gets_only_requests_that_it_lists(cluster in clusters(), cases in resource_cases()) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let (info, denials) = (target.info(), asked.denials());
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            if let Action::Local { nopeer } = decision.action {
                let local = cluster.local_server().expect("a local server");
                let listing = Listing::of(&cluster, &info);
                prop_assert!(listing.resource(local), "{:?}", decision.reason);
                prop_assert!(!nopeer && asked.local != LocalHealth::Unreachable);
                prop_assert_eq!(decision.listed, listing.exactly(local));
            }
        }
    }

    #[test]
    fn a_request_makes_one_hop(cluster in clusters(), cases in all_cases()) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let (info, denials) = (target.info(), asked.denials());
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            let passed_on = matches!(decision.action, Action::Peers(_) | Action::AskAny);
            prop_assert!(!passed_on || asked.origin == Origin::Client, "{:?}", decision.reason);
        }
    }

    #[test]
    fn a_404_passes_through_only_if_it_is_proved(
        cluster in clusters(), cases in resource_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let (info, denials) = (target.info(), asked.denials());
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            if let Action::PassNotFound = decision.action {
                let listing = Listing::of(&cluster, &info);
                prop_assert!(!cluster.servers.iter().any(|server| listing.exactly(server)));
                prop_assert!(is_proved(&cluster, listing.part(), asked.arrived));
                prop_assert!(!denials.is_empty(), "a 404 was withheld");
            }
        }
    }

    #[test]
    fn candidates_are_reachable_and_newest_first(
        cluster in clusters(), cases in resource_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let (info, denials) = (target.info(), asked.denials());
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            if let Action::Peers(candidates) = decision.action {
                let listing = Listing::of(&cluster, &info);
                let server = |member: &Member| cluster.server(&member.id);
                let chosen: Vec<&Server> = candidates.iter().map(server).collect();
                prop_assert!(!chosen.is_empty());
                check_each(&chosen, &listing, &denials, decision.listed)?;
                check_order(&chosen)?;
                check_writes(&chosen, &listing, &denials, decision.reason)?;
            }
        }
    }

    #[test]
    fn requests_that_only_peers_list_go_to_peers(cluster in clusters(), cases in resource_cases()) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let asked = Circumstances { origin: Origin::Client, ..asked.clone() };
            let (info, denials) = (target.info(), asked.denials());
            let listing = Listing::of(&cluster, &info);
            let not_local = cluster.local_server().is_none_or(|local| {
                local.document(listing.part()).is_some() && !listing.resource(local)
            });
            let usable = |server: &&Server| {
                !cluster.is_local(server)
                    && server.reachable()
                    && listing.exactly(server)
                    && denials.iter().all(|denial| *denial.member != *server.member.id)
            };
            let usable: Vec<&Server> = cluster.servers.iter().filter(usable).collect();
            if not_local && !usable.is_empty() {
                let decision = decide(&info, &snapshot, asked.asked(&denials));
                let Action::Peers(candidates) = decision.action else {
                    panic!("{:?} for {:?}", decision.action, decision.reason)
                };
                let offered: Vec<_> = candidates.iter().map(|member| member.id.clone()).collect();
                prop_assert!(usable.iter().all(|server| offered.contains(&server.member.id)));
            }
        }
    }

    #[test]
    fn a_listed_request_never_passes_a_404_through(
        cluster in clusters(), cases in resource_cases()
    ) {
        let snapshot = cluster.snapshot();
        for (target, asked) in &cases {
            let (denials, local) = (Vec::new(), LocalHealth::Ready);
            let asked = Circumstances { denials, local, ..asked.clone() };
            let info = target.info();
            let listing = Listing::of(&cluster, &info);
            let decision = decide(&info, &snapshot, asked.asked(&[]));
            if cluster.local_server().is_some_and(|local| listing.exactly(local)) {
                let to_local = matches!(decision.action, Action::Local { nopeer: false });
                prop_assert!(to_local, "{:?}", decision.reason);
                prop_assert_eq!(decision.reason, Reason::ServedLocally);
            }
            // No 404 passes through, unless a backend may have written it.
            if cluster.servers.iter().any(|server| listing.exactly(server)) {
                let refused = matches!(decision.action, Action::Refuse);
                let passed_on = decision.on_not_found == OnNotFound::PassThrough;
                prop_assert_eq!(passed_on, refused || listing.is_opaque());
            }
        }
    }
}

/// Checks that every candidate is a peer that can be asked, lists the request and has not denied it.
fn check_each(
    chosen: &[&Server],
    listing: &Listing<'_>,
    denials: &[Denial<'_>],
    listed: bool,
) -> Result<(), TestCaseError> {
    for server in chosen {
        prop_assert!(!listing.cluster.is_local(server) && server.reachable());
        prop_assert!(listing.roughly(server));
        prop_assert!(!listed || listing.exactly(server));
        let mut denied = denials.iter().filter(|denial| *denial.member == *server.member.id);
        prop_assert!(denied.clone().count() < 2 && !denied.any(|denial| denial.listed));
    }
    Ok(())
}

/// Checks the order: newest release first, then by ID.
fn check_order(chosen: &[&Server]) -> Result<(), TestCaseError> {
    for pair in chosen.windows(2) {
        let [first, second] = [&pair[0].member, &pair[1].member];
        let (newer, older) = (first.view.release, second.view.release);
        prop_assert!(newer > older || (newer == older && first.id < second.id));
    }
    Ok(())
}

/// Checks that a write that local lists goes to no member that may erase fields of the object.
fn check_writes(
    chosen: &[&Server],
    listing: &Listing<'_>,
    denials: &[Denial<'_>],
    reason: Reason,
) -> Result<(), TestCaseError> {
    let local = listing.cluster.local_server();
    let local_takes_it = local.is_some_and(|local| {
        listing.exactly(local) && denials.iter().all(|d| *d.member != *local.member.id)
    });
    let write = !matches!(listing.request.verb, Verb::Get | Verb::List | Verb::Watch);
    if write && (local_takes_it || matches!(reason, Reason::LocalDown | Reason::LocalNotReady)) {
        let release = local.and_then(|local| local.member.view.release);
        prop_assert!(release.is_some());
        prop_assert!(chosen.iter().all(|server| server.member.view.release >= release));
    }
    Ok(())
}

/// Whether local has a view and every accountable member confirmed its view after the request arrived.
pub(crate) fn is_proved(cluster: &Cluster, part: Part, arrived: u64) -> bool {
    let confirmed = |server: &Server| {
        server.member.view.part(part).is_some_and(|seen| seen.confirmed >= at(arrived))
    };
    let local_seen = cluster.local_server().is_none_or(|local| local.document(part).is_some());
    local_seen && cluster.accountable(part).all(confirmed)
}

/// The properties above would prove nothing about cases that never occur.
#[test]
fn every_reason_and_every_action_occurs() {
    let mut runner = TestRunner::new(config());
    let (clusters, cases) = (clusters(), all_cases());
    let (mut reasons, mut actions) = (HashSet::new(), HashSet::new());
    for _ in 0..256 {
        let cluster = clusters.new_tree(&mut runner).expect("a cluster").current();
        let snapshot = cluster.snapshot();
        let mut some = || cases.new_tree(&mut runner).expect("cases").current();
        for (target, asked) in [some(), some(), some(), some(), some(), some()].concat() {
            let (info, denials) = (target.info(), asked.denials());
            let decision = decide(&info, &snapshot, asked.asked(&denials));
            reasons.insert(decision.reason);
            actions.insert(match decision.action {
                Action::Answer => "answer",
                Action::Local { .. } => "local",
                Action::AskLocal => "ask local",
                Action::AskAny => "ask any",
                Action::Peers(_) => "peers",
                Action::PassNotFound => "pass not found",
                Action::Refuse => "refuse",
            });
        }
    }
    assert_eq!(reasons.len(), 18, "{reasons:?}");
    assert_eq!(actions.len(), 7, "{actions:?}");
}
