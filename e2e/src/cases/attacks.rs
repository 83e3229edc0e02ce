//! One caller attacks the gateway while others work: the others must see no error, and none of
//! their watches may end. Each case runs [`others::Others`] beside an [`attack`].

mod anonymous;
mod large_heads;
mod malformed;
mod others;
mod rapid_reset;
mod restart;
mod retried;
mod tokens;
mod watches;

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;

use crate::cluster::Cluster;
use crate::suite::Case;
use crate::tally::Tally;

/// The attacks, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    [
        rapid_reset::cases(),
        large_heads::cases(),
        tokens::cases(),
        restart::cases(),
        anonymous::cases(),
        malformed::cases(),
        watches::cases(),
        retried::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How long an attack lasts.
const LENGTH: Duration = Duration::from_secs(8);

/// Runs an attack on a thread of its own, so that it does not slow down those who watch its effect.
fn attack<F>(run: F) -> oneshot::Receiver<anyhow::Result<Tally>>
where
    F: FnOnce() -> LocalBoxFuture<'static, anyhow::Result<Tally>> + Send + 'static,
{
    let (done, outcome) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, run())
        });
        let _ = done.send(outcome);
    });
    outcome
}

/// Several attackers, each on a thread of its own; what they were told, together.
async fn together(attacks: Vec<oneshot::Receiver<anyhow::Result<Tally>>>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for attack in attacks {
        tally.add(&attack.await.context("the attack broke off")??);
    }
    Ok(tally)
}

/// Gateways without any connection that another case has left: who shares one with whom would depend
/// on it.
async fn fresh(cluster: &mut Cluster, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        cluster.server_mut(name)?.gateway()?.kill();
    }
    cluster.heal().await
}

/// Whether there is time left.
fn goes_on(since: Instant) -> bool {
    since.elapsed() < LENGTH
}
