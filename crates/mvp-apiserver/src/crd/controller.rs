//! Follows the definitions of the cluster, for one server. Entry: [`start`].
//!
//! All servers of a cluster do this, each in its own time: a server serves a definition after its own
//! delay, and the first one to do so records that the definition is established. Changes of a
//! definition's status are transactions that depend on its current state, so that one writer wins and
//! the others find nothing to do.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::definition::CustomResource;
use super::naming::named;
use super::prepare::FINALIZER;
use super::{Definitions, collection, condition_is_true, set_condition};
use crate::object;
use crate::stamp;
use crate::storage::{Change, Event, Expired, Fields, Object, ObjectKey, Range, Start, Storage};
use crate::surface::Served;

/// Starts to follow definitions, unless it is done already or the server does not serve definitions.
/// The task ends with the server.
pub(crate) fn start(served: &Arc<Served>, storage: &Storage) {
    let key = collection();
    if served.is_establishing()
        || !served.current().serves(&key.group, &key.resource)
        || !served.begin_establishing()
    {
        return;
    }
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            let task = run(Arc::downgrade(served), storage.clone());
            let ended = served.ended();
            let guard = Guard(Arc::downgrade(served));
            runtime.spawn(async move {
                let _guard = guard;
                tokio::select! {
                    () = task => {}
                    () = ended => {}
                }
            });
        }
        Err(_) => served.end_establishing(),
    }
}

/// Allows another start when the task ends, for example with its runtime.
struct Guard(Weak<Served>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(served) = self.0.upgrade() {
            served.end_establishing();
        }
    }
}

async fn run(served: Weak<Served>, storage: Storage) {
    loop {
        let (objects, mut cursor) = storage.follow(&collection(), Start::Objects);
        let mut follower = Follower {
            served: served.clone(),
            storage: storage.clone(),
            seen: BTreeMap::new(),
            published: BTreeMap::new(),
        };
        for object in objects {
            // A server that starts serves what the cluster has established.
            let is_old = condition_is_true(&object.fields, "Established");
            let delay = if is_old { Duration::ZERO } else { follower.delay() };
            follower.see(&object, delay);
        }
        loop {
            let wake = follower.reconcile();
            let changes: Result<Vec<Arc<Event>>, Expired> = tokio::select! {
                changes = cursor.next() => changes,
                () = sleep_until(wake) => Ok(Vec::new()),
            };
            let Ok(changes) = changes else {
                // Too many changes at once: from the start.
                break;
            };
            for change in changes {
                if change.deleted {
                    follower.seen.remove(&change.object.key.name);
                    // Its names are free for others now.
                    follower.renew_all();
                } else {
                    follower.see(&change.object, follower.delay());
                }
            }
        }
    }
}

/// What one server knows of the definitions.
struct Follower {
    served: Weak<Served>,
    storage: Storage,
    seen: BTreeMap<String, Seen>,
    /// The definitions that the server serves, by name.
    published: BTreeMap<String, Published>,
}

/// A definition that a server serves.
struct Published {
    object: Arc<Object>,
    /// `None` if it cannot be served.
    resource: Option<Arc<CustomResource>>,
}

/// A definition that a server has seen.
struct Seen {
    object: Arc<Object>,
    /// When the server serves it; `None` until its names are accepted.
    due: Option<Instant>,
    /// Whether its names, instances and finalizer still have to be looked at.
    fresh: bool,
}

/// The time between two looks at the objects of a deleted definition that have finalizers.
const CLEANUP_PERIOD: Duration = Duration::from_secs(1);
/// The time until the next look if there is nothing to do.
const IDLE: Duration = Duration::from_secs(3_600);

impl Follower {
    fn delay(&self) -> Duration {
        self.served.upgrade().map_or(Duration::ZERO, |served| served.delay())
    }

    fn see(&mut self, object: &Arc<Object>, delay: Duration) {
        let accepted = condition_is_true(&object.fields, "NamesAccepted")
            || condition_is_true(&object.fields, "Established");
        let known = self.seen.get(&object.key.name).and_then(|seen| seen.due);
        let due = accepted.then(|| known.unwrap_or_else(|| Instant::now() + delay));
        let seen = Seen { object: Arc::clone(object), due, fresh: true };
        self.seen.insert(object.key.name.clone(), seen);
    }

    fn renew_all(&mut self) {
        self.seen.values_mut().for_each(|seen| seen.fresh = true);
    }

    /// Does everything that is due, and returns the time of the next look.
    fn reconcile(&mut self) -> Instant {
        let now = Instant::now();
        let mut wake = now + IDLE;
        let surface = self.served.upgrade().map(|served| served.current());
        let is_built_in = |group: &str, plural: &str| {
            surface.as_ref().is_some_and(|surface| surface.is_built_in(group, plural))
        };
        for seen in self.seen.values_mut().filter(|seen| seen.fresh) {
            seen.fresh = false;
            let key = &seen.object.key;
            if !object::metadata_text(&seen.object.fields, "deletionTimestamp").is_empty() {
                if !clean_up(&self.storage, key, is_built_in) {
                    seen.fresh = true;
                    wake = wake.min(now + CLEANUP_PERIOD);
                }
                continue;
            }
            // Read again for each of them: the one before may have taken its names.
            let all = definitions(&self.storage);
            change(&self.storage, key, |fields| Some(named(fields, &all, is_built_in)));
        }
        let accepted = self.seen.values().filter(|seen| seen.due.is_some());
        let (due, later): (Vec<&Seen>, Vec<&Seen>) =
            accepted.partition(|seen| seen.due <= Some(now));
        let next = later.iter().filter_map(|seen| seen.due).min();
        let due: Vec<_> = due.into_iter().map(|seen| Arc::clone(&seen.object)).collect();
        self.publish(&due);
        // Only after it is served: a client may wait for this condition.
        for object in due {
            change(&self.storage, &object.key, established);
        }
        next.map_or(wake, |next| wake.min(next))
    }

