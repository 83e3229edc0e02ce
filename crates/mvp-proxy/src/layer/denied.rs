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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mvp_core::member::{MemberKind, Presence, View};
    use mvp_core::snapshot::{Inputs, Policy};

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_secs(seconds))
    }

    /// A member that confirmed the two halves of its view at these seconds.
    fn member(id: &str, api: Option<u64>, apis: Option<u64>) -> Member {
        let seen = |second: u64| Seen { list: Arc::default(), confirmed: at(second) };
        Member {
            id: id.into(),
            kind: MemberKind::Bare,
            address: None,
            presence: Presence::Present,
            joined: at(0),
            heard: at(0),
            awaited: true,
            view: View { api: api.map(seen), apis: apis.map(seen), ..View::default() },
        }
    }

    #[test]
    fn a_member_that_denied_is_unconfirmed_until_it_confirms_both_halves_since() {
        let members = vec![
            member("before", Some(9), Some(9)),
            member("half", Some(10), Some(9)),
            member("other-half", None, Some(11)),
            member("same", Some(10), Some(10)),
            member("since", Some(12), Some(11)),
            member("not-asked", None, None),
        ];
        let inputs = Inputs {
            members_known: true,
            members: members.clone(),
            local: None,
            extension_versions: Arc::default(),
            started: at(0),
            now: at(12),
            policy: Policy::default(),
        };
        let snapshot = Snapshot::build(inputs, None);
        let mut denied = Denied::default();
        for id in ["before", "half", "other-half", "same", "since", "forgotten"] {
            denied.push(id.into(), at(10), false);
        }
        let unconfirmed: Vec<&str> = denied.unconfirmed(&snapshot).map(|m| &*m.id).collect();
        assert_eq!(unconfirmed, ["before", "half", "other-half"]);
        assert!(denied.has("since") && !denied.has("not-asked"));
    }
}
