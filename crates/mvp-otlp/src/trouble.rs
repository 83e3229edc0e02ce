//! Logs that a collector fails, and that it works again: once for each time, and not every second for
//! one that does both. Entry item: [`Trouble`].

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

/// How long a failure that was logged is not logged again, even if the collector worked meanwhile.
const QUIET: Duration = Duration::from_secs(60);
/// The longest text of a collector that is logged.
const MAX_TEXT: usize = 200;

/// The state of a collector, as the log tells it.
#[derive(Debug)]
pub(super) struct Trouble {
    collector: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the last line was about a failure.
    failing: bool,
    logged: Option<Instant>,
}

impl Trouble {
    pub(super) fn of(collector: String) -> Trouble {
        Trouble { collector, state: Mutex::default() }
    }

    /// Notes that a batch was lost.
    pub(super) fn failed(&self, status: &Status) {
        if self.begins() {
            let collector = &*self.collector;
            let error = described(status);
            tracing::warn!(collector, error, "trace export fails; spans are dropped");
        }
    }

    /// Notes that a collector refused spans for this reason.
    pub(super) fn rejected(&self, reason: &str) {
        if self.begins() {
            let (collector, error) = (&*self.collector, shown(reason));
            tracing::warn!(collector, error, "trace collector rejects spans");
        }
    }

    /// Notes that a batch was taken.
    pub(super) fn ended(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.failing) {
            tracing::info!(collector = &*self.collector, "trace export works again");
        }
    }

    /// Whether a failure is new enough for the log.
    fn begins(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failing || state.logged.is_some_and(|logged| logged.elapsed() < QUIET) {
            return false;
        }
        *state = State { failing: true, logged: Some(Instant::now()) };
        true
    }
}

/// An error with its causes: tonic's own text says only that the transport failed.
fn described(status: &Status) -> String {
    let mut text = shown(status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {}", shown(&more));
        }
        cause = error.source();
    }
    let code = status.code();
    if text.is_empty() { format!("{code:?}") } else { format!("{text} ({code:?})") }
}

/// The start of a text of the collector, on one line.
fn shown(text: &str) -> String {
    text.chars().take(MAX_TEXT).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_logged_once_and_a_flapping_collector_is_not_logged_each_time() {
        let trouble = Trouble::of("http://collector:4317".to_owned());
        assert!(trouble.begins());
        assert!(!trouble.begins(), "it lasts");
        tokio::time::advance(2 * QUIET).await;
        assert!(!trouble.begins(), "it still lasts");
        trouble.ended();
        assert!(trouble.begins(), "another one, long after the first");
        trouble.ended();
        assert!(!trouble.begins(), "soon after it");
        tokio::time::advance(QUIET).await;
        assert!(trouble.begins());
    }

    #[test]
    fn an_error_shows_its_causes_on_one_line_and_is_bounded() {
        let mut status = Status::unavailable("transport error");
        let refused = std::io::Error::other("connection refused");
        status.set_source(std::sync::Arc::new(refused));
        let code = tonic::Code::Unavailable;
        assert_eq!(described(&status), format!("transport error: connection refused ({code:?})"));
        let hostile = Status::internal(format!("a\nb{}", "x".repeat(10_000)));
        assert!(described(&hostile).starts_with("a\\nb"));
        assert!(described(&hostile).len() < 300);
    }
}
