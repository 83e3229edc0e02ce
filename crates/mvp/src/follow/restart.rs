//! When `mvp` restarts with new flags of kube-apiserver. Entry: [`due`].
//!
//! kubelet restarts kube-apiserver some time after its manifest changes. Until the new one is ready, this
//! process keeps serving: requests go to peers meanwhile, and the node is not without both. A gateway
//! that cannot use the server with its old flags restarts as soon as the server is ready for others.

use std::future::pending;
use std::time::Duration;

use mvp_core::decide::LocalHealth;
use mvp_proxy::LocalState;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Change, NewFlags};
use crate::steering::fault::{IN_A_ROW, fault};

const INTERVAL: Duration = Duration::from_millis(500);
/// kubelet reads manifests every 20 s, and kube-apiserver gets 30 s for its shutdown. One that is
/// ready for longer was not restarted.
const UNTOUCHED: Duration = Duration::from_secs(60);
/// The longest wait.
const BOUND: Duration = Duration::from_secs(300);

/// Completes when this process should end, to be started with new flags.
pub(crate) async fn due(changed: watch::Receiver<NewFlags>, local: Option<&LocalState>) {
    let wait = async |change: Change| {
        let (Some(local), Some(way)) = (local, change.way) else { return Reason::NoServer };
        let is_at_fault = async || fault(local, &way).await.is_some();
        settled(|| local.get(), is_at_fault).await
    };
    let reason = after(changed, wait).await;
    tracing::info!(reason = reason.text(), "restarting with the new flags");
}

/// Waits after a change. One that is taken back needs no restart, and another one begins a new wait.
async fn after(
    mut changed: watch::Receiver<NewFlags>,
    wait: impl AsyncFn(Change) -> Reason,
) -> Reason {
    loop {
        let change = changed.borrow_and_update().clone();
        let waited = async {
            match change {
                NewFlags::Changed(change) => wait(change).await,
                NewFlags::Same | NewFlags::Unusable { .. } => pending().await,
            }
        };
        tokio::select! {
            reason = waited => return reason,
            // The sender lives as long as this process.
            Ok(()) = changed.changed() => {}
        }
    }
}

/// Why the wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    NoServer,
    Restarted,
    Untouched,
    AtFault,
    Bound,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Reason::NoServer => "there is no local server to wait for",
            Reason::Restarted => "the local server restarted and is ready",
            Reason::Untouched => "the local server was not restarted",
            Reason::AtFault => "the local server is ready, but not with the old flags",
            Reason::Bound => "the local server did not become ready in time",
        }
    }
}

/// Waits until the server is ready after its restart, or until there is no use in waiting.
async fn settled(health: impl Fn() -> LocalHealth, is_at_fault: impl AsyncFn() -> bool) -> Reason {
    let began = Instant::now();
    let (mut went, mut faults) = (false, 0);
    while began.elapsed() < BOUND {
        match health() {
            LocalHealth::Ready if went => return Reason::Restarted,
            LocalHealth::Ready if began.elapsed() >= UNTOUCHED => return Reason::Untouched,
            LocalHealth::Ready => {}
            LocalHealth::Unready | LocalHealth::Unreachable => went = true,
        }
        faults = if is_at_fault().await { faults + 1 } else { 0 };
        if faults >= IN_A_ROW {
            return Reason::AtFault;
        }
        sleep(INTERVAL).await;
    }
    Reason::Bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use LocalHealth::{Ready, Unreachable, Unready};

    /// Why the wait ends, and after how many seconds, if the server has this health from each second on.
    async fn ends(course: &[(u64, LocalHealth)], at_fault_from: Option<u64>) -> (Reason, u64) {
        let began = Instant::now();
        let now = || began.elapsed().as_secs();
        let health = || {
            let past = course.iter().rev().find(|(from, _)| *from <= now());
            past.map_or(Ready, |(_, health)| *health)
        };
        let reason =
            settled(health, async || at_fault_from.is_some_and(|from| from <= now())).await;
        (reason, now())
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_lasts_until_the_server_is_back() {
        let restart = [(0, Ready), (20, Unready), (25, Unreachable), (40, Unready), (48, Ready)];
        assert_eq!(ends(&restart, None).await, (Reason::Restarted, 48));
        // It was down when the manifest changed.
        assert_eq!(ends(&[(0, Unreachable), (9, Ready)], None).await, (Reason::Restarted, 9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_restarted_ends_the_wait() {
        assert_eq!(ends(&[], None).await, (Reason::Untouched, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_has_a_bound() {
        assert_eq!(ends(&[(5, Unreachable)], None).await, (Reason::Bound, 300));
    }

    /// Such as a new port or another CA: only the restart helps.
    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_needs_the_new_flags_restarts_as_soon_as_the_server_is_ready() {
        assert_eq!(ends(&[(5, Unreachable)], Some(12)).await, (Reason::AtFault, 13));
        // One finding may be a server that became ready between two probes.
        let course = [(5, Unreachable), (12, Ready)];
        assert_eq!(ends(&course, Some(11)).await, (Reason::Restarted, 12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_taken_back_needs_no_restart() {
        let (sender, receiver) = watch::channel(NewFlags::Same);
        let wait = async |_| settled(|| Ready, async || false).await;
        let after = tokio::spawn(async move { after(receiver, wait).await });
        let change = Change { flags: vec!["v".to_owned()], way: None };
        let changed = NewFlags::Changed(change);
        for (change, finished) in
            [(changed.clone(), false), (NewFlags::Same, false), (changed, true)]
        {
            sender.send_replace(change);
            sleep(if finished { UNTOUCHED * 2 } else { UNTOUCHED / 2 }).await;
            assert_eq!(after.is_finished(), finished);
        }
        assert_eq!(after.await.unwrap(), Reason::Untouched);
    }
}
