//! The end, step by step: fail readiness, serve on for a while, drain, be gone. Entry:
//! [`Shutdown::run`].

use std::sync::mpsc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::ServeConfig;
use crate::logging::LogQueue;
use crate::signals::{Asked, Signals};

/// How far the end has come.
pub(crate) struct Shutdown {
    /// Set first: we are about to leave. Whoever chooses between members should choose another.
    pub(crate) leaving: CancellationToken,
    /// Set after the delay: workers take no more connections and drain. Also set by a worker that
    /// ends by itself.
    pub(crate) stop: CancellationToken,
    delay: Duration,
    /// How long a drain may take.
    pub(crate) grace: Duration,
    log: LogQueue,
}

impl Shutdown {
    pub(crate) fn new(config: &ServeConfig, log: &LogQueue) -> Shutdown {
        Shutdown {
            leaving: CancellationToken::new(),
            stop: CancellationToken::new(),
            delay: config.shutdown_delay,
            grace: config.shutdown_grace,
            log: log.clone(),
        }
    }

    /// Waits for the signal to end, and until it is time to stop. SIGHUP wakes the reloader, also
    /// afterwards.
    pub(crate) async fn run(&self, mut signals: Signals, reload: &mpsc::Sender<()>) {
        let name = tokio::select! {
            () = self.stop.cancelled() => return,
            name = end(&mut signals, reload) => name,
        };
        self.leaving.cancel();
        let (delay, grace) = (self.delay.as_secs_f64(), self.grace.as_secs_f64());
        tracing::info!(delay, grace, "{name} received, draining; a second one ends it at once");
        let (reload, log) = (reload.clone(), self.log.clone());
        tokio::spawn(async move {
            end(&mut signals, &reload).await;
            log.flush();
            std::process::exit(1);
        });
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(self.delay) => {}
        }
    }
}

/// The name of the next signal to end; those before it to reload wake the reloader.
async fn end(signals: &mut Signals, reload: &mpsc::Sender<()>) -> &'static str {
    loop {
        match signals.next().await {
            Asked::End(name) => return name,
            // The reloader never ends before us.
            Asked::Reload => drop(reload.send(())),
        }
    }
}
