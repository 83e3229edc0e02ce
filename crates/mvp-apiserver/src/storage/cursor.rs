//! A place in the log of a resource, from which a watch reads on. Entry item: [`Storage::follow`].

use std::sync::Arc;

use tokio::sync::watch;

use super::{CollectionKey, Event, Expired, Object, Shared, Storage};

/// A place in the log of a resource.
#[derive(Debug)]
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    collection: CollectionKey,
    position: u64,
    changed: watch::Receiver<()>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Now, with the objects as they are.
    Objects,
    /// Now.
    Latest,
    /// After a change.
    After(u64),
}

/// How many changes are taken from the log at a time.
const BATCH: usize = 64;

impl Storage {
    /// Follows a resource: its objects where they are asked for, and all changes from there on.
    pub(crate) fn follow(
        &self,
        collection: &CollectionKey,
        start: Start,
    ) -> (Vec<Arc<Object>>, Cursor) {
        let mut state = self.0.lock();
        let latest = state.revision;
        let held = state.collection(collection, self.0.log_capacity);
        let (objects, position) = match start {
            Start::Objects => (held.objects.values().cloned().collect(), latest),
            Start::Latest => (Vec::new(), latest),
            Start::After(revision) => (Vec::new(), revision),
        };
        let changed = held.changed.subscribe();
        let cursor = Cursor {
            shared: Arc::clone(&self.0),
            collection: collection.clone(),
            position,
            changed,
        };
        (objects, cursor)
    }
}

impl Cursor {
    /// The next changes; waits until there are some. Cancelling loses none.
    pub(crate) async fn next(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        loop {
            // Before looking, so that a change after it is noticed below.
            self.changed.borrow_and_update();
            let events = self.read()?;
            if !events.is_empty() {
                return Ok(events);
            }
            // The sender is in the storage that we hold: it cannot go away.
            let _ = self.changed.changed().await;
        }
    }

    /// The change up to which everything was read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let state = self.shared.lock();
        let Some(held) = state.collections.get(&self.collection) else {
            return Ok(Vec::new());
        };
        let events = held.log.after(self.position, BATCH)?;
        self.position = match events.last() {
            Some(event) => event.revision,
            // A place in the future stays there.
            None => self.position.max(state.revision),
        };
        Ok(events)
    }
}
