//! The objects of a cluster, shared by its servers like one etcd. Entry: [`Storage`].
//!
//! [`Storage`] has one lock, one counter of changes (the revision), and for each resource its objects
//! and a log of their latest changes ([`log`]). The log is the history: a read at an older revision
//! takes back the changes after it ([`range`]), and watches read it at their own pace ([`cursor`]).
//! Nothing is kept for a single reader; a reader that falls behind the log gets an error.

mod cursor;
mod key;
mod log;
#[cfg(test)]
mod properties;
mod range;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;

pub(crate) use cursor::{Cursor, Start};
pub(crate) use key::{CollectionKey, ObjectKey};
pub(crate) use log::{Event, Expired, SharedLine, size_of_value};
use log::{Log, size_of_fields};
pub(crate) use range::{Range, Unreadable};

use crate::object;

/// The objects of a cluster. Clones share them.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    limits: Limits,
}

/// The limits of the history and of the objects.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// The changes of one resource.
    events: usize,
    /// The size of all changes.
    bytes: usize,
    /// The size of all objects.
    objects: usize,
}

/// The objects take too much memory: a change that needs more is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSpace;

// For changes whose outcome does not matter.
impl From<NoSpace> for () {
    fn from(_: NoSpace) {}
}

#[derive(Debug)]
struct State {
    revision: u64,
    compacted: u64,
    history_bytes: usize,
    object_bytes: usize,
    collections: HashMap<CollectionKey, Collection>,
}

/// The objects of a resource, in all versions.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    log: Log,
    changed: watch::Sender<()>,
}

/// The fields of an object.
pub(crate) type Fields = Map<String, Value>;

/// A state of an object. Its fields lack `apiVersion` and `kind`, which depend on the requested
/// version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: ObjectKey,
    pub(crate) fields: Fields,
}

/// A change of an object.
pub(crate) enum Change {
    /// Replace its fields.
    Put(Fields),
    /// Remove it.
    Delete,
    /// Remove it, and return these fields: an update that removed the last finalizer.
    Finish(Fields),
}

/// The number of changes that the log of a resource keeps.
const LOG_CAPACITY: usize = 4096;
/// The size of the changes that all logs keep.
const HISTORY_BYTES: usize = 64 << 20;
/// The size of all objects, like the quota of etcd.
const OBJECT_BYTES: usize = 1 << 30;

impl Storage {
    /// An empty storage.
    pub fn new() -> Storage {
        Storage::with_log_capacity(LOG_CAPACITY)
    }

    /// An empty storage that keeps this many changes of each resource. A watch that falls further
    /// behind ends with `410 Gone`, and so does a list at an older revision.
    pub fn with_log_capacity(events: usize) -> Storage {
        Storage::with_limits(events, HISTORY_BYTES, OBJECT_BYTES)
    }

    fn with_limits(events: usize, bytes: usize, objects: usize) -> Storage {
        // From 1: 0 has a special meaning for lists and watches.
        let state = State {
            revision: 1,
            compacted: 0,
            history_bytes: 0,
            object_bytes: 0,
            collections: HashMap::new(),
        };
        let limits = Limits { events: events.max(1), bytes, objects };
        Storage(Arc::new(Shared { state: Mutex::new(state), limits }))
    }

    /// The number of the latest change.
    pub fn resource_version(&self) -> u64 {
        self.0.lock().revision
    }

    /// Forgets the changes up to and including this revision, like a compaction of etcd. Watches and
    /// lists from earlier revisions get `410 Gone`. A revision in the future means the latest one.
    pub fn compact(&self, revision: u64) {
        let mut state = self.0.lock();
        let revision = revision.min(state.revision);
        state.compacted = state.compacted.max(revision);
        let freed: usize =
            state.collections.values_mut().map(|held| held.log.forget(revision)).sum();
        state.history_bytes -= freed;
    }

