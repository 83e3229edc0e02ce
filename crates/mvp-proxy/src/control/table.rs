//! What the control loop remembers between rounds: every member, its view, and what to ask next.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, MemberKind, Presence, Seen, View};
use mvp_core::openapi::Index;

use super::fetch::{Fetched, Known, OpenApiOutcome, Outcome};
use super::membership::{MemberRecord, Who};
use super::patience::Patience;
use crate::metrics::Metrics;

/// However soon a member that left is forgotten: one that is silent for less may be alive.
const SILENCE: Duration = Duration::from_secs(40);

/// The members, by ID.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<Arc<str>, Row>,
    patience: Patience,
}

/// A member, and where we are in asking it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) member: Member,
    pub(crate) known: Known,
    /// When it is to be asked next.
    pub(crate) due: Timestamp,
    /// When the fetch that is under way was begun.
    pub(crate) asked: Option<Timestamp>,
    /// When the last fetch was begun.
    begun: Option<Timestamp>,
    left: Option<Timestamp>,
    /// Whether it is what a member left behind that moved.
    is_left_behind: bool,
    /// Who answered last, and where.
    answered: Option<(Arc<str>, Who)>,
    /// Whether it answered since it came, or came back.
    has_answered: bool,
    /// Whether whoever named it vouches for it.
    vouched: bool,
    failing: bool,
    schemas_fail: bool,
    /// Whether it was said that it holds nothing up any more.
    given_up: bool,
}

/// By what a member that goes by another name now is known again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whereabouts {
    Address(Arc<str>),
    Process(Arc<str>),
    /// A server behind a gateway, by its ID.
    Server(Arc<str>),
}

impl Table {
    /// Takes over who is there now. Who left is remembered for a while; gives who is not any more.
    ///
    /// A source with heartbeats may name a member long after its death. One that was heard of
    /// neither by it nor by us for as long as we remember is forgotten, whatever the source says.
    /// Who left and never said anything, or is there by another name, need not be remembered.
    pub(crate) fn update(
        &mut self,
        records: &[MemberRecord],
        local: Option<&Arc<str>>,
        now: Timestamp,
        forget_after: Duration,
    ) -> Vec<Arc<str>> {
        let over = |since: Timestamp| now.since(since) >= forget_after;
        let lapsed = |heard: Timestamp| over(heard) && now.since(heard) >= SILENCE;
        let mut named = BTreeSet::new();
        let mut left_behind = Vec::new();
        for record in records {
            // A source without heartbeats vouches for its members as long as it names them.
            let heard = record.heard.unwrap_or(now);
            let stays = |row: &Row| row.member.address == record.address;
            let twin = match self.rows.get(&record.id).is_some_and(stays) {
                true => None,
                false => self.answering_at(record.address.as_ref()),
            };
            let row = match self.rows.entry(Arc::clone(&record.id)) {
                Entry::Vacant(_) if record.heard.is_some_and(lapsed) => continue,
                Entry::Vacant(entry) => entry.insert(Row::new(&record.id, now, heard)),
                Entry::Occupied(entry) => entry.into_mut(),
            };
            row.member.heard = heard.max(row.member.heard);
            if record.heard.is_some() && lapsed(row.member.heard) {
                row.left.get_or_insert(row.member.heard);
                continue;
            }
            named.insert(Arc::clone(&record.id));
            row.member.kind = record.kind;
            row.vouched = record.heard.is_none();
            if row.left.is_some() {
                row.is_back(now);
            }
            if row.member.address != record.address {
                // Whoever answers there next may be somebody else: what this one served is remembered.
                left_behind.extend(row.left_behind(now).filter(|_| record.address.is_some()));
                row.member.address.clone_from(&record.address);
                // What comes from where it was is not waited for.
                (row.due, row.asked) = (now, None);
                row.is_back(now);
                if let Some((view, known, answered)) = twin {
                    row.member.view = view;
                    (row.known, row.answered) = (known, Some(answered));
                }
            }
        }
        for row in left_behind {
            self.rows.entry(Arc::clone(&row.member.id)).or_insert(row);
        }
        if let Some(local) = local {
            self.rows.entry(Arc::clone(local)).or_insert_with(|| Row::new(local, now, now));
            named.insert(Arc::clone(local));
        }
        for (id, row) in &mut self.rows {
            row.left = if named.contains(id) { None } else { row.left.or(Some(now)) };
            let present = row.left.is_none();
            row.member.presence = if present { Presence::Present } else { Presence::Left };
        }
        // Who can no more be asked is remembered for as long as who left, though its server lives on.
        for row in self.rows.values_mut() {
            let View { api, apis, .. } = &row.member.view;
            let last = api.iter().chain(apis).map(|seen| seen.confirmed).max();
            let is_mute = row.member.address.is_none() && local != Some(&row.member.id);
            if is_mute && last.is_some_and(over) {
                let recorded = row.member.view.recorded.take();
                row.member.view = View { recorded, ..View::default() };
                row.known = Known::default();
            }
        }
        self.await_strangers(local, now);
        let seen = self.rows.values().filter(|row| row.left.is_none() && row.is_known());
        let here: BTreeSet<Whereabouts> = seen.flat_map(Row::whereabouts).collect();
        let is_over = |_: &Arc<str>, row: &mut Row| {
            row.left.is_some_and(over)
                || (row.left.is_some() && (!row.is_known() || row.is_among(&here)))
        };
        self.rows.extract_if(.., is_over).map(|(id, _)| id).collect()
    }

