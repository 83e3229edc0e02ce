//! The position of a watch in the log of a resource. Entry: [`Storage::follow`].

use std::sync::Arc;

use tokio::sync::watch;

use super::{CollectionKey, Event, Expired, Object, Shared, Storage};

/// A position in the log of a resource.
#[derive(Debug)]
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    collection: CollectionKey,
    position: u64,
    start: Result<(), Expired>,
    changed: watch::Receiver<()>,
}

/// The start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Now, with the current objects first.
    Objects,
    /// Now.
    Latest,
    /// After this change.
    After(u64),
}

/// The number of changes that are read from the log at once.
const BATCH: usize = 64;

impl Storage {
    /// Follows a resource: its current objects if requested, and all changes after that.
    pub(crate) fn follow(
        &self,
        collection: &CollectionKey,
        start: Start,
    ) -> (Vec<Arc<Object>>, Cursor) {
        let mut state = self.0.lock();
        let latest = state.revision;
        let held = state.collection(collection, self.0.limits);
        let (objects, position) = match start {
            Start::Objects => (held.objects.values().cloned().collect(), latest),
            Start::Latest => (Vec::new(), latest),
            Start::After(revision) => (Vec::new(), revision),
        };
        let start = held.log.check_start(position);
        let changed = held.changed.subscribe();
        let cursor = Cursor {
            shared: Arc::clone(&self.0),
            collection: collection.clone(),
            position,
            start,
            changed,
        };
        (objects, cursor)
    }
}

impl Cursor {
    /// Waits for the next changes. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        loop {
            // Before reading, so that a change after the read is noticed below.
            self.changed.borrow_and_update();
            let events = self.read()?;
            if !events.is_empty() {
                return Ok(events);
            }
            // The sender is in the storage that we hold, so it is not dropped.
            let _ = self.changed.changed().await;
        }
    }

    /// The last change that was read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next changes, if there are some now.
    pub(crate) fn read(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        self.start?;
        let state = self.shared.lock();
        let Some(held) = state.collections.get(&self.collection) else {
            return Ok(Vec::new());
        };
        let events = held.log.after(self.position, BATCH)?;
        self.position = match events.last() {
            Some(event) => event.revision,
            // A position in the future stays there.
            None => self.position.max(state.revision),
        };
        Ok(events)
    }
}
