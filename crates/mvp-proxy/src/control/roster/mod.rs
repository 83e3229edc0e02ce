//! The members between rounds: the third step of the control loop, as a state machine.
//!
//! [`RosterState::step`] takes an event and the time, and returns the effects that the control loop
//! carries out. It logs, counts and fetches nothing itself, so that a test or a model checker can
//! drive it without a runtime.

mod apply;
mod effect;
#[cfg(test)]
pub(crate) mod facts;
mod polling;
mod share;
#[cfg(test)]
mod tests;
mod tracked;
mod wait_budget;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, View, ViewDocument};
use mvp_core::recorded::Recorded;

use super::ControlSettings;
use super::fetch::{Fetched, Known};
use super::membership::{MemberRecord, Roster};
use super::report_once::ReportOnce;
pub(crate) use effect::{Effect, FetchRequest, Report, Ticket};
use tracked::{Knowledge, Standing, Trace, Tracked};
use wait_budget::WaitBudget;

/// When a local server that is not set up yet is tried again.
const UNREACHABLE_INTERVAL: Duration = Duration::from_millis(100);

/// Every member, and what the control loop does next with each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RosterState {
    rules: Rules,
    members: BTreeMap<Arc<str>, Tracked>,
    budget: WaitBudget,
    sources: Sources,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The sources name these members.
    Listed(Roster),
    /// An operator wants a member forgotten.
    Forget(Arc<str>),
    /// A request needs fresh views of all members.
    RefreshWanted,
    /// A request needs one document of one member or, without one, of all.
    DocumentWanted { document: ViewDocument, of: Option<Arc<str>> },
    /// Fetches may be due.
    Tick,
    /// There is no way to a member that was to be fetched from.
    Unreachable(Arc<str>),
    /// A fetch ended.
    Fetched { ticket: Ticket, fetched: Box<Fetched> },
    /// StorageVersions record this, by server.
    Recorded(Arc<BTreeMap<String, Arc<Recorded>>>),
}

/// The settings that steps depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rules {
    local: Option<Arc<str>>,
    interval: Duration,
    forget_after: Duration,
    heard_within: Duration,
    blocks_for: Duration,
    wanted_interval: Duration,
}

/// Whether the sources have ever named all members.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sources {
    started: Timestamp,
    complete: bool,
    were_complete: bool,
    unknown: ReportOnce,
}

impl RosterState {
    pub(crate) fn new(settings: &ControlSettings, now: Timestamp) -> RosterState {
        let rules = Rules {
            local: settings.local.clone(),
            interval: settings.interval,
            forget_after: settings.forget_after,
            heard_within: settings.policy.heard_within,
            wanted_interval: settings.wanted_interval,
            blocks_for: settings.policy.blocks_for,
        };
        let unknown = ReportOnce::default();
        RosterState {
            budget: WaitBudget::new(rules.blocks_for),
            rules,
            members: BTreeMap::new(),
            sources: Sources { started: now, complete: false, were_complete: false, unknown },
        }
    }

    /// Applies an event. Returns what the control loop must do.
    pub(crate) fn step(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        match event {
            Event::Listed(roster) => self.listed(&roster, now),
            Event::Forget(id) => self.forget(id),
            Event::RefreshWanted => self.refresh_wanted(now),
            Event::DocumentWanted { document, of } => {
                self.document_wanted(document, of.as_ref(), now)
            }
            Event::Tick => self.tick(now),
            Event::Unreachable(id) => {
                self.unreachable(&id, now);
                Vec::new()
            }
            Event::Fetched { ticket, fetched } => self.fetched(ticket, *fetched, now),
            Event::Recorded(by_server) => {
                self.recorded(&by_server);
                Vec::new()
            }
        }
    }

