//! Reads of many objects at one revision. Entry: [`Storage::range`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{Collection, CollectionKey, Object, ObjectKey, Storage};

/// The objects to read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    /// Only objects after this key.
    pub(crate) after: Option<ObjectKey>,
    /// The objects as they were at this revision; now if it is absent.
    pub(crate) revision: Option<u64>,
}

/// Why a revision cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Changes after it are forgotten.
    Compacted,
    /// It is later than the latest change, which has this number.
    Future(u64),
}

impl Storage {
    /// The objects of a resource in the order of their keys, and the revision at which they were read.
    pub(crate) fn range(
        &self,
        collection: &CollectionKey,
        range: &Range,
    ) -> Result<(u64, Vec<Arc<Object>>), Unreadable> {
        let mut state = self.0.lock();
        let latest = state.revision;
        let revision = range.revision.unwrap_or(latest);
        if revision > latest {
            return Err(Unreadable::Future(latest));
        }
        let held = state.collection(collection, self.0.limits);
        let start = range.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok((revision, held.at(revision, start)?))
    }
}

impl Collection {
    /// The objects at a revision: the current ones, without the changes after it.
    fn at(&self, revision: u64, start: Bound<&ObjectKey>) -> Result<Vec<Arc<Object>>, Unreadable> {
        let log = &self.log;
        let changes = log.check_start(revision).and_then(|()| log.after(revision, usize::MAX));
        let changes = changes.map_err(|_| Unreadable::Compacted)?;
        let range = (start, Bound::Unbounded);
        let current = self.objects.range::<ObjectKey, _>(range);
        if changes.is_empty() {
            return Ok(current.map(|(_, object)| Arc::clone(object)).collect());
        }
        let mut objects: BTreeMap<&ObjectKey, &Arc<Object>> = current.collect();
        // The earliest change of an object comes last, and knows its state at the revision.
        for change in changes.iter().rev() {
            match &change.previous {
                Some(previous) => drop(objects.insert(&change.object.key, previous)),
                None => drop(objects.remove(&change.object.key)),
            }
        }
        Ok(objects.range::<ObjectKey, _>(range).map(|(_, object)| Arc::clone(object)).collect())
    }
}
