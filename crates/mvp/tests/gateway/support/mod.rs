//! What the tests stand on: certificates, servers, the gateway's process, and clients.

pub(crate) mod client;
pub(crate) mod double;
pub(crate) mod folder;
pub(crate) mod load;
pub(crate) mod pki;
pub(crate) mod process;

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// No wait is longer: a machine that is slow is no failure, one that hangs is.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A future that must end.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("it ends in time")
}

/// Asks again until there is something, and says what there was last if there never is.
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
