//! The order of a merge: an order that servers agree on is kept.

use mvp_core::discovery::merge::merge;
use mvp_core::discovery::order::merge_order;
use mvp_core::discovery::{GroupList, Part};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::config;
use crate::documents::{document_sets, parse};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn orders() -> impl Strategy<Value = Vec<Vec<&'static str>>> {
    vec(subsequence(NAMES.to_vec(), 0..=NAMES.len()).prop_shuffle(), 1..=4)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_merged_order_has_every_name_once(lists in orders()) {
        let mut merged = merge_order(&lists);
        let mut names: Vec<&str> = lists.iter().flatten().copied().collect();
        names.sort_unstable();
        names.dedup();
        merged.sort_unstable();
        prop_assert_eq!(merged, names);
    }

    #[test]
    fn orders_that_agree_are_kept(
        (lists, order) in (orders(), Just(NAMES.to_vec()).prop_shuffle())
    ) {
        // Random lists, and the same lists sorted by one order.
        let place = |name: &&str| order.iter().position(|other| other == name);
        let agreeing = lists.iter().cloned().map(|mut list| {
            list.sort_by_key(place);
            list
        });
        for lists in [agreeing.collect(), lists] {
            if !contradict(&lists) {
                let merged = merge_order(&lists);
                prop_assert!(lists.iter().all(|list| keeps(&merged, list)), "{:?}", merged);
            }
        }
    }

    #[test]
    fn groups_keep_an_order_that_all_servers_share(
        documents in document_sets(Part::Apis, 1..=5)
    ) {
        let lists: Vec<_> = documents.iter().map(|document| parse(Part::Apis, document)).collect();
        let merged = merge(lists.iter().map(|list| &**list));
        let orders: Vec<_> = lists.iter().map(|list| groups(list)).collect();
        if !contradict(&orders) {
            prop_assert!(orders.iter().all(|order| keeps(&groups(&merged), order)));
        }
    }

    #[test]
    fn versions_and_resources_keep_an_order_that_two_servers_share(
        documents in document_sets(Part::Apis, 2..=2)
    ) {
        let lists: Vec<_> = documents.iter().map(|document| parse(Part::Apis, document)).collect();
        let merged = merge(lists.iter().map(|list| &**list));
        for group in groups(&merged) {
            let orders: Vec<_> = lists.iter().map(|list| versions(list, group)).collect();
            let merged_order = versions(&merged, group);
            let kept = orders.iter().all(|order| keeps(&merged_order, order));
            prop_assert!(contradict(&orders) || kept);
            for version in merged_order {
                let orders: Vec<_> =
                    lists.iter().map(|list| resources(list, group, version)).collect();
                let merged_order = resources(&merged, group, version);
                let kept = orders.iter().all(|order| keeps(&merged_order, order));
                prop_assert!(contradict(&orders) || kept);
            }
        }
    }
}

fn groups(list: &GroupList) -> Vec<&str> {
    list.groups.iter().map(|group| &*group.name).collect()
}

fn versions<'l>(list: &'l GroupList, group: &str) -> Vec<&'l str> {
    let group = list.group(group);
    group.iter().flat_map(|group| &group.versions).map(|version| &*version.name).collect()
}

fn resources<'l>(list: &'l GroupList, group: &str, version: &str) -> Vec<&'l str> {
    let group = list.group(group);
    let versions = group.iter().flat_map(|group| &group.versions);
    versions
        .filter(|entry| &*entry.name == version)
        .flat_map(|entry| &entry.resources)
        .map(|resource| &*resource.name)
        .collect()
}

/// Whether the lists contradict each other: after removing free names, each name left has another one
/// before it.
fn contradict(lists: &[Vec<&str>]) -> bool {
    let mut left: Vec<&str> = lists.iter().flatten().copied().collect();
    loop {
        let count = left.len();
        let behind = |name: &&str| {
            lists.iter().any(|list| {
                let before = list.iter().take_while(|other| *other != name);
                list.contains(name) && before.into_iter().any(|other| left.contains(other))
            })
        };
        left = left.iter().copied().filter(behind).collect();
        if left.is_empty() || left.len() == count {
            return !left.is_empty();
        }
    }
}

/// Whether the names of a list are in its order.
fn keeps(merged: &[&str], list: &[&str]) -> bool {
    let kept: Vec<&str> = merged.iter().copied().filter(|name| list.contains(name)).collect();
    kept == list
}
