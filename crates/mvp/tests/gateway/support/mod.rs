//! The harness: certificates, servers, the gateway process, and clients.

pub(crate) mod client;
pub(crate) mod double;
pub(crate) mod folder;
pub(crate) mod load;
pub(crate) mod pki;
pub(crate) mod process;

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The time limit of every wait: generous for slow machines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Awaits a future that must end in time.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("it ends in time")
}

/// Retries until there is a result, and fails with the last state after the time limit.
pub(crate) async fn eventually<T, S: std::fmt::Debug>(
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(state) if Instant::now() > end => panic!("{what}: never; last {state:?}"),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
