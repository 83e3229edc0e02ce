//! What the control loop remembers between rounds: every member, its view, and what to ask next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, MemberKind, Presence, Seen, View};

use super::fetch::{Fetched, Known, OpenApiOutcome, Outcome};
use super::membership::MemberRecord;
use crate::metrics::Metrics;

/// The members, by ID.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<Arc<str>, Row>);

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
    failing: bool,
    schemas_fail: bool,
    /// Whether it was said that it holds nothing up any more.
    given_up: bool,
}

impl Table {
    /// Takes over who is there now. Who left is remembered for a while; gives who is not any more.
    pub(crate) fn update(
        &mut self,
        records: Vec<MemberRecord>,
        local: Option<&Arc<str>>,
        now: Timestamp,
        forget_after: Duration,
    ) -> Vec<Arc<str>> {
        for row in self.0.values_mut() {
            let stays = records.iter().any(|record| record.id == row.member.id)
                || local == Some(&row.member.id);
            row.left = if stays { None } else { row.left.or(Some(now)) };
        }
        let forgotten = self
            .0
            .extract_if(.., |_, row| row.left.is_some_and(|left| now.since(left) >= forget_after))
            .map(|(id, _)| id)
            .collect();
        for record in records {
            let row =
                self.0.entry(Arc::clone(&record.id)).or_insert_with(|| Row::new(&record.id, now));
            row.member.kind = record.kind;
            if row.member.address != record.address {
                row.member.address = record.address;
                row.due = now;
            }
            // A source without heartbeats vouches for its members as long as it names them.
            row.member.heard = record.heard.unwrap_or(now).max(row.member.heard);
        }
        if let Some(local) = local {
            self.0.entry(Arc::clone(local)).or_insert_with(|| Row::new(local, now));
        }
        for row in self.0.values_mut() {
            let present = row.left.is_none();
            row.member.presence = if present { Presence::Present } else { Presence::Left };
        }
        forgotten
    }

    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut Row> {
        self.0.values_mut()
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.0.values().map(|row| row.member.clone()).collect()
    }

    /// Has every member asked as soon as may be, even one that is being asked right now.
    pub(crate) fn want_all(&mut self, now: Timestamp, min_interval: Duration) {
        for row in self.0.values_mut() {
            row.due = row.begun.map_or(now, |begun| now.max(begun.after(min_interval)));
        }
    }

    /// Says so, once, when a member could not be asked for so long that it holds nothing up.
    pub(crate) fn give_up(&mut self, now: Timestamp, local: Option<&Arc<str>>, after: Duration) {
        for row in self.0.values_mut().filter(|row| local != Some(&row.member.id)) {
            let oldest = Part::ALL
                .into_iter()
                .map(|part| row.member.view.part(part).map_or(row.member.joined, |s| s.confirmed))
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
        let idle = self.0.values().filter(|row| row.asked.is_none() && row.left.is_none());
        idle.map(|row| row.due).min()
    }

    /// Takes over what a member answered. Whether it is still one: it may have been forgotten while
    /// it was asked.
    pub(crate) fn apply(&mut self, id: &str, fetched: Fetched, metrics: &Metrics) -> bool {
        let Some(row) = self.0.get_mut(id) else { return false };
        if let Some(asked) = row.asked.take() {
            row.apply(fetched, asked, metrics);
        }
        true
    }
}

impl Row {
    fn new(id: &Arc<str>, now: Timestamp) -> Row {
        let member = Member {
            id: Arc::clone(id),
            kind: MemberKind::Bare,
            address: None,
            presence: Presence::Present,
            joined: now,
            heard: now,
            view: View::default(),
        };
        Row {
            member,
            known: Known::default(),
            due: now,
            asked: None,
            begun: None,
            left: None,
            failing: false,
            schemas_fail: false,
            given_up: false,
        }
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
                view.openapi = None;
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
            (false, false) => {
                tracing::warn!(member = %id, "discovery fails, the last known good stays: {}", problems.join("; "));
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
