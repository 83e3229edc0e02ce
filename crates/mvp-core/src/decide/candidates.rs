//! The members that can be asked for something, as a view into the snapshot: nothing is allocated.

use super::Denial;
use crate::discovery::Part;
use crate::member::{Member, Presence, Release};
use crate::snapshot::{Provider, Route};
use crate::{Snapshot, Verb};

/// The members that list a request, narrowed down to those that can be asked.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    snapshot: &'a Snapshot,
    route: Option<&'a Route>,
    subresource: &'a str,
    /// Listed with this verb; without one, listed at all.
    verb: Option<Verb>,
    not_older_than: Option<Option<Release>>,
    denials: &'a [Denial<'a>],
    part: Part,
}

impl<'a> Candidates<'a> {
    /// Whoever lists the resource, or the subresource.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        route: Option<&'a Route>,
        subresource: &'a str,
        denials: &'a [Denial<'a>],
        part: Part,
    ) -> Candidates<'a> {
        Candidates { snapshot, route, subresource, verb: None, not_older_than: None, denials, part }
    }

    /// The peers to choose from, the newest first; of one release, in the order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = &'a Member> {
        let this = *self;
        self.listing().filter_map(move |index| this.peer(index))
    }

    /// Whether there is a peer to choose.
    pub(super) fn any(&self) -> bool {
        self.iter().next().is_some()
    }

    /// Those that list it with this verb; nobody where its path does not fit.
    pub(super) fn with_verb(self, verb: Verb, fits: bool) -> Candidates<'a> {
        Candidates { verb: Some(verb), route: self.route.filter(|_| fits), ..self }
    }

    /// Those that know at least what a server of this release knows; of an unknown one, nobody.
    pub(super) fn not_older_than(self, release: Option<Release>) -> Candidates<'a> {
        Candidates { not_older_than: Some(release), ..self }
    }

    /// Whether the local server lists it and is to be believed.
    pub(super) fn local_serves(&self) -> bool {
        self.local_lists() && self.believes_local()
    }

    /// Whether the local server is to be believed where it lists it.
    pub(super) fn believes_local(&self) -> bool {
        self.snapshot.local().is_some_and(|local| !self.denied(local))
    }

    /// Whether the local server lists it.
    pub(super) fn local_lists(&self) -> bool {
        self.listing().any(|index| self.snapshot.is_local(index))
    }

    /// Whether a member lists it that did not deny it, but left or cannot be reached.
    pub(super) fn any_unreachable(&self) -> bool {
        self.listing().any(|index| {
            let member = self.snapshot.member(index).filter(|_| !self.snapshot.is_local(index));
            member.is_some_and(|member| {
                !self.denied(member)
                    && (member.presence == Presence::Left || member.address.is_none())
            })
        })
    }

    /// Whether any member lists it, be it gone, out of reach or not to be believed.
    pub(super) fn listed_by_anyone(&self) -> bool {
        self.listing().next().is_some()
    }

    fn listing(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (route, subresource, verb) = (self.route, self.subresource, self.verb);
        let lists = move |provider: &Provider| verb.is_none_or(|verb| provider.verbs.allows(verb));
        route
            .into_iter()
            .flat_map(move |route| route.providers(subresource))
            .filter(lists)
            .map(|provider| provider.member as usize)
    }

    fn peer(&self, index: usize) -> Option<&'a Member> {
        let member = self.snapshot.member(index)?;
        let new_enough = self.not_older_than.is_none_or(|release| {
            release.is_some_and(|release| member.view.release.is_some_and(|own| own >= release))
        });
        let usable = !self.snapshot.is_local(index)
            && member.presence == Presence::Present
            && member.address.is_some()
            && new_enough
            && !self.denied(member);
        usable.then_some(member)
    }

    /// A member that denied it is not asked again; unless that was before it came to list it with
    /// this verb.
    fn denied(&self, member: &Member) -> bool {
        let mut denials = self.denials.iter().filter(|denial| *denial.member == *member.id);
        match (denials.next(), denials.next()) {
            (None, _) => false,
            (Some(denial), None) => {
                let seen = member.view.part(self.part);
                let since = seen.is_some_and(|seen| seen.confirmed >= denial.at);
                let came_to_list_it = !denial.listed && self.verb.is_some() && since;
                !came_to_list_it
            }
            (Some(_), Some(_)) => true,
        }
    }
}
