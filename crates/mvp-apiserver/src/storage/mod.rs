//! The objects of a cluster, shared by its servers as they share one etcd.
//!
//! [`Storage`] has one lock, one counter of changes, and for each resource its objects and the log
//! of their latest changes ([`log`]). Watches read that log at their own pace ([`cursor`]): nothing
//! is kept for any one of them, and one that falls behind the log is told so.

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

/// All objects of a resource, whatever the version that they are asked for in.
#[derive(Debug)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    log: Log,
    changed: watch::Sender<()>,
}

/// Group and plural name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CollectionKey {
    pub(crate) group: String,
    pub(crate) resource: String,
}

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The fields of an object.
pub(crate) type Fields = Map<String, Value>;

/// A state of an object. Its fields are without `apiVersion` and `kind`, which are those of
/// whatever version it is asked for in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: ObjectKey,
    pub(crate) fields: Fields,
}

/// What to do to an object.
pub(crate) enum Change {
    /// Make these its fields.
    Put(Fields),
    /// Remove it.
    Delete,
}

/// How many changes of a resource are remembered.
const LOG_CAPACITY: usize = 4096;
/// How many bytes of changes of a resource are remembered.
const LOG_BYTES: usize = 64 << 20;

impl Storage {
    /// An empty one.
    pub fn new() -> Storage {
        Storage::with_log_capacity(LOG_CAPACITY)
    }

    /// An empty one that remembers so many changes of each resource. A watch that is further
    /// behind is ended with `410 Gone`.
    pub fn with_log_capacity(events: usize) -> Storage {
        // From 1, since 0 has a meaning of its own for lists and watches.
        let state = Mutex::new(State { revision: 1, collections: HashMap::new() });
        Storage(Arc::new(Shared { state, log_capacity: events.max(1) }))
    }

    /// The number of the latest change.
    pub fn resource_version(&self) -> u64 {
        self.0.lock().revision
    }

    /// Changes one object, or finds that it should not be changed. `decide` sees the object as it
    /// is and nothing else happens meanwhile; without `commit` what it wants is only tried. What
    /// comes back is the object as it is then, or was before its removal.
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
        // A change that changes nothing is none: writers that repeat themselves wake nobody.
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

    /// All objects of a resource, and the number of the change up to which that is so.
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
        // Nothing that is done under the lock leaves the state half changed.
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
