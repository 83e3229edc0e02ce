//! Deciding again after every 404 ends, whatever the members report meanwhile.

use std::sync::Arc;

use mvp_core::decide;
use mvp_core::decide::{Action, Asked, Denial, LocalHealth, OnNotFound, Origin};
use mvp_core::discovery::Part;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::clusters::{Cluster, NOW, Server, at, clusters};
use crate::config;
use crate::decisions::is_proved;
use crate::documents::document;
use crate::listings::Listing;
use crate::requests::{Circumstances, Target, circumstances, other_targets, resource_targets};

/// The time of refreshes during a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetches {
    /// Every fetch fails.
    Never,
    /// When a decision first asks for one, as in the data path.
    WhenAsked,
    /// After every response, as rounds of the control loop may be.
    Always,
}

/// The response of a member to a fetch: none, or the two documents; for each, a new one or "not
/// modified".
type News = Option<(Option<Value>, Option<Value>)>;

fn news() -> impl Strategy<Value = Vec<News>> {
    let documents = (option::of(document(Part::Api)), option::of(document(Part::Apis)));
    vec(option::weighted(0.8, documents), 5)
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Refused,
    NotFound,
    /// The first 404 passed through.
    PassedOn,
    /// A merged document.
    Answered,
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_that_every_member_denies_ends(
        cluster in clusters(),
        target in resource_targets(),
        asked in circumstances(),
        fetches in select(vec![Fetches::Never, Fetches::WhenAsked, Fetches::Always]),
        news in news(),
    ) {
        let members = cluster.servers.len();
        let mut cluster = cluster;
        let (end, deniers) = drive(&mut cluster, &target, &asked, fetches, &news);
        let rounds = deniers.len() + 1;
        let times = |member: &Arc<str>| deniers.iter().filter(|other| *other == member).count();
        let asked_again = deniers.iter().filter(|member| times(member) > 1).count() / 2;
        prop_assert!(deniers.iter().all(|member| times(member) <= 2), "{:?}", deniers);
        match fetches {
            Fetches::Never => prop_assert_eq!(asked_again, 0, "{:?}", deniers),
            // Only a member that began to list it after its denial is asked once more.
            Fetches::WhenAsked => prop_assert!(asked_again <= 1, "{:?}", deniers),
            Fetches::Always => {}
        }
        prop_assert!(fetches == Fetches::Always || rounds <= members + 3, "{:?}", deniers);

        let info = target.info();
        let listing = Listing::of(&cluster, &info);
        match end {
            End::Refused => {}
            End::NotFound => {
                prop_assert!(!cluster.servers.iter().any(|server| listing.exactly(server)));
                prop_assert!(is_proved(&cluster, listing.part(), NOW));
            }
            End::PassedOn => prop_assert!(listing.is_opaque()),
            End::Answered => panic!("a document for {info:?}"),
        }
    }

    #[test]
    fn a_request_for_a_document_that_every_member_denies_ends(
        cluster in clusters(),
        target in other_targets(),
        asked in circumstances(),
        fetches in select(vec![Fetches::Never, Fetches::WhenAsked, Fetches::Always]),
        news in news(),
        unseen in any::<bool>(),
    ) {
        let mut cluster = cluster;
        // Shortly after the start, documents are refused.
        cluster.started = 0;
        if unseen {
            cluster.servers.iter_mut().for_each(Server::forget);
        }
        let asked = Circumstances { nopeer: false, ..asked };
        let (end, deniers) = drive(&mut cluster, &target, &asked, fetches, &news);
        // Only one server is asked for its own document, and its 404 is refreshed once.
        prop_assert!(deniers.len() <= 1, "{:?}", deniers);
        if end == End::NotFound {
            prop_assert!(is_proved(&cluster, target.info().part(), NOW));
        }
    }

    #[test]
    fn an_unserved_request_ends_in_a_404_once_all_members_confirm(
        cluster in clusters(), target in resource_targets()
    ) {
        // Every member is healthy and confirms its view, and none lists the request.
        let mut cluster = cluster;
        for server in &mut cluster.servers {
            server.confirm(NOW, [Some(&empty()), Some(&empty())]);
        }
        cluster.extensions.clear();
        let asked = Circumstances {
            origin: Origin::Client,
            nopeer: false,
            arrived: NOW,
            local: LocalHealth::Ready,
            denials: Vec::new(),
        };
        let info = target.info();
        let opaque = Listing::of(&cluster, &info).is_opaque();
        let someone = cluster.local.is_some() || cluster.servers.iter().any(Server::reachable);
        prop_assume!(!opaque && someone);
        let all_well = vec![Some((None, None)); 5];
        let (end, _) = drive(&mut cluster, &target, &asked, Fetches::WhenAsked, &all_well);
        prop_assert_eq!(end, End::NotFound);
    }
}

/// Follows decisions as the data path does, with members that answer only unrouted 404s.
fn drive(
    cluster: &mut Cluster,
    target: &Target,
    asked: &Circumstances,
    fetches: Fetches,
    news: &[News],
) -> (End, Vec<Arc<str>>) {
    let info = target.info();
    let mut denials: Vec<(Arc<str>, u64, bool)> = Vec::new();
    let mut fetched = false;
    for _ in 0..100 {
        let taken = denials.clone();
        let borrowed: Vec<Denial<'_>> = taken
            .iter()
            .map(|(member, moment, listed)| Denial { member, at: at(*moment), listed: *listed })
            .collect();
        let snapshot = cluster.snapshot();
        let asked = Asked { arrived: at(NOW), ..asked.asked(&borrowed) };
        let decision = decide(&info, &snapshot, asked);
        let denier = match decision.action {
            Action::Refuse => return (End::Refused, deniers(&denials)),
            Action::PassNotFound => return (End::NotFound, deniers(&denials)),
            Action::Answer => return (End::Answered, deniers(&denials)),
            Action::Local { .. } | Action::AskLocal => cluster.local.clone(),
            Action::AskAny => {
                let ready = cluster.servers.iter().find(|server| server.reachable());
                ready.map(|server| server.member.id.clone())
            }
            Action::Peers(candidates) => candidates.iter().next().map(|member| member.id.clone()),
        };
        // Without a member to ask, a load balancer refuses.
        let Some(denier) = denier else { return (End::Refused, deniers(&denials)) };
        if decision.on_not_found == OnNotFound::PassThrough {
            return (End::PassedOn, deniers(&denials));
        }

        cluster.now += 1;
        denials.push((denier, cluster.now, decision.listed));
        let wanted = decision.on_not_found != OnNotFound::NextUnlessObject;
        let fetch = match fetches {
            Fetches::Never => false,
            Fetches::WhenAsked => wanted && !fetched,
            Fetches::Always => true,
        };
        if fetch {
            fetched = true;
            fetch_all(cluster, news);
        }
    }
    panic!("no end: {:?}", denials);
}

fn deniers(denials: &[(Arc<str>, u64, bool)]) -> Vec<Arc<str>> {
    denials.iter().map(|(member, _, _)| Arc::clone(member)).collect()
}

fn fetch_all(cluster: &mut Cluster, news: &[News]) {
    let now = cluster.now;
    for (server, news) in cluster.servers.iter_mut().zip(news) {
        if let Some((api, apis)) = news {
            server.confirm(now, [api.as_ref(), apis.as_ref()]);
        }
    }
}

fn empty() -> Value {
    serde_json::json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [],
    })
}
