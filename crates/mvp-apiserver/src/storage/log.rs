//! The latest changes of one resource, limited in number and in bytes. Entry: [`Log`].

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::{Fields, Object};

/// Changes in order. Old changes are dropped, but the log knows which ones.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<(usize, Arc<Event>)>,
    most_events: usize,
    /// The last change that was dropped.
    dropped: u64,
    /// The revision up to which new readers cannot start.
    compacted: u64,
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
    /// The line of the change for watches, encoded once for all that show it alike.
    pub(crate) line: SharedLine,
}

/// A line that many watches show alike: the first one makes it.
#[derive(Debug, Default)]
pub(crate) struct SharedLine(OnceLock<(&'static str, Arc<str>, Bytes)>);

impl SharedLine {
    /// The line of this kind and form. It is kept if it is the first one that is asked for.
    pub(crate) fn get(
        &self,
        kind: &'static str,
        form: &Arc<str>,
        make: impl Fn() -> Bytes,
    ) -> Bytes {
        match self.0.get_or_init(|| (kind, Arc::clone(form), make())) {
            (kept_kind, kept_form, line) if *kept_kind == kind && kept_form == form => line.clone(),
            _ => make(),
        }
    }
}

/// The error of a reader whose changes were dropped before it read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The change after which the reader wanted to continue.
    pub(crate) asked: u64,
    /// The earliest change after which all changes are known.
    pub(crate) oldest: u64,
}

impl Log {
    /// An empty log. New readers cannot start before `compacted`.
    pub(super) fn new(most_events: usize, compacted: u64) -> Log {
        Log { events: VecDeque::new(), most_events, dropped: 0, compacted }
    }

    /// Adds a change. Returns the bytes that it needs, and those of the changes that it displaces.
    pub(super) fn push(&mut self, event: Event) -> (usize, usize) {
        let added = size(&event);
        self.events.push_back((added, Arc::new(event)));
        let freed = match self.events.len() > self.most_events {
            true => self.oldest().map_or(0, |revision| self.forget(revision)),
            false => 0,
        };
        (added, freed)
    }

    /// Drops the changes up to and including a revision, and returns their bytes.
    pub(super) fn forget(&mut self, revision: u64) -> usize {
        self.compacted = self.compacted.max(revision);
        let first = self.events.partition_point(|(_, event)| event.revision <= revision);
        let mut bytes = 0;
        for (size, event) in self.events.drain(..first) {
            bytes += size;
            self.dropped = event.revision;
        }
        bytes
    }

    /// The revision of the oldest change.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.events.front().map(|(_, event)| event.revision)
    }

    /// Whether a reader can start after this revision.
    pub(super) fn check_start(&self, revision: u64) -> Result<(), Expired> {
        match revision < self.compacted {
            true => Err(Expired { asked: revision, oldest: self.compacted }),
            false => Ok(()),
        }
    }

    /// The first changes after a revision, up to a number. The reader has read all changes up to that
    /// revision: a compaction of changes that it knows does not concern it.
    pub(super) fn after(&self, revision: u64, most: usize) -> Result<Vec<Arc<Event>>, Expired> {
        if revision < self.dropped {
            return Err(Expired { asked: revision, oldest: self.dropped });
        }
        let first = self.events.partition_point(|(_, event)| event.revision <= revision);
        Ok(self.events.iter().skip(first).take(most).map(|(_, event)| Arc::clone(event)).collect())
    }
}

/// The memory that a change keeps, about. The previous state counts too: it is kept even if the change
/// that made it is forgotten. So does the line for watches, which is shorter than the object.
fn size(event: &Event) -> usize {
    let previous = event.previous.as_ref().map_or(0, |object| size_of_fields(&object.fields));
    2 * size_of_fields(&event.object.fields) + previous
}

/// The memory of fields, about.
pub(super) fn size_of_fields(fields: &Fields) -> usize {
    fields.iter().map(|(key, value)| key.len() + 16 + size_of_value(value)).sum()
}

/// The memory of a value, about. Its depth is limited where bodies are parsed.
pub(crate) fn size_of_value(value: &Value) -> usize {
    32 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size_of_value).sum(),
        Value::Object(fields) => size_of_fields(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fields, ObjectKey};
    use super::*;

    fn push(log: &mut Log, revision: u64, bytes: usize) -> (usize, usize) {
        let key = ObjectKey { namespace: String::new(), name: "x".to_owned() };
        let mut fields = Fields::new();
        fields.insert("data".to_owned(), "x".repeat(bytes).into());
        let object = Arc::new(Object { key, fields });
        log.push(Event {
            revision,
            deleted: false,
            object,
            previous: None,
            line: SharedLine::default(),
        })
    }

    fn revisions(log: &Log, after: u64) -> Vec<u64> {
        log.after(after, 100).unwrap().iter().map(|event| event.revision).collect()
    }

    #[test]
    fn old_changes_expire_and_newer_ones_are_complete() {
        let mut log = Log::new(2, 0);
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
    fn a_line_is_made_once_for_the_first_kind_and_form() {
        let line = SharedLine::default();
        let made = std::cell::Cell::new(0);
        for (kind, form, count) in
            [("ADDED", "a", 1), ("ADDED", "a", 1), ("ADDED", "b", 2), ("DELETED", "a", 3)]
        {
            let make = || {
                made.set(made.get() + 1);
                Bytes::from(format!("{kind} {form}"))
            };
            assert_eq!(line.get(kind, &form.into(), make), format!("{kind} {form}"));
            assert_eq!(made.get(), count);
        }
    }

    #[test]
    fn bytes_are_accounted_for() {
        let mut log = Log::new(1, 0);
        let (first, freed) = push(&mut log, 1, 1000);
        assert!(first > 1000 && freed == 0);
        let (second, freed) = push(&mut log, 2, 10);
        assert_eq!(freed, first);
        assert_eq!(log.forget(7), second);
    }

    #[test]
    fn a_compaction_concerns_new_readers_and_those_who_have_not_read_it() {
        let mut log = Log::new(10, 0);
        push(&mut log, 4, 1);
        log.forget(7);
        assert_eq!(log.check_start(6), Err(Expired { asked: 6, oldest: 7 }));
        assert_eq!(log.check_start(7), Ok(()));
        assert_eq!(log.after(3, 1).unwrap_err(), Expired { asked: 3, oldest: 4 });
        assert!(revisions(&log, 4).is_empty());
    }
}