    /// Serves these definitions, unless the server does so already.
    fn publish(&mut self, due: &[Arc<Object>]) {
        let mut before = std::mem::take(&mut self.published);
        let mut changed = before.len() != due.len();
        for object in due {
            let name = object.key.name.clone();
            let known = before.remove(&name);
            let resource = match known {
                // Patterns take time to compile: what is the same stays.
                Some(known) if essence(&known.object) == essence(object) => known.resource,
                _ => {
                    changed = true;
                    CustomResource::parse(&object.fields).map(Arc::new)
                }
            };
            self.published.insert(name, Published { object: Arc::clone(object), resource });
        }
        if changed && let Some(served) = self.served.upgrade() {
            let resources = self.published.values().filter_map(|known| known.resource.clone());
            served.define(Definitions::new(resources.collect()));
        }
    }
}

fn definitions(storage: &Storage) -> Vec<Arc<Object>> {
    let read = storage.range(&collection(), &Range::default());
    read.map(|(_, objects)| objects).unwrap_or_default()
}

/// What a server serves of a definition.
fn essence(object: &Object) -> (&str, Option<&Value>, Option<&Value>, &str) {
    let fields = &object.fields;
    let names = fields.get("status").and_then(|status| status.get("acceptedNames"));
    let deleted = object::metadata_text(fields, "deletionTimestamp");
    (&object.key.name, fields.get("spec"), names, deleted)
}

/// The definition with the condition that it is established; `None` if it has it, or cannot have it.
fn established(fields: &Fields) -> Option<Fields> {
    if condition_is_true(fields, "Established") || !condition_is_true(fields, "NamesAccepted") {
        return None;
    }
    let mut fields = fields.clone();
    let message = "the initial names have been accepted";
    set_condition(&mut fields, "Established", "True", "InitialNamesAccepted", message);
    Some(fields)
}

/// Changes a definition, if it exists and there is something to change.
fn change(storage: &Storage, key: &ObjectKey, next: impl FnOnce(&Fields) -> Option<Fields>) {
    let _ = storage.transact(&collection(), key, true, |current| {
        let current = current.ok_or(())?;
        next(&current.fields).map(Change::Put).ok_or(())
    });
}

/// Deletes the objects of a deleted definition, and then lets the definition go. Returns false if
/// objects with finalizers remain. Objects of a built-in resource are not those of the definition.
fn clean_up(storage: &Storage, key: &ObjectKey, is_built_in: impl Fn(&str, &str) -> bool) -> bool {
    let Some(definition) = storage.get(&collection(), key) else {
        return true;
    };
    let finalizers = finalizers(&definition.fields);
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return true;
    }
    let spec = definition.fields.get("spec").and_then(Value::as_object);
    let names = spec.and_then(|spec| spec.get("names")?.as_object());
    let instances = crate::storage::CollectionKey {
        group: super::validate::text(spec, "group").to_owned(),
        resource: super::validate::text(names, "plural").to_owned(),
    };
    if condition_is_true(&definition.fields, "Established")
        && !is_built_in(&instances.group, &instances.resource)
        && !delete_all(storage, &instances)
    {
        return false;
    }
    let _ = storage.transact(&collection(), key, true, |current| {
        let mut fields = current.ok_or(())?.fields.clone();
        let mut left = self::finalizers(&fields);
        left.retain(|finalizer| finalizer != FINALIZER);
        if left.is_empty() {
            return Ok(Change::Delete);
        }
        object::put_metadata(&mut fields, "finalizers", Some(left.into()));
        let message = "removed all instances";
        set_condition(&mut fields, "Terminating", "False", "InstanceDeletionCompleted", message);
        Ok::<Change, ()>(Change::Put(fields))
    });
    true
}

/// Deletes all objects of a resource. Returns false if some remain for their finalizers.
fn delete_all(storage: &Storage, instances: &crate::storage::CollectionKey) -> bool {
    let objects = storage.range(instances, &Range::default());
    let objects = objects.map(|(_, objects)| objects).unwrap_or_default();
    let mut gone = true;
    for object in objects {
        let _ = storage.transact(instances, &object.key, true, |current| {
            let current = current.ok_or(())?;
            if finalizers(&current.fields).is_empty() {
                return Ok(Change::Delete);
            }
            gone = false;
            let mut fields = current.fields.clone();
            if object::metadata_text(&fields, "deletionTimestamp").is_empty() {
                object::set_metadata(&mut fields, "deletionTimestamp", &stamp::now());
                object::put_metadata(&mut fields, "deletionGracePeriodSeconds", Some(0.into()));
            }
            Ok::<Change, ()>(Change::Put(fields))
        });
    }
    gone
}

fn finalizers(fields: &Fields) -> Vec<Value> {
    let metadata = object::metadata_of(fields);
    let list = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
    list.cloned().unwrap_or_default()
}
