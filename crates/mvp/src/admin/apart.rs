//! Work that would stall the control loop. Entry: [`Apart::run`].

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Runs functions on another thread, one at a time: many requests must not take all processors.
#[derive(Clone)]
pub(crate) struct Apart(Arc<Semaphore>);

impl Default for Apart {
    fn default() -> Apart {
        Apart(Arc::new(Semaphore::new(1)))
    }
}

impl Apart {
    /// Runs the function; `None` if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let work = move || {
            // Until the end, even if the caller hangs up.
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}