    /// Changes one object in a transaction: a comparison and a put, as in etcd. `decide` gets the
    /// current object and returns the change, or an error. Without `commit` nothing is stored. Returns
    /// the new object, or the last state of a removed one.
    pub(crate) fn transact<E: From<NoSpace>>(
        &self,
        collection: &CollectionKey,
        key: &ObjectKey,
        commit: bool,
        decide: impl FnOnce(Option<&Object>) -> Result<Change, E>,
    ) -> Result<Arc<Object>, E> {
        let mut state = self.0.lock();
        let (revision, object_bytes) = (state.revision + 1, state.object_bytes);
        let held = state.collection(collection, self.0.limits);
        let previous = held.objects.get(key).cloned();
        let mut returned = None;
        let (mut fields, deleted) = match (decide(previous.as_deref())?, &previous) {
            (Change::Put(fields), _) => (fields, false),
            (Change::Delete, Some(previous)) => (previous.fields.clone(), true),
            (Change::Finish(last), Some(previous)) => {
                returned = Some(last);
                (previous.fields.clone(), true)
            }
            (Change::Delete | Change::Finish(_), None) => return Ok(Object::nothing(key)),
        };
        // An update without a difference is no change: it must not wake watches.
        if let Some(previous) = previous.as_ref().filter(|_| !deleted) {
            let version = object::metadata_text(&previous.fields, "resourceVersion");
            object::set_metadata(&mut fields, "resourceVersion", version);
            if fields == previous.fields {
                return Ok(Arc::clone(previous));
            }
        }
        if !commit {
            let fields = returned.unwrap_or(fields);
            return Ok(Arc::new(Object { key: key.clone(), fields }));
        }

        object::set_metadata(&mut fields, "resourceVersion", &revision.to_string());
        let before = previous.as_ref().map_or(0, |object| size_of_fields(&object.fields));
        let after = if deleted { 0 } else { size_of_fields(&fields) };
        let object_bytes = object_bytes - before + after;
        // A deletion must begin even if there is no space for its time.
        let is_ending = !object::metadata_text(&fields, "deletionTimestamp").is_empty();
        if after > before && object_bytes > self.0.limits.objects && !is_ending {
            return Err(NoSpace.into());
        }
        let object = Arc::new(Object { key: key.clone(), fields });
        if deleted {
            held.objects.remove(key);
        } else {
            held.objects.insert(key.clone(), Arc::clone(&object));
        }
        let (object_of_event, line) = (Arc::clone(&object), SharedLine::default());
        let event = Event { revision, deleted, object: object_of_event, previous, line };
        let (added, freed) = held.log.push(event);
        held.changed.send_replace(());
        state.revision = revision;
        state.object_bytes = object_bytes;
        state.history_bytes = state.history_bytes + added - freed;
        state.trim(self.0.limits.bytes);
        match returned {
            None => Ok(object),
            Some(fields) => Ok(Arc::new(Object { key: key.clone(), fields })),
        }
    }

    /// One object.
    pub(crate) fn get(&self, collection: &CollectionKey, key: &ObjectKey) -> Option<Arc<Object>> {
        self.0.lock().collections.get(collection)?.objects.get(key).cloned()
    }
}

impl Default for Storage {
    fn default() -> Self {
        Storage::new()
    }
}

impl Object {
    /// The last state of an object that does not exist.
    fn nothing(key: &ObjectKey) -> Arc<Object> {
        Arc::new(Object { key: key.clone(), fields: Fields::new() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn collection(&mut self, key: &CollectionKey, limits: Limits) -> &mut Collection {
        let compacted = self.compacted;
        self.collections.entry(key.clone()).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            log: Log::new(limits.events, compacted),
            changed: watch::Sender::new(()),
        })
    }

    /// Drops the oldest changes of all resources until the history fits its limit.
    fn trim(&mut self, most_bytes: usize) {
        while self.history_bytes > most_bytes {
            let logs = self.collections.values_mut().map(|held| &mut held.log);
            let oldest =
                logs.filter_map(|log| Some((log.oldest()?, log))).min_by_key(|(at, _)| *at);
            let Some((revision, log)) = oldest else {
                return;
            };
            self.history_bytes -= log.forget(revision);
        }
    }
}
