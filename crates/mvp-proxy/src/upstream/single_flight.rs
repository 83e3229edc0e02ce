//! One attempt at a time. Its failure is shared by all that waited for it. Entry item:
//! [`SingleFlight::run`].

use tokio::time::Instant;

use super::connect_error::ConnectError;

/// Runs one attempt at a time. Its failure is shared by all that waited for it.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(tokio::sync::Mutex<Option<(Instant, ConnectError)>>);

impl SingleFlight {
    /// Runs `step`, unless an attempt failed while this one waited.
    pub(crate) async fn run<T, F>(&self, step: impl FnOnce() -> F) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        let arrived = Instant::now();
        let mut failed = self.0.lock().await;
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= arrived) {
            return Err(error.clone());
        }
        let outcome = step().await;
        *failed = outcome.as_ref().err().map(|error| (Instant::now(), error.clone()));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_by_all_that_waited() {
        let flight = Arc::new(SingleFlight::default());
        let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let all = (0..5).map(|_| {
            let (flight, runs) = (Arc::clone(&flight), Arc::clone(&runs));
            async move {
                flight
                    .run(|| async {
                        runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        sleep(Duration::from_secs(1)).await;
                        Err::<(), _>(ConnectError::Busy)
                    })
                    .await
            }
        });
        let outcomes = futures_util::future::join_all(all).await;
        assert!(outcomes.iter().all(Result::is_err));
        assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
