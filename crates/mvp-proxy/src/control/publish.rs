//! The one place where the two pipelines meet: one writer publishes snapshots, readers pin them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use mvp_core::{Snapshot, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::schemas::Schemas;

/// A writer and a first reader of snapshots.
pub fn channel(clock: Clock, first: Snapshot) -> (SnapshotWriter, SnapshotReader) {
    let first = Arc::new(first);
    let (published, _) = watch::channel(Arc::clone(&first));
    let shared = Arc::new(Shared {
        clock,
        current: ArcSwap::new(first),
        published,
        wanted: Notify::new(),
        trouble: Mutex::default(),
        to_forget: Mutex::default(),
        schemas: Schemas::default(),
    });
    let writer = SnapshotWriter { shared: Arc::clone(&shared), replaced: Vec::new() };
    (writer, SnapshotReader(shared))
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    current: ArcSwap<Snapshot>,
    published: watch::Sender<Arc<Snapshot>>,
    wanted: Notify,
    /// Why members could not be asked when they last were; for people, nothing is decided by it.
    trouble: Mutex<BTreeMap<Arc<str>, String>>,
    /// Members that somebody wants to be forgotten.
    to_forget: Mutex<Vec<Arc<str>>>,
    /// What was asked for of OpenAPI, for every worker.
    schemas: Schemas,
}

/// Publishes snapshots. There is one.
#[derive(Debug)]
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    /// Those that were replaced while a request had them.
    replaced: Vec<Arc<Snapshot>>,
}

impl SnapshotWriter {
    /// Makes a snapshot the current one.
    pub fn publish(&mut self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.replaced.push(self.shared.current.swap(Arc::clone(&snapshot)));
        self.shared.published.send_replace(snapshot);
        // Thousands of routes and documents are freed here, and not by the request that happens to
        // be the last to have them. Nobody can get hold of one that was replaced any more.
        self.replaced.retain(|replaced| Arc::strong_count(replaced) > 1);
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// The clock of every timestamp in it.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Notes why a member could not be asked, or that it could.
    pub(crate) fn note(&self, id: Arc<str>, trouble: Option<String>) {
        let mut troubles = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(trouble) => troubles.insert(id, trouble),
            None => troubles.remove(&id),
        };
    }

    /// Members that are to be forgotten.
    pub(crate) fn to_forget(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut *self.shared.to_forget.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends when a reader wants the views to be refreshed.
    pub async fn wanted(&self) {
        self.shared.wanted.notified().await;
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

    /// What is kept of OpenAPI.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.0.schemas
    }

    /// Why a member could not be asked when it last was.
    pub fn trouble(&self, id: &str) -> Option<String> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Has a member forgotten that left. One that a source still names stays.
    pub fn forget(&self, id: &str) {
        self.0.to_forget.lock().unwrap_or_else(PoisonError::into_inner).push(id.into());
        self.0.wanted.notify_one();
    }

    /// The clock of every timestamp in a snapshot.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The time, on the clock of every timestamp in a snapshot.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Has the views refreshed, and waits until a snapshot settles the matter, but not for longer
    /// than `wait`.
    pub async fn refresh(
        &self,
        wait: Duration,
        settled: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        let mut published = self.0.published.subscribe();
        self.0.wanted.notify_one();
        let settle = async {
            while published.changed().await.is_ok() {
                if settled(&published.borrow_and_update()) {
                    break;
                }
            }
        };
        // A wait that runs out is an answer too: the decision then says that it is not settled.
        let _ = timeout(wait, settle).await;
        self.load()
    }

    /// Waits for a snapshot with this property.
    pub async fn wait_for(&self, property: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut published = self.0.published.subscribe();
        let found = published.wait_for(|snapshot| property(snapshot)).await;
        let found = found.map(|snapshot| Arc::clone(&snapshot));
        match found {
            Ok(snapshot) => snapshot,
            // The writer is gone: nothing changes any more.
            Err(_) => std::future::pending().await,
        }
    }
}

/// A monotonic clock; paused in tests where tokio's is.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp::after_start(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlSettings, first_snapshot};

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_is_never_freed_by_whoever_reads_it() {
        let clock = Clock::start();
        let snapshot = || first_snapshot(&ControlSettings::default(), clock);
        let (mut writer, reader) = channel(clock, snapshot());
        let (pinned, other) = (reader.load(), reader.load());
        let freed = Arc::downgrade(&pinned);
        writer.publish(snapshot());
        drop(pinned);
        writer.publish(snapshot());
        drop(other);
        assert!(freed.upgrade().is_some(), "its last reader is done with it");
        writer.publish(snapshot());
        assert!(freed.upgrade().is_none());
        assert!(writer.replaced.is_empty());
    }
}
