//! The members that a request can be sent to, as a view of the snapshot without allocation.

use super::Denial;
use crate::discovery::Part;
use crate::member::{Member, Presence, Release};
use crate::snapshot::{Provider, Route};
use crate::{Snapshot, Verb};

/// What is known of the members that denied a request that they list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterDenial {
    /// One of them confirmed after its denial that it lists the request.
    Listed,
    /// None of them has confirmed its view since.
    Unconfirmed,
    /// There are none, or they no longer list it.
    Unlisted,
}

/// The members that list a request, and of these the peers that it can be sent to.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    snapshot: &'a Snapshot,
    route: Option<&'a Route>,
    subresource: &'a str,
    /// Only members that list this verb; `None` for any verb.
    verb: Option<Verb>,
    not_older_than: Option<Option<Release>>,
    denials: &'a [Denial<'a>],
    part: Part,
}

impl<'a> Candidates<'a> {
    /// The members that list the resource or, if there is one, the subresource.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        route: Option<&'a Route>,
        subresource: &'a str,
        denials: &'a [Denial<'a>],
        part: Part,
    ) -> Candidates<'a> {
        Candidates { snapshot, route, subresource, verb: None, not_older_than: None, denials, part }
    }

    /// The peers to choose from: newest release first, then by ID.
    pub fn iter(&self) -> impl Iterator<Item = &'a Member> {
        let this = *self;
        self.listing().filter_map(move |index| this.peer(index))
    }

    /// Whether there is a peer to choose from.
    pub(super) fn any(&self) -> bool {
        self.iter().next().is_some()
    }

    /// The members that list this verb; none if the path does not fit the resource's scope.
    pub(super) fn with_verb(self, verb: Verb, fits: bool) -> Candidates<'a> {
        Candidates { verb: Some(verb), route: self.route.filter(|_| fits), ..self }
    }

    /// The peers of this release or a newer one; none if the release is unknown.
    pub(super) fn not_older_than(self, release: Option<Release>) -> Candidates<'a> {
        Candidates { not_older_than: Some(release), ..self }
    }

    /// Whether the local server lists it and has not denied it.
    pub(super) fn local_serves(&self) -> bool {
        self.local_lists() && self.believes_local()
    }

    /// Whether there is a local server that has not denied it.
    pub(super) fn believes_local(&self) -> bool {
        self.snapshot.local().is_some_and(|local| !self.denied(local))
    }

    /// Whether the local server lists it.
    #[inline]
    pub(super) fn local_lists(&self) -> bool {
        self.listing().any(|index| self.snapshot.is_local(index))
    }

    /// Whether a peer that has not denied it lists it, but left or has no address.
    pub(super) fn any_unreachable(&self) -> bool {
        self.listing().any(|index| {
            let member = self.snapshot.member(index).filter(|_| !self.snapshot.is_local(index));
            member.is_some_and(|member| {
                !self.denied(member)
                    && (member.presence == Presence::Left || member.address.is_none())
            })
        })
    }

    /// Whether any member lists it, even one that left, has no address or denied it.
    pub(super) fn listed_by_anyone(&self) -> bool {
        self.listing().next().is_some()
    }

    /// What the members that list it, and denied it, say since then.
    pub(super) fn listed_after_denial(&self) -> AfterDenial {
        let mut after = AfterDenial::Unlisted;
        for denial in self.denials.iter().filter(|denial| denial.listed) {
            let lists = |index: &usize| {
                self.snapshot.member(*index).is_some_and(|member| *member.id == *denial.member)
            };
            let Some(member) = self.listing().find(lists) else { continue };
            let seen = self.snapshot.member(member).and_then(|member| member.view.part(self.part));
            if seen.is_some_and(|seen| seen.confirmed >= denial.at) {
                return AfterDenial::Listed;
            }
            after = AfterDenial::Unconfirmed;
        }
        after
    }

    #[inline]
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

    /// Whether the member denied it and must not be asked again. A member that began to list this verb
    /// after its denial may be asked once more.
    fn denied(&self, member: &Member) -> bool {
        let mut denials = self.denials.iter().filter(|denial| *denial.member == *member.id);
        match (denials.next(), denials.next()) {
            (None, _) => false,
            (Some(denial), None) => {
                let seen = member.view.part(self.part);
                let confirmed_since = seen.is_some_and(|seen| seen.confirmed >= denial.at);
                let began_to_list_it = !denial.listed && self.verb.is_some() && confirmed_since;
                !began_to_list_it
            }
            (Some(_), Some(_)) => true,
        }
    }
}
