//! What the next steps of a roster depend on, for the model checker: two rosters with the same facts
//! behave alike. Entry item: [`RosterState::facts`].

use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::Member;

use super::RosterState;
use super::polling::LastFetch;
use super::tracked::{Contact, Standing};

/// What the next steps depend on of one member. The times of its polling are left out: the model
/// polls without an interval, so every member is always due.
pub(crate) struct Facts<'a> {
    pub(crate) member: &'a Member,
    /// Whether a source without heartbeats vouches for it.
    pub(crate) vouched: bool,
    pub(crate) left: Option<Timestamp>,
    /// The start of the fetch that is running.
    pub(crate) running: Option<Timestamp>,
    /// Whether it has answered: never, before it joined or moved, since then.
    pub(crate) contact: u8,
}

impl RosterState {
    /// The wait budget that is spent, and when that was last updated.
    pub(crate) fn wait_spent(&self) -> (Duration, Timestamp) {
        self.budget.spent()
    }

    /// The facts of each member, in the order of their IDs.
    pub(crate) fn facts(&self) -> impl Iterator<Item = Facts<'_>> {
        self.members.values().map(|tracked| Facts {
            member: &tracked.member,
            vouched: tracked.standing == Standing::Present { vouched: true },
            left: tracked.left_since(),
            running: match tracked.polling.last {
                LastFetch::Running(begun) => Some(begun),
                LastFetch::Never | LastFetch::Ended(_) => None,
            },
            contact: match tracked.contact {
                Contact::Never => 0,
                Contact::Before(_) => 1,
                Contact::Current(_) => 2,
            },
        })
    }
}
