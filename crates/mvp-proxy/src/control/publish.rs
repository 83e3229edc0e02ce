//! The one place where the two pipelines meet: one writer publishes snapshots, readers pin them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use mvp_core::{Snapshot, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::data::Schemas;

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
    (SnapshotWriter(Arc::clone(&shared)), SnapshotReader(shared))
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
pub struct SnapshotWriter(Arc<Shared>);

impl SnapshotWriter {
    /// Makes a snapshot the current one.
    pub fn publish(&mut self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.0.current.store(Arc::clone(&snapshot));
        self.0.published.send_replace(snapshot);
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.0.current.load_full()
    }

    /// The clock of every timestamp in it.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Notes why a member could not be asked, or that it could.
    pub(crate) fn note(&self, id: Arc<str>, trouble: Option<String>) {
        let mut troubles = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(trouble) => troubles.insert(id, trouble),
            None => troubles.remove(&id),
        };
    }

    /// Members that are to be forgotten.
    pub(crate) fn to_forget(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut *self.0.to_forget.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends when a reader wants the views to be refreshed.
    pub async fn wanted(&self) {
        self.0.wanted.notified().await;
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
