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
pub(super) fn all() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "attacks/rapid-reset",
            rapid_reset::rapid_reset,
            "a user without rights resets streams at once, over and over"
        ),
        case!(
            Mixed,
            "attacks/rapid-reset-hop",
            rapid_reset::rapid_reset_through_hop,
            "the same for an API that only peers have"
        ),
        case!(
            full Mixed,
            "attacks/rapid-reset-directly",
            rapid_reset::rapid_reset_directly,
            "the same at kube-apiserver itself"
        ),
        case!(
            Mixed,
            "attacks/large-heads",
            large_heads::large_heads,
            "heads of up to a megabyte, of nobody and of a user without rights"
        ),
        case!(
            Mixed,
            "attacks/large-heads-hop",
            large_heads::large_heads_through_hop,
            "the same for an API that only peers have"
        ),
        case!(
            Mixed,
            "attacks/junk-tokens",
            tokens::junk_tokens,
            "eight send invalid tokens as fast as they can, over HTTP/2 and HTTP/1.1"
        ),
        case!(
            full Mixed,
            "attacks/junk-tokens-directly",
            tokens::junk_tokens_directly,
            "the same at kube-apiserver itself"
        ),
        case!(
            Mixed,
            "attacks/restart",
            restart::restart,
            "a gateway restarts in front of 300 clients with tokens that begin with watches"
        ),
        case!(
            full Mixed,
            "attacks/restart-of-many",
            restart::restart_of_many,
            "the same with 2,000 clients"
        ),
        case!(
            full Mixed,
            "attacks/restart-directly",
            restart::begin_directly,
            "2,000 clients begin with watches at kube-apiserver itself"
        ),
        case!(
            Mixed,
            "attacks/anonymous-streams",
            anonymous::streams,
            "4 connections of 250 anonymous streams: few connections to the server, and not for long"
        ),
        case!(
            Mixed,
            "attacks/anonymous-busy",
            anonymous::busy_server,
            "500 anonymous requests at once on a server that is busy with lists"
        ),
        case!(
            full Mixed,
            "attacks/anonymous-directly",
            anonymous::anonymous_directly,
            "the same at kube-apiserver itself"
        ),
        case!(
            Mixed,
            "attacks/malformed",
            malformed::malformed,
            "malformed requests are 400, delete nothing, and eject nobody"
        ),
        case!(
            full Mixed,
            "attacks/watches",
            watches::watches,
            "watches of much that changes: as many live on as directly"
        ),
        case!(
            full Mixed,
            "attacks/spread-of-watches",
            watches::watches_by_connections,
            "the same on few and on many connections of clients"
        ),
        case!(
            Mixed,
            "attacks/retried",
            retried::retried,
            "a backend that says that it shuts down executes a write once"
        ),
    ]
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
