//! Waits for fresh views that may prove a 404 false. Entry item: [`Exchange::refresh`].

use std::sync::Arc;
use std::time::Duration;

use mvp_core::decide::{Asked, LocalHealth, Reason};
use mvp_core::member::Member;
use mvp_core::{RequestInfo, Snapshot, decide};

use super::denied::Denied;
use super::exchange::Exchange;

/// How long a request waits for members that answer at once.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// How long it waits at most, however slow a member is.
const MAX_WAIT: Duration = Duration::from_secs(10);

impl Exchange<'_> {
    /// Refreshes the views of members until it is settled what to do, or the time is up.
    pub(super) async fn refresh(&self, denied: &Denied, health: LocalHealth) -> Arc<Snapshot> {
        let reader = &self.shared.reader;
        let begun = reader.now();
        let is_over = |snapshot: &Snapshot| match self.wait(snapshot, denied, health) {
            None => true,
            Some(wait) => reader.now().since(begun) >= wait,
        };
        let longest = self.wait(&reader.load(), denied, health).unwrap_or(MIN_WAIT);
        reader.refresh(longest, is_over).await
    }

    fn wait(&self, snapshot: &Snapshot, denied: &Denied, health: LocalHealth) -> Option<Duration> {
        wait(&self.info, snapshot, self.asked(health, &denied.as_denials()), denied)
    }
}

/// How long to wait for the members that have not confirmed their views; `None` if it is settled
/// what to do.
pub(super) fn wait(
    info: &RequestInfo<'_>,
    snapshot: &Snapshot,
    asked: Asked<'_>,
    denied: &Denied,
) -> Option<Duration> {
    match decide(info, snapshot, asked).reason {
        Reason::LocalViewUnknown | Reason::NobodyReachable => Some(MIN_WAIT),
        Reason::Unconfirmed => {
            let members = snapshot.unconfirmed(info.part(), asked.arrived);
            Some(members.map(wait_for).max().unwrap_or(MIN_WAIT))
        }
        // A peer denied it, and the local server has not confirmed its view: asked now, it would
        // deny it too, and no refresh would follow.
        Reason::Unlisted => Some(snapshot.local().map_or(MIN_WAIT, wait_for)),
        // A member that denied what it lists must confirm its view first.
        Reason::ViewSuspect => denied.unconfirmed(snapshot).map(wait_for).max(),
        _ => None,
    }
}

/// How long to wait for a member, by its last fetch. A fetch that is running when a request arrives
/// proves nothing about the request, so there may be two to wait for.
fn wait_for(member: &Member) -> Duration {
    #[cfg(test)]
    if crate::missing::is_out(crate::missing::Fix::WaitForSlow) {
        return MIN_WAIT;
    }
    (MIN_WAIT + 2 * member.view.fetched_in).min(MAX_WAIT)
}
