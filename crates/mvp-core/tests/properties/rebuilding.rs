//! Reusing parts of the previous snapshot changes nothing.

use mvp_core::decide::{Action, Asked, Decision, LocalHealth, Origin};
use mvp_core::discovery::Part;
use mvp_core::member::{Presence, Release};
use mvp_core::{RequestInfo, Snapshot, decide};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use crate::clusters::{Cluster, at, clusters, releases};
use crate::config;
use crate::documents::{GROUPS, RESOURCES, VERSIONS, document};
use crate::merging::all_documents;

/// A change of a cluster between two rounds of the control loop.
#[derive(Debug, Clone)]
enum Change {
    Confirmed(Index),
    Said(Index, Value),
    Upgraded(Index, Option<Release>),
    Left(Index),
    Forgotten(Index),
    Renamed(Index),
    Extended(&'static str, &'static str),
    Local(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        1 => any::<Index>().prop_map(Change::Confirmed),
        1 => (any::<Index>(), document(Part::Apis)).prop_map(|(who, what)| Change::Said(who, what)),
        6 => (any::<Index>(), releases()).prop_map(|(who, release)| Change::Upgraded(who, release)),
        1 => any::<Index>().prop_map(Change::Left),
        1 => any::<Index>().prop_map(Change::Forgotten),
        1 => any::<Index>().prop_map(Change::Renamed),
        1 => (select(&GROUPS[..]), select(&VERSIONS[..])).prop_map(|(g, v)| Change::Extended(g, v)),
        1 => any::<Index>().prop_map(Change::Local),
    ];
    vec(change, 0..=3)
}

/// Documents that were not sent again keep their pointers.
fn happen(cluster: &mut Cluster, change: &Change) {
    let count = cluster.servers.len();
    match change {
        Change::Confirmed(who) => {
            let view = &mut cluster.servers[who.index(count)].member.view;
            for seen in view.api.iter_mut().chain(&mut view.apis) {
                seen.confirmed = at(cluster.now);
            }
        }
        Change::Said(who, document) => {
            cluster.servers[who.index(count)].confirm(cluster.now, [None, Some(document)]);
        }
        Change::Upgraded(who, release) => {
            cluster.servers[who.index(count)].member.view.release = *release;
        }
        Change::Left(who) => cluster.servers[who.index(count)].member.presence = Presence::Left,
        Change::Forgotten(who) if count > 1 => drop(cluster.servers.remove(who.index(count))),
        Change::Forgotten(_) => {}
        Change::Renamed(who) => cluster.servers[who.index(count)].member.id = "a-new-name".into(),
        Change::Extended(group, version) => {
            cluster.extensions = vec![((*group).to_owned(), (*version).to_owned())];
        }
        Change::Local(who) => {
            cluster.local = Some(cluster.servers[who.index(count)].member.id.clone())
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reusing_the_previous_snapshot_changes_nothing(
        before in clusters(), changes in changes()
    ) {
        let previous = before.snapshot();
        let mut after = before;
        for change in &changes {
            happen(&mut after, change);
        }
        let asked = Asked {
            origin: Origin::Client,
            nopeer: false,
            arrived: at(after.now),
            local: LocalHealth::Ready,
            denials: &[],
        };
        // Without a local server, every request goes to a member that serves it.
        for local in [after.local.clone(), None] {
            after.local = local;
            let built = Snapshot::build(after.inputs(), Some(&previous));
            let anew = after.snapshot();
            prop_assert_eq!(all_documents(&built), all_documents(&anew));
            for path in all_resources() {
                // OPTIONS needs only the resource: every member that lists it is a candidate.
                let info = RequestInfo::parse("OPTIONS", &path, None);
                let [one, other] =
                    [&built, &anew].map(|snapshot| said(decide(&info, snapshot, asked)));
                prop_assert_eq!(one, other);
            }
        }
    }
}

fn all_resources() -> impl Iterator<Item = String> {
    let groups =
        GROUPS.map(|group| format!("/apis/{group}")).into_iter().chain(["/api".to_owned()]);
    let versions = groups.flat_map(|group| VERSIONS.map(|version| format!("{group}/{version}")));
    versions.flat_map(|version| RESOURCES.map(|resource| format!("{version}/{resource}")))
}

/// A decision as text, without the borrow of the snapshot.
fn said(decision: Decision<'_>) -> String {
    let action = match decision.action {
        Action::Peers(candidates) => {
            format!("{:?}", candidates.iter().map(|member| &*member.id).collect::<Vec<_>>())
        }
        action => format!("{action:?}"),
    };
    format!("{action} {:?} {:?}", decision.on_not_found, decision.reason)
}
