//! Shutdown: fail readiness, serve for the delay, drain, exit. Entry: [`Shutdown::run`].

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::follow::NewFlags;
use crate::logging::LogQueue;
use crate::signals::{Asked, Signals};

/// The state of the shutdown.
pub(crate) struct Shutdown {
    /// Cancelled first: readiness fails, and other members should not choose this one.
    pub(crate) leaving: CancellationToken,
    /// Cancelled after the delay: workers accept no more connections and drain. A worker that ends
    /// by itself cancels it, too.
    pub(crate) stop: CancellationToken,
    /// The new values of flags that `--like` took over.
    pub(crate) flags_changed: watch::Sender<NewFlags>,
    delay: Duration,
    /// The longest time of the drain.
    pub(crate) grace: Duration,
    log: LogQueue,
}

impl Shutdown {
    pub(crate) fn new(delay: Duration, grace: Duration, log: &LogQueue) -> Shutdown {
        Shutdown {
            leaving: CancellationToken::new(),
            stop: CancellationToken::new(),
            flags_changed: watch::Sender::default(),
            delay,
            grace,
            log: log.clone(),
        }
    }

    /// Waits for SIGTERM, SIGINT or `restart`, calls `first`, and then waits for the delay. SIGHUP wakes
    /// the reloader at any time.
    pub(crate) async fn run(
        &self,
        mut signals: Signals,
        reload: &mpsc::Sender<()>,
        restart: impl Future<Output = ()>,
        first: impl FnOnce(),
    ) {
        let name = tokio::select! {
            () = self.stop.cancelled() => return,
            name = shutdown_signal(&mut signals, reload) => Some(name),
            () = restart => None,
        };
        first();
        self.leaving.cancel();
        let (delay_seconds, grace_seconds) = (self.delay.as_secs_f64(), self.grace.as_secs_f64());
        tracing::info!(signal = name, delay_seconds, grace_seconds, "shutting down");
        let (reload, log) = (reload.clone(), self.log.clone());
        tokio::spawn(async move {
            shutdown_signal(&mut signals, &reload).await;
            log.flush();
            std::process::exit(1);
        });
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(self.delay) => {}
        }
    }
}

/// The name of the next SIGTERM or SIGINT. Each SIGHUP before it wakes the reloader.
async fn shutdown_signal(signals: &mut Signals, reload: &mpsc::Sender<()>) -> &'static str {
    loop {
        match signals.next().await {
            Asked::Shutdown(name) => return name,
            // The reloader does not end before us.
            Asked::Reload => drop(reload.send(())),
        }
    }
}
