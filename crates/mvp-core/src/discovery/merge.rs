//! The merge of the documents of several servers into one.
//!
//! The result is that of Kubernetes: servers in the order of their IDs, names of each level in one
//! order ([`merge_order`]), the union of verbs and of subresources, everything else from the first
//! server that has the entry. There are three intended differences: the verbs of a subresource are
//! a union too (Kubernetes takes those of the last server), `freshness` is Current if any server
//! reports so (Kubernetes takes that of the first server), and unknown fields come from any server
//! that has them. Entry item: [`merge`].

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::json::{self, Object};
use super::model::MAX_FAULTS;
use super::order::merge_order;
use super::{Group, GroupList};

/// Merges the lists of servers, which must be in the order of the servers' IDs.
pub fn merge<'a>(lists: impl IntoIterator<Item = &'a GroupList>) -> GroupList {
    let mut groups: HashMap<&str, Merging> = HashMap::new();
    let mut orders: Vec<Vec<&str>> = Vec::new();
    let mut unknown: Vec<(String, String)> = Vec::new();
    let mut known: HashSet<&str> = HashSet::new();
    for list in lists {
        // Servers of one version have equal orders, which count once.
        let order = list.groups.iter().map(|group| &*group.name).collect();
        if !orders.contains(&order) {
            orders.push(order);
        }
        for group in &list.groups {
            match groups.entry(&group.name) {
                Entry::Vacant(entry) => {
                    entry.insert(Merging { merged: Arc::clone(group), steps: Vec::new() });
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(group),
            }
        }
        for (key, value) in &list.unknown {
            if known.insert(key) {
                unknown.push((key.clone(), value.clone()));
            }
        }
    }
    let order = merge_order(&orders);
    let groups = order.iter().filter_map(|name| groups.remove(name)).map(|group| group.merged);
    GroupList { groups: groups.collect(), unknown, ..GroupList::default() }
}

/// A group during the merge. Servers of one version have equal groups, so results are cached.
struct Merging {
    merged: Arc<Group>,
    /// Earlier steps: the group before, the group added and the result.
    steps: Vec<[Arc<Group>; 3]>,
}

impl Merging {
    fn add(&mut self, group: &Arc<Group>) {
        if adds_nothing(&self.merged, group) {
            return;
        }
        let known = self.steps.iter().find(|[before, added, _]| {
            before.raw == self.merged.raw
                && before.legacy == self.merged.legacy
                && added.raw == group.raw
                && added.legacy == group.legacy
        });
        let after = match known {
            Some([.., after]) => Arc::clone(after),
            None => {
                let after = merge_groups(&self.merged, group);
                let step = [Arc::clone(&self.merged), Arc::clone(group), Arc::clone(&after)];
                self.steps.push(step);
                after
            }
        };
        self.merged = after;
    }
}

/// Whether the second group adds nothing to the first.
pub(super) fn adds_nothing(first: &Group, second: &Group) -> bool {
    std::ptr::eq(first, second)
        || first.raw == second.raw && (second.legacy.is_none() || first.legacy == second.legacy)
}

/// Merges one group of two servers. Most servers agree; then nothing is copied.
pub(super) fn merge_groups(first: &Arc<Group>, second: &Arc<Group>) -> Arc<Group> {
    if adds_nothing(first, second) {
        return Arc::clone(first);
    }
    // Both were parsed before, so neither the merge nor parsing its result fails.
    let merged =
        merge_group_texts(first.text(), second.text()).and_then(|text| Group::parse(text.into()));
    match merged {
        Ok(mut group) => {
            group.legacy = match (&first.legacy, &second.legacy) {
                (Some(first), Some(second)) => Some(Arc::new(first.united(second))),
                (one, other) => one.as_ref().or(other.as_ref()).cloned(),
            };
            Arc::new(group)
        }
        Err(_) => Arc::clone(first),
    }
}

/// The group without nameless entries and with duplicate entries merged. Only so many that differ are
/// merged: each merge reads the entry again.
pub(super) fn repaired(text: &str) -> Result<Group, serde_json::Error> {
    Group::parse(repair_group(text, &Cell::new(MAX_FAULTS))?.into())
}

type Text<'a> = Cow<'a, str>;
type Outcome = Result<String, serde_json::Error>;

const GROUP_FIELDS: [&str; 4] = ["kind", "apiVersion", "metadata", "versions"];
const VERSION_FIELDS: [&str; 3] = ["version", "resources", "freshness"];
const RESOURCE_FIELDS: [&str; 8] = [
    "resource",
    "responseKind",
    "scope",
    "singularResource",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
];
const SUBRESOURCE_FIELDS: [&str; 4] = ["subresource", "responseKind", "acceptedTypes", "verbs"];

fn merge_group_texts(first: &str, second: &str) -> Outcome {
    let (mut merged, second) = (Object::parse(first)?, Object::parse(second)?);
    let versions = merge_lists(&merged, &second, "versions", "version", merge_versions)?;
    merged.set("versions", versions);
    merged.adopt_unknown(second, &GROUP_FIELDS);
    Ok(merged.to_string())
}

fn merge_versions(first: &str, second: &str) -> Outcome {
    let (mut merged, second) = (Object::parse(first)?, Object::parse(second)?);
    let resources = merge_lists(&merged, &second, "resources", "resource", merge_resources)?;
    merged.set("resources", resources);
    if second.string("freshness")? == "Current" {
        merged.set("freshness", json::quoted("Current"));
    }
    merged.adopt_unknown(second, &VERSION_FIELDS);
    Ok(merged.to_string())
}

fn merge_resources(first: &str, second: &str) -> Outcome {
    let (mut merged, second) = (Object::parse(first)?, Object::parse(second)?);

    let verbs = united_verbs(&merged, &second)?;
    merged.set("verbs", verbs);

    let (ours, theirs) = (merged.array("subresources")?, second.array("subresources")?);
    let mut subresources: BTreeMap<String, Text<'_>> = BTreeMap::new();
    for text in ours.into_iter().chain(theirs) {
        let name = name_of(text, "subresource")?;
        let united = match subresources.get(&name) {
            Some(first) if first != text => Cow::Owned(merge_subresources(first, text)?),
            _ => Cow::Borrowed(text),
        };
        subresources.insert(name, united);
    }
    if !subresources.is_empty() {
        let subresources = json::joined(subresources.values());
        merged.set("subresources", subresources);
    }
    merged.adopt_unknown(second, &RESOURCE_FIELDS);
    Ok(merged.to_string())
}

/// The entry of the second server, as in Kubernetes, but with the verbs of both.
fn merge_subresources(first: &str, second: &str) -> Outcome {
    let (first, mut merged) = (Object::parse(first)?, Object::parse(second)?);
    let ours = verbs_of(&first)?;
    let theirs: HashSet<String> = verbs_of(&merged)?.into_iter().collect();
    if ours.iter().any(|verb| !theirs.contains(verb)) {
        let verbs = united_verbs(&first, &merged)?;
        merged.set("verbs", verbs);
    }
    merged.adopt_unknown(first, &SUBRESOURCE_FIELDS);
    Ok(merged.to_string())
}

/// Merges the arrays of named entries of two objects.
fn merge_lists(
    first: &Object<'_>,
    second: &Object<'_>,
    list: &str,
    name: &str,
    merge: fn(&str, &str) -> Outcome,
) -> Outcome {
    let mut entries: HashMap<String, Text<'_>> = HashMap::new();
    let mut orders: [Vec<String>; 2] = Default::default();
    for (object, order) in [first, second].into_iter().zip(&mut orders) {
        for text in object.array(list)? {
            let name = name_of(text, name)?;
            match entries.get_mut(&name) {
                None => {
                    entries.insert(name.clone(), Cow::Borrowed(text));
                }
                Some(entry) if entry != text => *entry = Cow::Owned(merge(entry, text)?),
                Some(_) => {}
            }
            order.push(name);
        }
    }
    let orders = orders.each_ref().map(|order| order.iter().map(String::as_str).collect());
    let ordered = merge_order(&orders);
    Ok(json::joined(ordered.iter().filter_map(|name| entries.get(*name))))
}

fn repair_group(text: &str, merges: &Cell<usize>) -> Outcome {
    let mut group = Object::parse(text)?;
    let versions = repair_list(&group, "versions", "version", (merge_versions, merges), |text| {
        let mut version = Object::parse(text)?;
        let merge = (merge_resources as Merge, merges);
        let resources = repair_list(&version, "resources", "resource", merge, |text| {
            let mut resource = Object::parse(text)?;
            let keep = |text: &str| Ok(text.to_owned());
            if resource.get("subresources").is_some() {
                let merge = (merge_subresources as Merge, merges);
                let subresources =
                    repair_list(&resource, "subresources", "subresource", merge, keep)?;
                resource.set("subresources", subresources);
            }
            Ok(resource.to_string())
        })?;
        version.set("resources", resources);
        Ok(version.to_string())
    })?;
    group.set("versions", versions);
    Ok(group.to_string())
}

type Merge = fn(&str, &str) -> Outcome;

/// The entries of a list, repaired. The merge of duplicates comes with how many more are merged.
fn repair_list(
    object: &Object<'_>,
    list: &str,
    name: &str,
    (merge, merges): (Merge, &Cell<usize>),
    repair: impl Fn(&str) -> Outcome,
) -> Outcome {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<String> = Vec::new();
    for text in object.array(list)? {
        let name = name_of(text, name)?;
        if name.is_empty() {
            continue;
        }
        let text = repair(text)?;
        let place = *places.entry(name).or_insert(entries.len());
        match entries.get_mut(place) {
            None => entries.push(text),
            Some(first) if *first == text => {}
            Some(first) => {
                if let Some(left) = merges.get().checked_sub(1) {
                    merges.set(left);
                    *first = merge(first, &text)?;
                }
            }
        }
    }
    Ok(json::joined(entries))
}

fn name_of(text: &str, field: &str) -> Result<String, serde_json::Error> {
    let object = Object::parse(text)?;
    Ok(object.string(field)?.into_owned())
}

fn verbs_of(object: &Object<'_>) -> Result<Vec<String>, serde_json::Error> {
    let verbs = object.array("verbs")?;
    verbs.into_iter().map(|verb| json::string(verb).map(Cow::into_owned)).collect()
}

/// The verbs of both, sorted; `null` for none, as Go writes it.
fn united_verbs(first: &Object<'_>, second: &Object<'_>) -> Outcome {
    let mut verbs = verbs_of(first)?;
    verbs.extend(verbs_of(second)?);
    verbs.sort_unstable();
    verbs.dedup();
    if verbs.is_empty() {
        return Ok("null".to_owned());
    }
    Ok(json::quoted_list(verbs.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::discovery::{Limits, Part, Source};

    /// A server with `jobs` and its status, with this verb and this kind.
    fn server(verb: &str, kind: &str) -> GroupList {
        let text = format!(
            r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
            {{"metadata":{{"name":"batch"}},"versions":[{{"version":"v1","resources":[
            {{"resource":"jobs","scope":"Namespaced","verbs":["{verb}"],"subresources":[
            {{"subresource":"status","responseKind":{{"kind":"{kind}"}},"verbs":["get"]}}]}}]}}]}}]}}"#
        );
        let source = Source { server: "a", document: "/apis" };
        let parsed = GroupList::parse(source, Part::Apis, Bytes::from(text), &Limits::default());
        parsed.expect("a document").value
    }

    /// The last server's entry of a subresource counts, so adding the first server again changes the
    /// result.
    #[test]
    fn cached_merges_equal_fresh_ones() {
        let (one, other) = (server("get", "One"), server("list", "Other"));
        let third = server("watch", "One");
        let lists = [&one, &other, &one, &other, &third, &one, &one, &other, &third];
        for count in 1..=lists.len() {
            let all = merge(lists.iter().copied().take(count));
            let step_by_step =
                lists.iter().copied().take(count).cloned().reduce(|a, b| merge([&a, &b]));
            assert_eq!(Some(all), step_by_step, "{count}");
        }
    }
}
