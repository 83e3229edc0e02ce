//! A member in a snapshot: whether its view is fresh, and whether 404s depend on it. Entry item:
//! [`MemberEntry`].

use super::{PerPart, Policy};
use crate::Timestamp;
use crate::discovery::Part;
use crate::member::{Member, Presence, ViewState};

/// A member, and what its age and its last heartbeat imply.
#[derive(Debug)]
pub(super) struct MemberEntry {
    pub(super) member: Member,
    pub(super) state: ViewState,
    /// Whether a 404 is not true before this member confirms its view.
    pub(super) accountable: PerPart<bool>,
    /// Whether it is accountable, and its view is unknown or stale.
    pub(super) blocking: PerPart<bool>,
}

impl MemberEntry {
    pub(super) fn new(
        member: Member,
        is_local: bool,
        now: Timestamp,
        policy: &Policy,
    ) -> MemberEntry {
        let can_be_asked = !is_local
            && member.presence == Presence::Present
            && member.address.is_some()
            && now.since(member.heard) <= policy.heard_within;
        let accountable = PerPart::new(|part| {
            let known = member.view.part(part).map(|seen| seen.confirmed);
            // An awaited member that rejoined may serve something new, so its old view does not count.
            let rejoined = if member.awaited { member.joined } else { Timestamp::default() };
            let silent_since = known.map_or(member.joined, |confirmed| confirmed.max(rejoined));
            can_be_asked
                && (member.awaited || known.is_some())
                && now.since(silent_since) <= policy.blocks_for
        });
        let blocking = PerPart::new(|part| {
            let fresh = member
                .view
                .part(part)
                .is_some_and(|seen| now.since(seen.confirmed) <= policy.fresh_for);
            *accountable.of(part) && !fresh
        });
        MemberEntry {
            state: member.view.state(now, policy.fresh_for),
            member,
            accountable,
            blocking,
        }
    }

    /// Whether the member confirmed this half of its view in a fetch that began at `since` or later.
    pub(super) fn confirmed_since(&self, part: Part, since: Timestamp) -> bool {
        self.member.view.part(part).is_some_and(|seen| seen.confirmed >= since)
    }
}
