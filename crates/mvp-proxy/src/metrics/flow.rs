//! Which member answered requests for which API, for a drawing of the traffic. Entry item:
//! [`Flow::record`].
//!
//! A request costs one hash and one lookup under a shared lock. Only resources that a member lists
//! have a count of their own, and the number of counts is bounded.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use hashbrown::{DefaultHashBuilder, HashTable};
use mvp_core::decide::Origin;

use super::requests::{Record, ServedBy, listed_labels};

/// The most pairs of a member and a resource. Resources come and go with custom resource definitions.
const MAX_EDGES: usize = 4096;

/// Counts requests by the member that answered and by resource.
#[derive(Debug, Default)]
pub struct Flow {
    edges: RwLock<HashTable<Edge>>,
    hasher: DefaultHashBuilder,
}

/// Requests that one member answered for one resource, since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowCount {
    /// The member that answered, or `load balancer` for one without a member; empty for requests that
    /// were refused, and `others` for all requests beyond the bound.
    pub member: String,
    /// The group; empty for the core group and for paths without a resource.
    pub group: String,
    /// The version; empty for paths without a resource, and for resources that no member lists.
    pub version: String,
    /// The resource; empty like the version.
    pub resource: String,
    /// All requests.
    pub requests: u64,
    /// Those with a status of 500 or above.
    pub errors: u64,
}

#[derive(Debug)]
struct Edge {
    member: Box<str>,
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    requests: AtomicU64,
    errors: AtomicU64,
}

/// Member, group, version and resource.
type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

/// What is counted together beyond the bound.
const REST: Key<'static> = ("others", "", "", "");

impl Edge {
    fn key(&self) -> Key<'_> {
        (&self.member, &self.group, &self.version, &self.resource)
    }

    fn count(&self, is_error: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(is_error), Ordering::Relaxed);
    }
}

impl Flow {
    /// Counts a request where its client connected: a request of a peer is counted by that peer.
    pub(super) fn record(&self, record: &Record<'_>) {
        if record.parts.extensions.get() == Some(&Origin::Peer) {
            return;
        }
        let (group, version, resource) = listed_labels(record);
        self.count(
            (answered_by(record), group, version, resource),
            record.status.is_server_error(),
        );
    }

    fn count(&self, key: Key<'_>, is_error: bool) {
        let edges = self.edges.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(edge) = self.find(&edges, key) {
            return edge.count(is_error);
        }
        // Beyond the bound nobody waits for the lock that excludes others.
        if edges.len() >= MAX_EDGES
            && let Some(rest) = self.find(&edges, REST)
        {
            return rest.count(is_error);
        }
        drop(edges);
        let mut edges = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        let key = if edges.len() < MAX_EDGES { key } else { REST };
        let (member, group, version, resource) = key;
        let rehash = |edge: &Edge| self.hasher.hash_one(edge.key());
        let new = || Edge {
            member: member.into(),
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        };
        let hash = self.hasher.hash_one(key);
        // Another request may have added the same count.
        let entry = edges.entry(hash, |edge| edge.key() == key, rehash).or_insert_with(new);
        entry.get().count(is_error);
    }

    fn find<'a>(&self, edges: &'a HashTable<Edge>, key: Key<'_>) -> Option<&'a Edge> {
        edges.find(self.hasher.hash_one(key), |edge| edge.key() == key)
    }

    /// All counts, the largest first.
    pub fn counts(&self) -> Vec<FlowCount> {
        let edges = self.edges.read().unwrap_or_else(PoisonError::into_inner);
        let count = |edge: &Edge| FlowCount {
            member: edge.member.to_string(),
            group: edge.group.to_string(),
            version: edge.version.to_string(),
            resource: edge.resource.to_string(),
            requests: edge.requests.load(Ordering::Relaxed),
            errors: edge.errors.load(Ordering::Relaxed),
        };
        let mut counts: Vec<FlowCount> = edges.iter().map(count).collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.requests));
        counts
    }
}

/// The member that answered, or the load balancer itself; empty for a refusal.
fn answered_by<'a>(record: &Record<'a>) -> &'a str {
    let local = || record.snapshot.local().map(|local| &*local.id);
    match record.by {
        ServedBy::Nobody => "",
        _ => record.member.or_else(local).unwrap_or("load balancer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_member_and_resource() {
        let flow = Flow::default();
        for (member, resource, is_error) in
            [("b", "jobs", false), ("b", "jobs", true), ("c", "jobs", false), ("", "jobs", true)]
        {
            flow.count((member, "batch", "v1", resource), is_error);
        }
        let counts = flow.counts();
        let found: Vec<(&str, u64, u64)> =
            counts.iter().map(|one| (&*one.member, one.requests, one.errors)).collect();
        assert_eq!(found.first(), Some(&("b", 2, 1)));
        assert!(found.contains(&("c", 1, 0)) && found.contains(&("", 1, 1)), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn the_number_of_counts_is_bounded() {
        let flow = Flow::default();
        for number in 0..MAX_EDGES + 100 {
            flow.count(("b", "g", "v1", &format!("kind-{number}")), false);
        }
        let counts = flow.counts();
        assert_eq!(counts.len(), MAX_EDGES + 1);
        let rest = counts.iter().find(|count| count.resource.is_empty());
        let rest = rest.map(|rest| (&*rest.member, rest.requests));
        assert_eq!(rest, Some(("others", 100)), "empty would be a refusal");
        assert_eq!(
            counts.iter().map(|count| count.requests).sum::<u64>(),
            (MAX_EDGES + 100) as u64
        );
    }
}