    /// What is known of who answered at an address: it may go by another name now.
    fn answering_at(&self, address: Option<&Arc<str>>) -> Option<(View, Known, (Arc<str>, Who))> {
        let address = address?;
        let there = |row: &&Row| {
            row.is_known() && row.answered.as_ref().is_some_and(|(at, _)| at == address)
        };
        let confirmed = |row: &&Row| {
            let seen = Part::ALL.into_iter().filter_map(|part| row.member.view.part(part));
            seen.map(|seen| seen.confirmed).max()
        };
        let row = self.rows.values().filter(there).max_by_key(confirmed)?;
        Some((row.member.view.clone(), row.known.clone(), row.answered.clone()?))
    }

    /// Whoever never answered holds answers up all the same, for it may be a member; but all of them
    /// together for no longer than our patience lasts.
    fn await_strangers(&mut self, local: Option<&Arc<str>>, now: Timestamp) {
        let is_stranger =
            |row: &Row| !row.vouched && !row.has_answered && local != Some(&row.member.id);
        let waits = |row: &Row| {
            is_stranger(row)
                && row.left.is_none()
                && row.member.address.is_some()
                && now.since(row.member.joined) <= self.patience.lasts
                && now.since(row.member.heard) <= SILENCE
        };
        let any = self.rows.values().any(waits);
        let patient = self.patience.wait(any, now);
        for row in self.rows.values_mut() {
            row.member.awaited = patient || !is_stranger(row);
        }
    }

    /// Forgets a member that left. Whether there was one.
    pub(crate) fn forget(&mut self, id: &str) -> bool {
        let left = self.rows.get(id).is_some_and(|row| row.left.is_some());
        left && self.rows.remove(id).is_some()
    }

    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    pub(crate) fn present(&self) -> impl Iterator<Item = &Member> {
        self.rows.values().filter(|row| row.left.is_none()).map(|row| &row.member)
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.rows.values().map(|row| row.member.clone()).collect()
    }

    /// Has every member asked as soon as may be, even one that is being asked right now.
    pub(crate) fn want_all(&mut self, now: Timestamp, min_interval: Duration) {
        for row in self.rows.values_mut() {
            row.due = row.begun.map_or(now, |begun| now.max(begun.after(min_interval)));
        }
    }

    /// Says so, once, when a member could not be asked for so long that it holds nothing up.
    pub(crate) fn give_up(&mut self, now: Timestamp, local: Option<&Arc<str>>, after: Duration) {
        for row in self.rows.values_mut().filter(|row| local != Some(&row.member.id)) {
            let oldest = Part::ALL
                .into_iter()
                .map(|part| row.member.view.part(part).map(|seen| seen.confirmed))
                .map(|confirmed| confirmed.unwrap_or_default().max(row.member.joined))
                .min();
            let given_up = oldest.is_some_and(|oldest| now.since(oldest) > after);
            if given_up && !row.given_up {
                let (id, seconds) = (&row.member.id, after.as_secs());
                tracing::warn!(member = %id, seconds, "a member could not be asked for so long that what was never seen of it is 404 from now on; mend it, or take it out of the members");
            }
            row.given_up = given_up;
        }
    }

