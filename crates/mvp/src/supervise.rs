//! Restarts background tasks that panic. Entry: [`Supervisor::run`].
//!
//! A panic is a bug, but it must not end a background task for good. The task is restarted after a
//! pause; each restart is logged and counted.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The pause after the first panic. It doubles with each panic that follows soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The time without a panic after which the pause is reset.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// Restarts tasks and counts the restarts. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supervisor {
    restarts: Family<TaskLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    task: &'static str,
}

impl Supervisor {
    /// Adds `mvp_task_restarts_total`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "mvp_task_restarts",
            "Restarts of background tasks after a panic",
            self.restarts.clone(),
        );
    }

    /// Runs a task until it returns. Starts it again whenever it panics.
    pub(crate) async fn run<F, T>(self, task: &'static str, start: F)
    where
        F: Fn() -> T,
        T: Future<Output = ()>,
    {
        let mut restarts = self.watch(task);
        while AssertUnwindSafe(async { start().await }).catch_unwind().await.is_err() {
            tokio::time::sleep(restarts.pause()).await;
        }
    }

    /// The restarts of a task that catches its own panics.
    pub(crate) fn watch(&self, task: &'static str) -> Restarts {
        let count = self.restarts.get_or_create_owned(&TaskLabels { task });
        Restarts { task, count, pause: FIRST_PAUSE, started: Instant::now() }
    }
}

/// The restarts of one task.
#[derive(Debug)]
pub(crate) struct Restarts {
    task: &'static str,
    count: Counter,
    pause: Duration,
    started: Instant,
}

impl Restarts {
    /// Counts and logs a panic. Returns the pause before the next start.
    pub(crate) fn pause(&mut self) -> Duration {
        self.count.inc();
        if self.started.elapsed() >= STABLE_AFTER {
            self.pause = FIRST_PAUSE;
        }
        let pause = self.pause;
        let pause_seconds = pause.as_secs_f64();
        tracing::error!(task = self.task, pause_seconds, "background task panicked, restarting");
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        self.started = Instant::now() + pause;
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_restarted_and_counted() {
        let supervisor = Supervisor::default();
        let runs = AtomicUsize::new(0);
        let task = async || {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            assert!(run >= 2, "a bug");
        };
        supervisor.clone().run("flaky", task).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
        let (mut registry, mut text) = (Registry::default(), String::new());
        supervisor.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("mvp_task_restarts_total{task=\"flaky\"} 2\n"), "{text}");
    }

    #[test]
    fn the_pause_doubles_up_to_a_limit() {
        let mut restarts = Supervisor::default().watch("broken");
        let pauses: Vec<u64> =
            (0..9).map(|_| u64::try_from(restarts.pause().as_millis()).unwrap()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(restarts.count.get(), 9);
    }
}
