//! Counters whose labels name a resource, found without making the labels. Entry item:
//! [`ByResource::get`].

use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock};

use hashbrown::{DefaultHashBuilder, HashTable};
use prometheus_client::metrics::counter::Counter;

/// A group, version and resource, and a status code where it is a label, too.
pub(super) type Key<'a> = (&'a str, &'a str, &'a str, u16);

/// The counters that are known.
#[derive(Debug, Default)]
pub(super) struct ByResource {
    known: RwLock<HashTable<Known>>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Known {
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    code: u16,
    counter: Counter,
}

impl Known {
    fn key(&self) -> Key<'_> {
        (&self.group, &self.version, &self.resource, self.code)
    }
}

impl ByResource {
    /// The counter with this key. The first time, `make` makes it; `None` is not kept.
    pub(super) fn get(
        &self,
        key: Key<'_>,
        make: impl FnOnce() -> Option<Counter>,
    ) -> Option<Counter> {
        let hash = self.hasher.hash_one(key);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.find(hash, |known| known.key() == key) {
            return Some(known.counter.clone());
        }
        drop(known);
        let counter = make()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let rehash = |known: &Known| self.hasher.hash_one(known.key());
        // Another request may have added the same counter.
        known.entry(hash, |known| known.key() == key, rehash).or_insert_with(|| {
            let (group, version, resource, code) = key;
            let (group, version, resource) = (group.into(), version.into(), resource.into());
            Known { group, version, resource, code, counter: counter.clone() }
        });
        Some(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_made_once_for_each_key() {
        let counters = ByResource::default();
        let keys = [
            ("a", "v1", "x", 200),
            ("a", "v1", "x", 404),
            ("a", "v1x", "", 200),
            ("", "a", "v1x", 200),
        ];
        for round in 1..=3 {
            for key in keys {
                let counter = counters.get(key, || (round == 1).then(Counter::default)).unwrap();
                assert_eq!(counter.inc(), round - 1, "{key:?}");
            }
        }
        assert!(counters.get(("b", "v1", "x", 200), || None).is_none());
    }
}