    /// The earliest time at which a member is to be asked.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let idle = self.rows.values().filter(|row| row.asked.is_none() && row.left.is_none());
        idle.map(|row| row.due).min()
    }

    /// Takes over what a member answered. Whether it is still one: it may have been forgotten while
    /// it was asked.
    pub(crate) fn apply(
        &mut self,
        id: &str,
        (address, begun): (Option<Arc<str>>, Timestamp),
        mut fetched: Fetched,
        metrics: &Metrics,
    ) -> bool {
        let Some(row) = self.rows.get_mut(id) else { return false };
        // It may have been forgotten and be back, or have moved, meanwhile.
        if let Some(asked) = row.asked.take_if(|asked| *asked == begun)
            && row.member.address == address
        {
            if let Some(who) = fetched.who.take() {
                row.answered = address.map(|address| (address, who));
                row.has_answered = true;
            }
            row.apply(fetched, asked, metrics);
        }
        true
    }
}

impl Row {
    fn new(id: &Arc<str>, now: Timestamp, heard: Timestamp) -> Row {
        let member = Member {
            id: Arc::clone(id),
            kind: MemberKind::Bare,
            address: None,
            presence: Presence::Present,
            joined: now,
            heard,
            awaited: true,
            view: View::default(),
        };
        Row {
            member,
            known: Known::default(),
            due: now,
            asked: None,
            begun: None,
            left: None,
            is_left_behind: false,
            answered: None,
            has_answered: false,
            vouched: false,
            failing: false,
            schemas_fail: false,
            given_up: false,
        }
    }

    /// It is there again, or elsewhere: what it serves now is not known before it says so.
    fn is_back(&mut self, now: Timestamp) {
        (self.member.joined, self.has_answered) = (now, false);
    }

    /// What is known of it where it was, if it answered there: as `ID@ADDRESS`, until a gateway says to
    /// stand before the server of that ID, or its time is over.
    fn left_behind(&self, now: Timestamp) -> Option<Row> {
        let (address, _) = self.answered.as_ref().filter(|_| self.is_known())?;
        if self.member.address.as_ref() != Some(address) || self.member.id.contains('@') {
            return None;
        }
        let id: Arc<str> = format!("{}@{address}", self.member.id).into();
        let mut row = Row::new(&id, now, self.member.heard);
        row.member = Member { id, presence: Presence::Left, ..self.member.clone() };
        (row.left, row.is_left_behind) = (Some(now), true);
        (row.known, row.answered) = (self.known.clone(), self.answered.clone());
        Some(row)
    }

    /// How it is reached, while it is there.
    pub(crate) fn record(&self) -> Option<MemberRecord> {
        let Member { id, address, kind, .. } = &self.member;
        let (id, address) = (Arc::clone(id), address.clone());
        let record = MemberRecord { id, address, kind: *kind, heard: None };
        self.left.is_none().then_some(record)
    }

    /// Whether anything is known of what it serves, by its own word or by what is recorded.
    fn is_known(&self) -> bool {
        let view = &self.member.view;
        view.api.is_some() || view.apis.is_some() || view.recorded.is_some()
    }

    /// Where and as what it answers now.
    fn whereabouts(&self) -> impl Iterator<Item = Whereabouts> + use<> {
        let here =
            self.answered.as_ref().filter(|(at, _)| Some(at) == self.member.address.as_ref());
        let process = here.and_then(|(_, who)| match who {
            Who::Gateway { instance, .. } => Some(Whereabouts::Process(Arc::clone(instance))),
            Who::Ourselves | Who::Server => None,
        });
        let place = here.map(|(address, _)| Whereabouts::Address(Arc::clone(address)));
        // A gateway speaks for its server.
        let id = match here {
            Some((_, Who::Gateway { id, .. })) if *id == self.member.id => {
                Some(Whereabouts::Server(Arc::clone(id)))
            }
            Some((_, who)) if *who == Who::Server || self.is_left_behind => {
                let (id, _) = self.member.id.split_once('@').unwrap_or_default();
                Some(Whereabouts::Server(id.into())).filter(|_| !id.is_empty())
            }
            _ => None,
        };
        place.into_iter().chain(process).chain(id)
    }

