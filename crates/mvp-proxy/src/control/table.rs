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
            Some((_, Who::Server)) => {
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
mod tests {
    use mvp_core::Snapshot;
    use mvp_core::snapshot::{Inputs, Policy};

    use super::*;

    const FORGET_AFTER: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_secs(seconds))
    }

    fn record(address: &str, heard: Option<u64>) -> MemberRecord {
        let (id, address) = ("b".into(), Some(address.into()));
        MemberRecord { id, address, kind: MemberKind::Mvp, heard: heard.map(at) }
    }

    /// What the table says of the member, and whether that holds 404s up.
    fn shown(table: &Table, now: u64) -> Option<(Presence, bool)> {
        let member = table.members().into_iter().find(|member| &*member.id == "b")?;
        Some((member.presence, blocks(table, now)))
    }

    /// Whether anybody holds 404s up.
    fn blocks(table: &Table, now: u64) -> bool {
        let inputs = Inputs {
            members_known: true,
            members: table.members(),
            local: Some("own".into()),
            extension_versions: Arc::default(),
            started: at(0),
            now: at(now),
            policy: Policy::default(),
        };
        let snapshot = Snapshot::build(inputs, None);
        snapshot.blocking(Part::Apis).next().is_some()
    }

    fn update(table: &mut Table, records: &[MemberRecord], now: u64) -> usize {
        table.update(records, Some(&"own".into()), at(now), FORGET_AFTER).len()
    }

    /// It is claimed to be a member, and never once answers: it cannot wedge a cluster.
    #[test]
    fn who_cannot_be_asked_holds_404s_up_for_no_longer_than_it_is_heard_of_and_not_for_good() {
        let (mut silent, mut beating) = (Table::default(), Table::default());
        for now in 0..900 {
            update(&mut silent, &[record("a:1", Some(0))], now);
            update(&mut beating, &[record("a:1", Some(now))], now);
            if now < FORGET_AFTER.as_secs() {
                assert_eq!(shown(&silent, now), Some((Presence::Present, now <= 40)), "{now}");
            } else {
                assert_eq!(shown(&silent, now), None, "{now}: nobody has heard of it for so long");
            }
            assert_eq!(shown(&beating, now), Some((Presence::Present, now < 300)), "{now}");
        }
    }

    /// A source may name the dead for hours. What we reach ourselves is alive, whatever it says.
    #[test]
    fn who_is_silent_is_forgotten_unless_we_reach_it() {
        let mut table = Table::default();
        update(&mut table, &[record("a:1", Some(0))], 0);
        table.rows().for_each(|row| row.member.heard = at(300));
        assert_eq!(update(&mut table, &[record("a:1", Some(0))], 899), 0);
        assert_eq!(update(&mut table, &[record("a:1", Some(0))], 900), 1);
        assert_eq!(update(&mut table, &[record("a:1", Some(0))], 901), 0, "and stays so");
        assert_eq!(shown(&table, 901), None);
        update(&mut table, &[record("a:1", Some(902))], 902);
        assert_eq!(shown(&table, 902), Some((Presence::Present, true)), "until it is heard of");
    }

    #[test]
    fn who_left_is_remembered_until_its_time_or_somebody_says_so() {
        let mut table = Table::default();
        update(&mut table, &[record("a:1", None)], 0);
        assert!(!table.forget("b"), "it is there");
        table.rows().for_each(|row| row.member.view = view());
        update(&mut table, &[], 10);
        assert_eq!(shown(&table, 10), Some((Presence::Left, false)));
        assert_eq!(update(&mut table, &[], 609), 0);
        // It comes back, at another address.
        update(&mut table, &[record("a:2", None)], 609);
        assert_eq!(table.members().first().and_then(|b| b.address.as_deref()), Some("a:2"));
        update(&mut table, &[], 620);
        assert!(table.forget("b") && !table.forget("b") && !table.forget("own"));
        update(&mut table, &[record("a:2", None)], 630);
        table.rows().for_each(|row| row.member.view = view());
        update(&mut table, &[], 640);
        assert_eq!(update(&mut table, &[], 1239), 0);
        assert_eq!(update(&mut table, &[], 1240), 1);
        // Where it was never seen, what is recorded of it is remembered.
        update(&mut table, &[record("a:2", None)], 1250);
        table.rows().for_each(|row| row.member.view.recorded = Some(Arc::default()));
        assert_eq!(update(&mut table, &[], 1260), 0);
        assert_eq!(update(&mut table, &[], 1859), 0);
        assert_eq!(update(&mut table, &[], 1860), 1);
        // Who never said anything left nothing to be remembered.
        update(&mut table, &[record("a:2", None)], 1870);
        assert_eq!(update(&mut table, &[], 1871), 1);
    }

    fn view() -> View {
        View { apis: Some(Seen { list: Arc::default(), confirmed: at(0) }), ..View::default() }
    }

    fn answers(table: &mut Table, id: &str, who: &Who) {
        for row in table.rows().filter(|row| &*row.member.id == id) {
            row.member.view = view();
            row.answered = row.member.address.clone().map(|address| (address, who.clone()));
        }
    }

    /// Its name, its address, or both may change. It is remembered only as long as it is not there.
    #[test]
    fn who_goes_by_another_name_now_did_not_leave() {
        let gateway = |instance: &str| Who::Gateway { id: "b".into(), instance: instance.into() };
        let named =
            |id: &str, address: &str| MemberRecord { id: id.into(), ..record(address, None) };
        for (before, after, who, known_again) in [
            // At the same address.
            (gateway("1"), named("b", "a:1"), None, true),
            (Who::Server, named("b", "a:1"), None, true),
            // The same process, at another address.
            (gateway("1"), named("b", "a:2"), Some(gateway("1")), true),
            (gateway("1"), named("b", "a:2"), Some(gateway("2")), false),
            (gateway("1"), named("b", "a:2"), Some(Who::Server), false),
            // The gateway before it.
            (Who::Server, named("b", "a:2"), Some(gateway("1")), true),
            (Who::Server, named("b", "a:2"), Some(Who::Server), false),
            (Who::Server, named("b", "a:2"), None, false),
            (Who::Server, named("c", "a:2"), Some(gateway("1")), false),
        ] {
            let mut table = Table::default();
            update(&mut table, &[named("b@a:1", "a:1")], 0);
            answers(&mut table, "b@a:1", &before);
            let forgotten = update(&mut table, std::slice::from_ref(&after), 1);
            if who.is_none() && known_again {
                assert_eq!(forgotten, 1, "what is known of it is taken over: {after:?}");
                let row = table.rows().find(|row| &*row.member.id == "b").unwrap();
                assert!(row.member.view.apis.is_some() && row.answered.is_some());
                continue;
            }
            assert_eq!(forgotten, 0, "nobody knows yet");
            if let Some(who) = &who {
                answers(&mut table, &after.id, who);
            }
            let forgotten = update(&mut table, std::slice::from_ref(&after), 2);
            assert_eq!(forgotten, usize::from(known_again), "{after:?} {who:?}");
        }
    }

    /// It was away for longer than anybody is waited for, and may serve something new.
    #[test]
    fn who_is_back_is_waited_for_again_but_not_again_and_again() {
        let mut table = Table::default();
        let mut held_up = 0;
        for now in 0..4000 {
            // Its Lease is made anew again and again, and it never answers any more.
            let is_there = now < 10 || now % 600 >= 400;
            let records = [record("a:1", Some(now))];
            update(&mut table, if is_there { &records } else { &[] }, now);
            for row in table.rows() {
                if now < 10 || &*row.member.id == "own" {
                    let seen = Some(Seen { list: Arc::default(), confirmed: at(now) });
                    (row.member.view.api, row.member.view.apis) = (seen.clone(), seen);
                    row.has_answered = true;
                }
            }
            let blocks = blocks(&table, now);
            assert_eq!(blocks && now < 600, (400..600).contains(&now), "{now}");
            held_up += u64::from(blocks);
        }
        assert!((200..=450).contains(&held_up), "{held_up} s");
    }

    /// Its gateway is gone and its server lives on: what it served is remembered, but not for ever.
    #[test]
    fn who_cannot_be_asked_any_more_is_remembered_as_who_left() {
        let mut table = Table::default();
        let homeless = |now| MemberRecord { address: None, ..record("a:1", Some(now)) };
        update(&mut table, &[record("a:1", Some(0))], 0);
        table.rows().for_each(|row| row.member.view = view());
        let seen = |table: &Table| {
            table.members().iter().any(|member| member.view.apis.is_some() && &*member.id == "b")
        };
        update(&mut table, &[homeless(599)], 599);
        assert!(seen(&table));
        update(&mut table, &[homeless(600)], 600);
        assert!(!seen(&table) && shown(&table, 600).is_some());
    }

    /// A new one every minute, each of which beats and never answers.
    #[test]
    fn strangers_together_hold_404s_up_for_no_longer_than_one_alone() {
        let mut table = Table::default();
        let mut held_up = Vec::new();
        for now in 0..3600 {
            let forged = format!("forged-{}", now / 60);
            let stranger = MemberRecord { id: forged.into(), ..record("a:6", Some(now)) };
            let known = MemberRecord { id: "known".into(), ..record("a:2", Some(now)) };
            update(&mut table, &[stranger, known], now);
            let answered = Seen { list: Arc::default(), confirmed: at(now) };
            for row in table.rows().filter(|row| ["own", "known"].contains(&&*row.member.id)) {
                row.has_answered = true;
                (row.member.view.api, row.member.view.apis) =
                    (Some(answered.clone()), Some(answered.clone()));
            }
            if blocks(&table, now) {
                held_up.push(now);
            }
        }
        assert_eq!(held_up, (0..300).collect::<Vec<_>>());
        // One that somebody wrote down is waited for all the same; one that answered, too.
        update(&mut table, &[record("a:3", None)], 3600);
        assert!(blocks(&table, 3600));
        update(&mut table, &[], 3601);
        assert!(!blocks(&table, 3601));
        update(&mut table, &[record("a:3", Some(3602))], 3602);
        assert!(!blocks(&table, 3602), "nobody knows it");
        for row in table.rows().filter(|row| &*row.member.id == "b") {
            row.has_answered = true;
        }
        update(&mut table, &[record("a:3", Some(3603))], 3603);
        assert!(blocks(&table, 3603), "it answers, and does not say what it serves");
    }

    /// However short the memory: a heartbeat that is a little late is nobody's end.
    #[test]
    fn without_a_memory_who_beats_is_there() {
        let mut table = Table::default();
        for now in 0..100 {
            table.update(&[record("a:1", Some(now / 5 * 5))], None, at(now), Duration::ZERO);
            assert_eq!(shown(&table, now).map(|shown| shown.0), Some(Presence::Present), "{now}");
        }
    }
}
