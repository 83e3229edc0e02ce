//! The objects of a cluster, shared by its servers like one etcd. Entry: [`Storage`].
//!
//! [`Storage`] has one lock, one counter of changes, and for each resource its objects and a log of
//! their latest changes ([`log`]). Watches read that log at their own pace ([`cursor`]): nothing is
//! kept for a single watch, and a watch that falls behind the log gets an error.

mod cursor;
mod log;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;

pub(crate) use cursor::{Cursor, Start};
use log::Log;
pub(crate) use log::{Event, Expired};

use crate::object;

/// The objects of a cluster. Clones share them.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    log_capacity: usize,
}

#[derive(Debug)]
struct State {
    revision: u64,
    collections: HashMap<CollectionKey, Collection>,
}

/// The objects of a resource, in all versions.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    log: Log,
    changed: watch::Sender<()>,
}

/// The group and plural name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CollectionKey {
    pub(crate) group: String,
    pub(crate) resource: String,
}

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
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
}

/// The number of changes that the log of a resource keeps.
const LOG_CAPACITY: usize = 4096;
/// The bytes of changes that the log of a resource keeps.
const LOG_BYTES: usize = 64 << 20;

impl Storage {
    /// An empty storage.
    pub fn new() -> Storage {
        Storage::with_log_capacity(LOG_CAPACITY)
    }

    /// An empty storage that keeps this many changes of each resource. A watch that falls further
    /// behind ends with `410 Gone`.
    pub fn with_log_capacity(events: usize) -> Storage {
        // From 1: 0 has a special meaning for lists and watches.
        let state = Mutex::new(State { revision: 1, collections: HashMap::new() });
        Storage(Arc::new(Shared { state, log_capacity: events.max(1) }))
    }

    /// The number of the latest change.
    pub fn resource_version(&self) -> u64 {
        self.0.lock().revision
    }

    /// Changes one object in a transaction. `decide` gets the current object and returns the change, or
    /// an error. Without `commit` nothing is stored. Returns the new object, or the last state of a
    /// removed one.
    pub(crate) fn transact<E>(
        &self,
        collection: &CollectionKey,
        key: &ObjectKey,
        commit: bool,
        decide: impl FnOnce(Option<&Object>) -> Result<Change, E>,
    ) -> Result<Arc<Object>, E> {
        let mut state = self.0.lock();
        let revision = state.revision + 1;
        let held = state.collection(collection, self.0.log_capacity);
        let previous = held.objects.get(key).cloned();
        let (mut fields, deleted) = match (decide(previous.as_deref())?, &previous) {
            (Change::Put(fields), _) => (fields, false),
            (Change::Delete, Some(previous)) => (previous.fields.clone(), true),
            (Change::Delete, None) => (Fields::new(), true),
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
            return Ok(Arc::new(Object { key: key.clone(), fields }));
        }

        object::set_metadata(&mut fields, "resourceVersion", &revision.to_string());
        let object = Arc::new(Object { key: key.clone(), fields });
        if deleted {
            held.objects.remove(key);
        } else {
            held.objects.insert(key.clone(), Arc::clone(&object));
        }
        held.log.push(Event { revision, deleted, object: Arc::clone(&object), previous });
        held.changed.send_replace(());
        state.revision = revision;
        Ok(object)
    }

    /// One object.
    pub(crate) fn get(&self, collection: &CollectionKey, key: &ObjectKey) -> Option<Arc<Object>> {
        self.0.lock().collections.get(collection)?.objects.get(key).cloned()
    }

    /// All objects of a resource, and the number of the latest change.
    pub(crate) fn list(&self, collection: &CollectionKey) -> (u64, Vec<Arc<Object>>) {
        let state = self.0.lock();
        let objects = state.collections.get(collection);
        let objects = objects.map(|held| held.objects.values().cloned().collect());
        (state.revision, objects.unwrap_or_default())
    }
}

impl Default for Storage {
    fn default() -> Self {
        Storage::new()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn collection(&mut self, key: &CollectionKey, log_capacity: usize) -> &mut Collection {
        self.collections.entry(key.clone()).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            log: Log::new(log_capacity, LOG_BYTES),
            changed: watch::Sender::new(()),
        })
    }
}
