//! The members that sent a withheld 404, as the next decision needs them.

use std::sync::Arc;

use mvp_core::decide::Denial;
use mvp_core::discovery::Part;
use mvp_core::member::Seen;
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

    /// Whether each of these members has confirmed its view since it denied the request.
    pub(super) fn confirmed_since(&self, snapshot: &Snapshot) -> bool {
        self.0.iter().all(|(member, at, _)| {
            let view = snapshot.member_by_id(member).map(|member| &member.view);
            let confirmed = |seen: Option<&Seen>| seen.is_some_and(|seen| seen.confirmed >= *at);
            view.is_none_or(|view| Part::ALL.into_iter().all(|part| confirmed(view.part(part))))
        })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(member, _, _)| member.to_string()).collect()
    }
}
