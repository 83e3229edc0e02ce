//! Detects runtimes that are stuck. Entry: [`Heartbeats`].
//!
//! A task on each runtime stores the time every second. If a runtime is blocked, by an endless loop
//! or a lock, the time becomes old and `/livez` fails. Requests do no work for this.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::Check;

/// The age of the last heartbeat above which a runtime is stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(1);

/// The last heartbeat of each runtime. Clones share them.
#[derive(Clone)]
pub(crate) struct Heartbeats {
    /// A clock: the time since any fixed moment.
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The last heartbeats in milliseconds of that clock, by the names of runtimes.
    last: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        let start = Instant::now();
        Heartbeats::new(move || start.elapsed())
    }
}

impl Heartbeats {
    /// No heartbeats, with this clock.
    pub(crate) fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Heartbeats {
        Heartbeats { now: Arc::new(now), last: Arc::default() }
    }

    /// Adds the heartbeat of one runtime, which is expected until it is dropped.
    pub(crate) fn add(&self, name: impl Into<String>) -> Heartbeat {
        let (name, last) = (name.into(), Arc::new(AtomicU64::new(0)));
        let heartbeat =
            Heartbeat { name: name.clone(), last: Arc::clone(&last), all: self.clone() };
        heartbeat.beat();
        self.all().insert(name, last);
        heartbeat
    }

    /// One check for each runtime.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let now = (self.now)();
        let age = |last: &AtomicU64| {
            now.saturating_sub(Duration::from_millis(last.load(Ordering::Relaxed)))
        };
        self.all().iter().map(|(name, last)| check(name, age(last), STUCK_AFTER)).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicU64>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check that fails if `age` is above `bound`.
pub(crate) fn check(name: &str, age: Duration, bound: Duration) -> Check {
    let problem = (age > bound).then(|| format!("no progress for {} s", age.as_secs()));
    Check { name: name.to_owned(), problem, remark: None }
}

/// The heartbeat of one runtime.
pub(crate) struct Heartbeat {
    name: String,
    last: Arc<AtomicU64>,
    all: Heartbeats,
}

impl Heartbeat {
    /// Stores the time every second, as long as the runtime polls it.
    pub(crate) async fn run(self) {
        loop {
            self.beat();
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn beat(&self) {
        let now = u64::try_from((self.all.now)().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    /// A runtime that ended is not stuck.
    fn drop(&mut self) {
        self.all.all().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn failing(heartbeats: &Heartbeats) -> Vec<(String, String)> {
        let checks = heartbeats.checks().into_iter();
        checks.filter_map(|check| Some((check.name, check.problem?))).collect()
    }

    #[test]
    fn a_runtime_without_a_heartbeat_fails_its_check() {
        let time = Arc::new(AtomicU64::new(100));
        let clock = Arc::clone(&time);
        let heartbeats =
            Heartbeats::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
        let [first, second] = ["worker-0", "worker-1"].map(|name| heartbeats.add(name));
        time.store(110, Ordering::Relaxed);
        assert_eq!(failing(&heartbeats), []);
        time.store(111, Ordering::Relaxed);
        second.beat();
        let stuck = ("worker-0".to_owned(), "no progress for 11 s".to_owned());
        assert_eq!(failing(&heartbeats), [stuck]);
        first.beat();
        assert_eq!(failing(&heartbeats), []);
        time.store(200, Ordering::Relaxed);
        drop((first, second));
        assert_eq!(heartbeats.checks(), [], "runtimes that ended are not stuck");
    }

    #[test]
    fn a_blocked_runtime_is_stuck_until_it_runs_again() {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        let heartbeats =
            Heartbeats::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
        let heartbeat = heartbeats.add("worker-0");
        let ((unblock, blocked), (end, ended)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let runtime = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                tokio::spawn(heartbeat.run());
                tokio::task::yield_now().await;
                blocked.recv().unwrap();
                while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        });
        time.store(60, Ordering::Relaxed);
        assert_eq!(failing(&heartbeats).len(), 1);
        unblock.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !failing(&heartbeats).is_empty() {
            assert!(Instant::now() < deadline, "it never beats again");
            thread::sleep(Duration::from_millis(5));
        }
        end.send(()).unwrap();
        runtime.join().unwrap();
        assert_eq!(heartbeats.checks(), []);
    }
}
