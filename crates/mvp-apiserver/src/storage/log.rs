//! The latest changes of one resource, limited in number and in bytes. Entry: [`Log`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::Object;

/// Changes in order. Old changes are dropped, but the log knows which ones.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<(usize, Arc<Event>)>,
    bytes: usize,
    most_events: usize,
    most_bytes: usize,
    forgotten: u64,
}

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    /// The number of the change.
    pub(crate) revision: u64,
    /// Whether the object was removed.
    pub(crate) deleted: bool,
    /// The object after the change; for a removal, its last state.
    pub(crate) object: Arc<Object>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The error of a reader whose changes were dropped before it read them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The change after which the reader wanted to continue.
    pub(crate) asked: u64,
    /// The earliest change after which all changes are known.
    pub(crate) oldest: u64,
}

impl Log {
    pub(super) fn new(most_events: usize, most_bytes: usize) -> Log {
        Log { events: VecDeque::new(), bytes: 0, most_events, most_bytes, forgotten: 0 }
    }

    pub(super) fn push(&mut self, event: Event) {
        let bytes = serde_json::to_vec(&event.object.fields).map_or(0, |text| text.len());
        self.bytes += bytes;
        self.events.push_back((bytes, Arc::new(event)));
        while self.events.len() > self.most_events || self.bytes > self.most_bytes {
            let Some((bytes, event)) = self.events.pop_front() else {
                return;
            };
            self.bytes -= bytes;
            self.forgotten = event.revision;
        }
    }

    /// The first changes after a revision, up to a number.
    pub(super) fn after(&self, revision: u64, most: usize) -> Result<Vec<Arc<Event>>, Expired> {
        if revision < self.forgotten {
            return Err(Expired { asked: revision, oldest: self.forgotten });
        }
        let first = self.events.partition_point(|(_, event)| event.revision <= revision);
        Ok(self.events.iter().skip(first).take(most).map(|(_, event)| Arc::clone(event)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fields, ObjectKey};
    use super::*;

    fn push(log: &mut Log, revision: u64, bytes: usize) {
        let key = ObjectKey { namespace: String::new(), name: "x".to_owned() };
        let mut fields = Fields::new();
        fields.insert("data".to_owned(), "x".repeat(bytes).into());
        let object = Arc::new(Object { key, fields });
        log.push(Event { revision, deleted: false, object, previous: None });
    }

    fn revisions(log: &Log, after: u64) -> Vec<u64> {
        log.after(after, 100).unwrap().iter().map(|event| event.revision).collect()
    }

    #[test]
    fn old_changes_expire_and_newer_ones_are_complete() {
        let mut log = Log::new(2, 1000);
        for revision in [3, 5, 8] {
            push(&mut log, revision, 1);
        }
        assert_eq!(log.after(2, 100).unwrap_err(), Expired { asked: 2, oldest: 3 });
        assert_eq!(revisions(&log, 3), [5, 8]);
        assert_eq!(revisions(&log, 5), [8]);
        assert!(revisions(&log, 9).is_empty());
        assert_eq!(log.after(3, 1).unwrap().len(), 1);
    }

    #[test]
    fn changes_are_limited_by_their_size() {
        let mut log = Log::new(1000, 1000);
        for revision in 1..=5 {
            push(&mut log, revision, 1000 / 3);
        }
        assert_eq!(revisions(&log, 3), [4, 5]);
        assert!(log.after(2, 100).is_err());
    }
}
