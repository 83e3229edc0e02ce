//! Failures that are reported only if they last. Entry item: [`Lasting`].

use std::time::Duration;

use mvp_proxy::control::ReportOnce;
use tokio::time::Instant;

/// How long a failure may last unreported. A server that starts fails for some seconds, and even
/// forbids what it will allow.
const LASTS: Duration = Duration::from_secs(10);

/// A failure and its start.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    since: Option<Instant>,
    reported: ReportOnce,
}

impl Lasting {
    /// An attempt failed. Returns whether attempts have failed for longer than the time limit.
    pub(crate) fn failed(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= LASTS
    }

    /// Returns whether the failure has lasted and must be reported now: once.
    pub(crate) fn report(&mut self) -> bool {
        self.failed() && self.reported.report()
    }

    /// An attempt succeeded. Returns whether the failure had been reported.
    pub(crate) fn clear(&mut self) -> bool {
        self.since = None;
        self.reported.clear()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_lasts_is_reported_once() {
        let mut lasting = Lasting::default();
        assert!(!lasting.failed() && !lasting.report());
        tokio::time::advance(LASTS).await;
        assert!(lasting.failed() && lasting.report() && !lasting.report());
        assert!(lasting.clear() && !lasting.clear());
        assert!(!lasting.report(), "the time starts again");
    }
}
