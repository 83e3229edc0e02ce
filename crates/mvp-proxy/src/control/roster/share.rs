//! What members have in common is kept once: with thousands of custom resources, the documents of
//! every member take tens of megabytes. Entry item: [`RosterState::share`].

use std::sync::Arc;

use mvp_core::discovery::Part;
use mvp_core::member::View;

use super::super::fetch::{Fetched, OpenApiOutcome, Outcome};
use super::RosterState;

impl RosterState {
    /// Shares what changed at a member with another member, where both have the same.
    pub(super) fn share(&self, id: &Arc<str>, fetched: &mut Fetched) {
        for (part, outcome) in Part::ALL.into_iter().zip(&mut fetched.parts) {
            if let Outcome::Changed { list, .. } = outcome
                && let Some(seen) = self.of_another(id, |view| view.part(part))
            {
                Arc::make_mut(list).share(&seen.list);
            }
        }
        if let OpenApiOutcome::Changed(index, _) = &mut fetched.openapi
            && let Some(other) = self.of_another(id, |view| view.openapi.as_ref())
        {
            Arc::make_mut(index).share(other);
        }
    }

    /// A part of the view of the first other member that has it.
    fn of_another<'a, T>(
        &'a self,
        id: &Arc<str>,
        part: impl Fn(&'a View) -> Option<&'a T>,
    ) -> Option<&'a T> {
        let mut others = self.members.iter().filter(|(other, _)| *other != id);
        others.find_map(|(_, other)| part(&other.member.view))
    }
}