    fn is_among(&self, here: &BTreeSet<Whereabouts>) -> bool {
        self.whereabouts().any(|whereabouts| here.contains(&whereabouts))
    }

    /// A fetch is begun; the next is due after the interval.
    pub(crate) fn begin(&mut self, now: Timestamp, interval: Duration) {
        self.asked = Some(now);
        self.begun = Some(now);
        self.due = now.after(interval);
    }

    fn apply(&mut self, fetched: Fetched, asked: Timestamp, metrics: &Metrics) {
        let id = Arc::clone(&self.member.id);
        let mut problems = Vec::new();
        let mut schema_problem = None;
        let view = &mut self.member.view;
        view.release = fetched.release;
        self.known.release = fetched.release;
        match fetched.openapi {
            OpenApiOutcome::Unchanged => {}
            OpenApiOutcome::Changed(index, known) => {
                if view.openapi.as_deref() != Some(&*index) {
                    view.openapi = Some(index);
                }
                self.known.openapi = Some(known);
            }
            OpenApiOutcome::None => {
                if view.openapi.as_deref() != Some(&Index::default()) {
                    view.openapi = Some(Arc::default());
                }
                self.known.openapi = None;
            }
            OpenApiOutcome::Failed(problem) => {
                metrics.discovery_failed();
                schema_problem = Some(problem);
            }
        }
        let places = [&mut view.api, &mut view.apis].into_iter().zip(&mut self.known.etags);
        for ((outcome, (seen, known)), part) in fetched.parts.into_iter().zip(places).zip(Part::ALL)
        {
            match outcome {
                Outcome::Unchanged => {
                    if let Some(seen) = seen {
                        seen.confirmed = asked;
                    }
                }
                Outcome::Changed { list, etag, .. }
                    if seen.as_ref().is_some_and(|seen| seen.list == list) =>
                {
                    if let Some(seen) = seen {
                        seen.confirmed = asked;
                    }
                    *known = etag;
                }
                Outcome::Changed { list, etag, complaints } => {
                    for complaint in complaints {
                        tracing::warn!(member = %id, "{complaint}");
                    }
                    tracing::info!(member = %id, document = part.path(), groups = list.groups.len(), "what a member serves changed");
                    *seen = Some(Seen { list, confirmed: asked });
                    *known = etag;
                }
                Outcome::Failed(problem) => {
                    metrics.discovery_failed();
                    problems.push(problem);
                }
            }
        }
        if problems.len() < Part::ALL.len() {
            self.member.heard = self.member.heard.max(asked);
        }
        match (problems.is_empty(), self.failing) {
            (false, false) if self.vouched || self.answered.is_some() => {
                tracing::warn!(member = %id, "discovery fails, the last known good stays: {}", problems.join("; "));
            }
            // Whoever says so may be a member, or not.
            (false, false) => {
                tracing::info!(member = %id, "a member does not answer: {}", problems.join("; "));
            }
            (true, true) => tracing::info!(member = %id, "discovery works again"),
            _ => {}
        }
        self.failing = !problems.is_empty();
        // Where all fails, that was said.
        let schemas_fail = schema_problem.is_some() && !self.failing;
        match (&schema_problem, self.schemas_fail) {
            (Some(problem), false) if schemas_fail => {
                tracing::warn!(member = %id, "OpenAPI fails, the last known good stays: {problem}");
            }
            (None, true) => tracing::info!(member = %id, "OpenAPI works again"),
            _ => {}
        }
        self.schemas_fail = schemas_fail || (self.schemas_fail && schema_problem.is_some());
    }
}

#[cfg(test)]
mod tests;
