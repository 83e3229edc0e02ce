//! The members that sent a withheld 404, as the next decision needs them.

use std::sync::Arc;

use mvp_core::decide::Denial;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, Seen};
use mvp_core::{Snapshot, Timestamp};

/// The members that denied the request so far: ID, time, and whether it lists what it denied.
#[derive(Debug, Default)]
pub(super) struct Denied(Vec<(Arc<str>, Timestamp, bool)>);

impl Denied {
    /// Notes a denial at time `at`.
    pub(super) fn push(&mut self, member: Arc<str>, at: Timestamp, listed: bool) {
        self.0.push((member, at, listed));
    }

    pub(super) fn as_denials(&self) -> Vec<Denial<'_>> {
        let denials = self.0.iter();
        denials.map(|(member, at, listed)| Denial { member, at: *at, listed: *listed }).collect()
    }

    /// Whether this member is one of them.
    pub(super) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|(member, _, _)| **member == *id)
    }

    /// Those of these members that have not confirmed their views since they denied the request.
    pub(super) fn unconfirmed<'a>(
        &'a self,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = &'a Member> {
        self.0.iter().filter_map(|(member, at, _)| {
            let member = snapshot.member_by_id(member)?;
            let confirmed = |seen: Option<&Seen>| seen.is_some_and(|seen| seen.confirmed >= *at);
            let mut parts = Part::ALL.into_iter();
            (!parts.all(|part| confirmed(member.view.part(part)))).then_some(member)
        })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(member, _, _)| member.to_string()).collect()
    }
}
