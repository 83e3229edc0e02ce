//! The last step of the control loop: one writer publishes snapshots, and readers load them. The
//! two pipelines meet only here. Entry item: [`channel`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use mvp_core::discovery::Limits;
use mvp_core::member::ViewDocument;
use mvp_core::{Snapshot, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::schemas::Schemas;
use crate::clock::Clock;

/// A writer of snapshots and its first reader. `documents` are the limits of OpenAPI documents.
pub(crate) fn channel(
    clock: Clock,
    first: Snapshot,
    documents: Limits,
) -> (SnapshotWriter, SnapshotReader) {
    let first = Arc::new(first);
    let (published, _) = watch::channel(Arc::clone(&first));
    let shared = Arc::new(Shared {
        clock,
        current: ArcSwap::new(first),
        published,
        wanted: Mutex::default(),
        wake: Notify::new(),
        trouble: Mutex::default(),
        to_forget: Mutex::default(),
        schemas: Schemas::new(documents),
    });
    let writer = SnapshotWriter { shared: Arc::clone(&shared), replaced: Vec::new() };
    (writer, SnapshotReader(shared))
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    current: ArcSwap<Snapshot>,
    published: watch::Sender<Arc<Snapshot>>,
    /// What requests want fetched, until the control loop takes it.
    wanted: Mutex<BTreeSet<Want>>,
    wake: Notify,
    /// Why the last fetch from a member failed. For operators only: no decision depends on it.
    trouble: Mutex<BTreeMap<Arc<str>, String>>,
    /// Members that an operator wants forgotten.
    to_forget: Mutex<Vec<Arc<str>>>,
    /// The OpenAPI documents that requests asked for, shared by all workers.
    schemas: Schemas,
}

/// What a request wants fetched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// Everything, from all members.
    Views,
    /// One document, from one member or, without one, from all.
    Document(ViewDocument, Option<Arc<str>>),
}

/// Publishes snapshots. There is one writer: it cannot be cloned.
#[derive(Debug)]
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    /// Snapshots that were replaced while a request used them.
    replaced: Vec<Arc<Snapshot>>,
}

impl SnapshotWriter {
    /// Makes a snapshot the current one.
    pub fn publish(&mut self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.replaced.push(self.shared.current.swap(Arc::clone(&snapshot)));
        self.shared.published.send_replace(snapshot);
        // Thousands of routes and documents are freed here, and not by the request that happens to
        // use them last. A replaced snapshot gets no new readers, so the count cannot grow again.
        self.replaced.retain(|replaced| Arc::strong_count(replaced) > 1);
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// The clock of every timestamp in a snapshot.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Stores why the last fetch from a member failed, or that it did not.
    pub(crate) fn note(&self, id: Arc<str>, trouble: Option<String>) {
        let mut troubles = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(trouble) => troubles.insert(id, trouble),
            None => troubles.remove(&id),
        };
    }

    /// Takes the members that an operator wants forgotten.
    pub(crate) fn to_forget(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut *self.shared.to_forget.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resolves when readers want something. Returns what they want fetched.
    pub(crate) async fn wanted(&self) -> BTreeSet<Want> {
        self.shared.wake.notified().await;
        std::mem::take(&mut *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads snapshots.
#[derive(Debug, Clone)]
pub struct SnapshotReader(Arc<Shared>);

impl SnapshotReader {
    /// The current snapshot.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.current.load_full()
    }

    /// The OpenAPI documents that are kept.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.0.schemas
    }

    /// Why the last fetch from a member failed.
    pub fn trouble(&self, id: &str) -> Option<String> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Forgets a member that left. A member that a source still names stays.
    pub fn forget(&self, id: &str) {
        self.0.to_forget.lock().unwrap_or_else(PoisonError::into_inner).push(id.into());
        self.0.wake.notify_one();
    }

    /// The clock of every timestamp in a snapshot.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The present time on that clock.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Asks for fresh views, and waits until a snapshot satisfies `settled`, up to the time limit
    /// `wait`. Returns the current snapshot either way.
    pub async fn refresh(
        &self,
        wait: Duration,
        settled: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        let published = self.0.published.subscribe();
        self.want(Want::Views, published, wait, settled).await
    }

    /// Asks for one document, from one member or, without one, from all, and waits as
    /// [`SnapshotReader::refresh`] does. Asks for nothing if the current snapshot satisfies
    /// `settled`.
    pub(crate) async fn refresh_document(
        &self,
        document: ViewDocument,
        of: Option<Arc<str>>,
        wait: Duration,
        settled: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        let mut published = self.0.published.subscribe();
        let current = Arc::clone(&published.borrow_and_update());
        if settled(&current) {
            return current;
        }
        self.want(Want::Document(document, of), published, wait, settled).await
    }

    async fn want(
        &self,
        want: Want,
        mut published: watch::Receiver<Arc<Snapshot>>,
        wait: Duration,
        settled: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner).insert(want);
        self.0.wake.notify_one();
        let settle = async {
            while published.changed().await.is_ok() {
                if settled(&published.borrow_and_update()) {
                    break;
                }
            }
        };
        // After a timeout the decision finds out by itself that nothing is settled.
        let _ = timeout(wait, settle).await;
        self.load()
    }

    /// Waits for a snapshot with a property.
    pub async fn wait_for(&self, property: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut published = self.0.published.subscribe();
        let found = published.wait_for(|snapshot| property(snapshot)).await;
        let found = found.map(|snapshot| Arc::clone(&snapshot));
        match found {
            Ok(snapshot) => snapshot,
            // The writer is gone: there are no more snapshots.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlSettings, first_snapshot};

    #[tokio::test(start_paused = true)]
    async fn a_reader_never_frees_a_snapshot() {
        let clock = Clock::start();
        let snapshot = || first_snapshot(&ControlSettings::default(), clock);
        let (mut writer, reader) = channel(clock, snapshot(), Limits::default());
        let (pinned, other) = (reader.load(), reader.load());
        let freed = Arc::downgrade(&pinned);
        writer.publish(snapshot());
        drop(pinned);
        writer.publish(snapshot());
        drop(other);
        assert!(freed.upgrade().is_some(), "its last reader dropped it");
        writer.publish(snapshot());
        assert!(freed.upgrade().is_none());
        assert!(writer.replaced.is_empty());
    }
}