    /// The members as a snapshot shows them.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().map(|tracked| &tracked.member)
    }

    /// Whether the sources name all members.
    pub(crate) fn is_complete(&self) -> bool {
        self.sources.complete
    }

    /// When the next fetch is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let idle = |tracked: &&Tracked| tracked.is_present() && !tracked.polling.is_running();
        self.members.values().filter(idle).map(|tracked| tracked.polling.next_due()).min()
    }

    /// Applies a roster. A member that left is remembered for a while, unless nothing
    /// is known about what it serves, or it is present under another name.
    fn listed(&mut self, roster: &Roster, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        effects.extend(self.report_unknown(roster.complete, now).map(Effect::Report));
        let mut named = BTreeSet::new();
        let mut former = Vec::new();
        for record in &roster.members {
            let id = record.name.label();
            if self.named(&id, record, now, &mut former) {
                named.insert(id);
            }
        }
        for former in former {
            self.members.entry(Arc::clone(&former.member.id)).or_insert(former);
        }
        if let Some(local) = &self.rules.local {
            let new = || Tracked::new(Arc::clone(local).into(), now, now);
            self.members.entry(Arc::clone(local)).or_insert_with(new);
            named.insert(Arc::clone(local));
        }
        for (id, tracked) in &mut self.members {
            match (named.contains(id), tracked.left_since()) {
                (true, Some(_)) => tracked.stand(Standing::Present { vouched: false }),
                (false, None) => tracked.stand(Standing::Left { since: now }),
                _ => {}
            }
        }
        self.expire_views(now);
        effects.extend(self.wait_for_unverified(now).map(Effect::Report));
        effects.extend(self.expire_members(now).into_iter().map(Effect::Forget));
        effects
    }

    /// Applies the record of a member. Returns whether it counts as present: a source with
    /// heartbeats may name a member long after its death.
    fn named(
        &mut self,
        id: &Arc<str>,
        record: &MemberRecord,
        now: Timestamp,
        former: &mut Vec<Tracked>,
    ) -> bool {
        let MemberRecord { name, address, kind, heard } = record;
        let vouched = heard.is_none();
        let heard = heard.unwrap_or(now);
        // It may have answered at its new address under another name.
        let moves = self.members.get(id).is_none_or(|known| known.member.address != *address);
        let there = address.as_ref().filter(|_| moves).and_then(|at| self.knowledge_at(at));
        let tracked = match self.members.entry(Arc::clone(id)) {
            Entry::Vacant(_) if !vouched && self.rules.is_dead(heard, now) => return false,
            Entry::Vacant(entry) => entry.insert(Tracked::new(name.clone(), now, heard)),
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let was_silent = now.since(tracked.member.heard) > self.rules.heard_within;
        tracked.member.heard = heard.max(tracked.member.heard);
        if !vouched && self.rules.is_dead(tracked.member.heard, now) {
            if tracked.is_present() {
                tracked.stand(Standing::Left { since: tracked.member.heard });
            }
            return false;
        }
        tracked.member.kind = *kind;
        // It may have restarted while it was silent, and serve something new.
        let is_heard = now.since(tracked.member.heard) <= self.rules.heard_within;
        if !tracked.is_present() || (!vouched && was_silent && is_heard) {
            tracked.rejoin(now);
        }
        tracked.stand(Standing::Present { vouched });
        if moves {
            former.extend(tracked.move_to(address.as_ref(), there, now));
        }
        true
    }

    /// What is known about the server at an address, by its latest view.
    fn knowledge_at(&self, address: &Arc<str>) -> Option<Knowledge> {
        let known = self
            .members
            .values()
            .filter_map(|tracked| Some((tracked.last_confirmed(), tracked.knowledge_at(address)?)));
        known.max_by_key(|(confirmed, _)| *confirmed).map(|(_, knowledge)| knowledge)
    }

    /// Reports once when the sources did not name all members in time.
    fn report_unknown(&mut self, complete: bool, now: Timestamp) -> Option<Report> {
        let after = self.rules.blocks_for;
        let sources = &mut self.sources;
        sources.complete = complete;
        sources.were_complete |= complete;
        let is_late = !sources.were_complete && now.since(sources.started) > after;
        (is_late && sources.unknown.report()).then_some(Report::MembersUnknown { after })
    }

    /// Drops the views of members without an address after the time for which members are
    /// remembered: their servers may live on, but cannot be fetched from.
    fn expire_views(&mut self, now: Timestamp) {
        let Rules { local, forget_after, .. } = &self.rules;
        for tracked in self.members.values_mut() {
            let member = &tracked.member;
            let is_mute = member.address.is_none() && local.as_ref() != Some(&member.id);
            let is_over = |confirmed| now.since(confirmed) >= *forget_after;
            if is_mute && tracked.last_confirmed().is_some_and(is_over) {
                let recorded = tracked.member.view.recorded.take();
                tracked.member.view = View { recorded, ..View::default() };
                tracked.known = Known::default();
            }
        }
    }

    /// 404s wait for unverified members, which may exist, but for all of them together no longer
    /// than the wait budget lasts.
    fn wait_for_unverified(&mut self, now: Timestamp) -> Option<Report> {
        let Rules { local, heard_within, .. } = &self.rules;
        let (budget, members) = (&mut self.budget, &mut self.members);
        let after = budget.total();
        let is_unverified = |tracked: &Tracked| {
            tracked.is_unverified() && local.as_ref() != Some(&tracked.member.id)
        };
        let is_waited_for = |tracked: &Tracked| {
            is_unverified(tracked)
                && tracked.is_present()
                && tracked.member.address.is_some()
                && now.since(tracked.member.joined) <= after
                && now.since(tracked.member.heard) <= *heard_within
        };
        let runs_out = budget.spend(members.values().any(is_waited_for), now);
        for tracked in members.values_mut() {
            tracked.member.awaited = !budget.is_exhausted() || !is_unverified(tracked);
        }
        runs_out.then_some(Report::UnverifiedTimedOut { after })
    }

    /// Removes the members that left and need not be remembered.
    fn expire_members(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let forget_after = self.rules.forget_after;
        let present = |tracked: &&Tracked| tracked.is_present() && tracked.is_known();
        let here: BTreeSet<Trace> =
            self.members.values().filter(present).flat_map(Tracked::traces).collect();
        let is_over = |_: &Arc<str>, tracked: &mut Tracked| {
            tracked.left_since().is_some_and(|since| {
                now.since(since) >= forget_after
                    || !tracked.is_known()
                    || tracked.traces().iter().any(|trace| here.contains(trace))
            })
        };
        self.members.extract_if(.., is_over).map(|(id, _)| id).collect()
    }

    fn forget(&mut self, id: Arc<str>) -> Vec<Effect> {
        if self.members.get(&id).is_none_or(Tracked::is_present) {
            return Vec::new();
        }
        self.members.remove(&id);
        vec![Effect::Forget(id)]
    }

    /// Makes every member due, even one whose fetch is running: that one began too early.
    fn refresh_wanted(&mut self, now: Timestamp) -> Vec<Effect> {
        let spacing = self.rules.wanted_interval;
        let all = self.members.values_mut();
        Effect::of_delayed(all.map(|tracked| tracked.polling.want_all(spacing, now)))
    }

    /// Makes one document due, of one member or of all.
    fn document_wanted(
        &mut self,
        document: ViewDocument,
        of: Option<&Arc<str>>,
        now: Timestamp,
    ) -> Vec<Effect> {
        let spacing = polling::spacing(self.rules.wanted_interval, of.is_none());
        let wanted = self.members.iter_mut().filter(|(id, _)| of.is_none_or(|of| of == *id));
        Effect::of_delayed(wanted.map(|(_, tracked)| tracked.polling.want(document, spacing, now)))
    }

    /// Starts the fetches that are due, and reports members that could not be fetched for too long.
    fn tick(&mut self, now: Timestamp) -> Vec<Effect> {
        let Rules { local, interval, blocks_for: after, .. } = &self.rules;
        let mut effects = Vec::new();
        for (id, tracked) in &mut self.members {
            let request = tracked.begin(now, *interval);
            effects.extend(request.map(|request| Effect::Fetch(Box::new(request))));
            // 404s do not wait for the view of a member without an address.
            if local.as_ref() == Some(id) || tracked.member.address.is_none() {
                continue;
            }
            let unconfirmed_since = tracked.unconfirmed_since();
            let timed_out = &mut tracked.reports.timed_out;
            if now.since(unconfirmed_since) <= *after {
                timed_out.clear();
            } else if timed_out.report() {
                let report = Report::MemberTimedOut { id: Arc::clone(id), after: *after };
                effects.push(Effect::Report(report));
            }
        }
        effects
    }

    fn unreachable(&mut self, id: &Arc<str>, now: Timestamp) {
        let Rules { local, interval, .. } = &self.rules;
        let is_local = local.as_ref() == Some(id);
        let soon = if is_local { UNREACHABLE_INTERVAL.min(*interval) } else { *interval };
        if let Some(Tracked { polling, .. }) = self.members.get_mut(id) {
            polling.put_off(now.after(soon));
        }
    }

    fn fetched(&mut self, ticket: Ticket, mut fetched: Fetched, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let id = Arc::clone(&ticket.id);
        self.share(&id, &mut fetched);
        if let (Some(address), Some(who)) = (&ticket.address, &fetched.who) {
            effects.push(Effect::Answered { address: Arc::clone(address), who: who.clone() });
        }
        match self.members.get_mut(&id) {
            // It was forgotten since the fetch began.
            None => effects.push(Effect::Forget(id)),
            Some(tracked) => {
                let error = fetched.error();
                if error.is_some() || fetched.is_whole() {
                    effects.push(Effect::LastError { id, error });
                }
                effects.extend(tracked.finish(ticket, fetched, now));
            }
        }
        effects
    }

    /// Applies the records about members whose discovery was never seen.
    fn recorded(&mut self, by_server: &BTreeMap<String, Arc<Recorded>>) {
        for (id, Tracked { member, .. }) in &mut self.members {
            let recorded = by_server.get(&**id).filter(|_| is_unseen(member));
            member.view.recorded = recorded.cloned();
        }
    }
}

impl Rules {
    /// Whether a member with heartbeats counts as dead. However short the memory is: one whose
    /// heartbeat is only late may be alive.
    fn is_dead(&self, heard: Timestamp, now: Timestamp) -> bool {
        let silent = now.since(heard);
        silent >= self.forget_after && silent >= self.heard_within
    }
}

/// Whether a document of a member was never seen.
pub(super) fn is_unseen(member: &Member) -> bool {
    Part::ALL.into_iter().any(|part| member.view.part(part).is_none())
}
