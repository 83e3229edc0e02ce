//! The control loop itself. Entry item: [`run`].

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mvp_core::snapshot::Inputs;
use mvp_core::{Snapshot, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::ControlSettings;
use super::extensions::{Extensions, Found};
use super::fetch::{Fetched, fetch};
use super::membership::{Membership, Roster};
use super::publish::{SnapshotWriter, Want};
use super::reach::Reach;
use super::roster::{Effect, Event, FetchRequest, RosterState, Ticket};
use super::storage_versions::StorageVersions;
use crate::clock::Clock;
use crate::metrics::Metrics;

/// The shortest sleep between two rounds.
const MIN_SLEEP: Duration = Duration::from_millis(5);

/// Runs the control loop until `stop` is cancelled.
pub(crate) async fn run(
    membership: impl Membership,
    reach: impl Reach,
    settings: ControlSettings,
    writer: SnapshotWriter,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut control = ControlLoop::new(membership, reach, settings, writer, metrics);
    // Requests can want fetches at any rate; only what comes of a fetch is worth a snapshot.
    let mut only_wanted = false;
    loop {
        if !only_wanted {
            control.read_membership();
        }
        control.start_fetches();
        if !only_wanted {
            control.publish();
        }
        let sleep = control.ask_storage_versions();
        only_wanted = false;
        tokio::select! {
            // What requests want is last: they may want something all the time, the others do not.
            biased;
            () = stop.cancelled() => return,
            () = control.membership.changed() => {}
            Some(first) = control.fetches.join_next() => control.end_fetches(first),
            () = control.storage_versions.heard() => {}
            () = tokio::time::sleep(sleep) => {}
            wanted = control.writer.wanted() => only_wanted = control.want(wanted),
        }
    }
}

/// The snapshot before the first round: the local server is a member, and nothing is known about it.
pub(crate) fn first_snapshot(settings: &ControlSettings, clock: Clock) -> Snapshot {
    let mut roster = RosterState::new(settings, clock.now());
    roster.step(Event::Listed(Roster::default()), clock.now());
    let inputs = inputs(&roster, settings, &Extensions::default(), clock.now(), clock.now());
    Snapshot::build(inputs, None)
}

/// Everything that the control loop keeps between rounds.
struct ControlLoop<M, R> {
    membership: M,
    reach: R,
    settings: ControlSettings,
    writer: SnapshotWriter,
    metrics: Arc<Metrics>,
    clock: Clock,
    started: Timestamp,
    roster: RosterState,
    extensions: Extensions,
    storage_versions: StorageVersions,
    fetches: JoinSet<(Ticket, Fetched)>,
    /// Members that are forgotten with the next snapshot.
    forgotten: Vec<Arc<str>>,
}

impl<M: Membership, R: Reach> ControlLoop<M, R> {
    fn new(
        membership: M,
        reach: R,
        settings: ControlSettings,
        writer: SnapshotWriter,
        metrics: Arc<Metrics>,
    ) -> Self {
        let clock = writer.clock();
        let started = clock.now();
        ControlLoop {
            roster: RosterState::new(&settings, started),
            extensions: Extensions::default(),
            storage_versions: StorageVersions::default(),
            fetches: JoinSet::new(),
            forgotten: Vec::new(),
            membership,
            reach,
            settings,
            writer,
            metrics,
            clock,
            started,
        }
    }

    /// Passes an event to the roster, and carries out the effects.
    fn step(&mut self, event: Event) {
        for effect in self.roster.step(event, self.clock.now()) {
            match effect {
                Effect::Fetch(request) => self.start_fetch(*request),
                Effect::Answered { address, who } => self.membership.answered(&address, &who),
                Effect::LastError { id, error } => self.writer.note(id, error),
                Effect::Forget(id) => self.forgotten.push(id),
                Effect::CountFailures(failures) => {
                    (0..failures).for_each(|_| self.metrics.discovery_failed());
                }
                Effect::Report(report) => report.log(),
                Effect::CountDelayed => self.metrics.refresh_delayed(),
            }
        }
    }

    /// Notes what requests want fetched. Returns false if they want something else: that a member is
    /// forgotten.
    fn want(&mut self, wanted: BTreeSet<Want>) -> bool {
        let is_some = !wanted.is_empty();
        for want in wanted {
            self.step(match want {
                Want::Views => Event::RefreshWanted,
                Want::Document(document, of) => Event::DocumentWanted { document, of },
            });
        }
        is_some
    }

    fn read_membership(&mut self) {
        let roster = self.membership.roster();
        self.step(Event::Listed(roster));
        for id in self.writer.to_forget() {
            self.step(Event::Forget(id));
        }
    }

    fn start_fetches(&mut self) {
        self.step(Event::Tick);
    }

    fn start_fetch(&mut self, request: FetchRequest) {
        let FetchRequest { member, known, scope, ticket } = request;
        let Some(ask) = self.reach.reach(&member) else {
            if member.address.is_none() {
                self.metrics.address_unknown();
            }
            return self.step(Event::Unreachable(member.id));
        };
        let (own, limits) = (self.settings.instance.clone(), self.settings.documents);
        // APIServices belong to the cluster: any one server knows them all.
        let with_extensions = self.settings.local.as_ref().is_none_or(|local| *local == member.id);
        self.fetches.spawn(async move {
            // The local server of an embedder runs in this process: its panic is a failed fetch.
            let (id, own) = (&member.id, own.as_ref());
            let fetching = fetch(&ask, id, &known, &scope, with_extensions, &limits, own);
            let fetched = AssertUnwindSafe(fetching).catch_unwind().await;
            let panicked = |_| Fetched::failed(&known, "the server panicked");
            (ticket, fetched.unwrap_or_else(panicked))
        });
    }

    /// Passes every fetch that has ended to the roster. Fetches start together, so many end
    /// together: one snapshot shows them all.
    fn end_fetches(&mut self, first: Result<(Ticket, Fetched), JoinError>) {
        let mut next = Some(first);
        while let Some(joined) = next {
            next = self.fetches.try_join_next();
            let Ok((ticket, mut fetched)) = joined else { continue };
            let found = std::mem::replace(&mut fetched.extensions, Found::Nothing);
            self.extensions.apply(found, fetched.error().is_none());
            self.step(Event::Fetched { ticket, fetched: Box::new(fetched) });
        }
    }

    fn publish(&mut self) {
        self.step(Event::Recorded(self.storage_versions.by_server()));
        let now = self.clock.now();
        let mut inputs = inputs(&self.roster, &self.settings, &self.extensions, self.started, now);
        let is_starting = now.since(self.started) < self.settings.policy.startup;
        if is_starting && self.storage_versions.are_awaited(&self.roster) {
            inputs.members_known = false;
        }
        let previous = self.writer.current();
        self.writer.publish(Snapshot::build(inputs, Some(&previous)));
        drop(previous);
        self.metrics.observe_snapshot(&self.writer.current(), self.clock.now());
        // Last: requests with an older snapshot may still use a forgotten member.
        for id in self.forgotten.drain(..) {
            self.reach.forget(&id);
            self.metrics.forget(&id);
            self.writer.note(id, None);
        }
    }

    /// Starts a fetch of StorageVersions if one is due. Returns how long the loop may sleep.
    fn ask_storage_versions(&mut self) -> Duration {
        let now = self.clock.now();
        let again = self.storage_versions.ask(&self.writer.current(), &self.reach, now);
        let next = [self.roster.next_due(), again].into_iter().flatten().min();
        let sleep = next.map_or(self.settings.interval, |due| due.since(self.clock.now()));
        sleep.max(MIN_SLEEP)
    }
}

/// What a snapshot is built from.
pub(super) fn inputs(
    roster: &RosterState,
    settings: &ControlSettings,
    extensions: &Extensions,
    started: Timestamp,
    now: Timestamp,
) -> Inputs {
    Inputs {
        members: roster.members().cloned().collect(),
        members_known: roster.is_complete(),
        local: settings.local.clone(),
        extension_versions: extensions.versions(),
        started,
        now,
        policy: settings.policy,
    }
}
