//! The control loop of the model, around the shipped roster, and what surrounds a request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::decide::LocalHealth;
use mvp_core::member::MemberKind;
use mvp_core::recorded::Recorded;
use mvp_core::{Snapshot, Timestamp};

use super::cluster::{A, B, IDS, Life, Version, index};
use super::invariants::{Violation, check_end};
use super::request::{Gateway, Phase, Request};
use super::rules::Rules;
use super::world::{Fetch, Setup, Slot, World};
use crate::control::model::{
    ControlSettings, Effect, Event, Fetched, Found, OpenApiOutcome, Outcome, RosterState, inputs,
};
use crate::control::{MemberName, MemberRecord, Roster, Who};

/// The time between two steps. All that happens between two jumps takes less than
/// `Policy::fresh_for`.
pub(super) const STEP: Duration = Duration::from_millis(60);

/// How often members send a heartbeat while minutes pass.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// When the gateway under test started: with its clock, from which the roster counts.
pub(super) const STARTED: Timestamp = Timestamp::after_start(Duration::ZERO);

type Notes<'a> = Option<&'a RefCell<Vec<String>>>;

impl World {
    /// Passes an event to the roster, and carries out its effects.
    pub(super) fn step_roster(&mut self, event: Event) {
        for effect in Arc::make_mut(&mut self.roster).step(event, self.now) {
            let Effect::Fetch(request) = effect else { continue };
            let member = index(&request.member.id);
            let seen = self.servers[member].life.bits();
            self.fetches[member] =
                Some(Fetch { ticket: request.ticket, known: request.known, seen });
        }
    }

    /// Reads the members: those that are not down send heartbeats.
    fn list(&mut self) {
        for (server, heard) in self.servers.iter().zip(&mut self.heard) {
            if !matches!(server.life, Life::Down(_)) {
                *heard = self.now;
            }
        }
        let members = if self.complete { self.records() } else { Vec::new() };
        self.step_roster(Event::Listed(Roster { members, complete: self.complete }));
    }

    /// Reads the members, and publishes a snapshot, as each round of the control loop does.
    pub(super) fn publish(&mut self, notes: Notes<'_>) -> Result<(), Violation> {
        self.list();
        self.step_roster(Event::Recorded(Arc::new(self.recorded())));
        let settings = settings(&self.setup, self.rules);
        let from = inputs(&self.roster, &settings, STARTED, self.now);
        self.published = Arc::new(Snapshot::build(from, Some(&self.published)));
        for slot in 0..self.slots.len() {
            let Slot::Here(request) = &self.slots[slot] else { continue };
            if !matches!(request.phase, Phase::Refreshing { .. }) {
                continue;
            }
            self.with_request(slot, notes, |request, gateway| request.published(gateway))?;
        }
        Ok(())
    }

    /// What the sources say of the members: they have heartbeats.
    fn records(&self) -> Vec<MemberRecord> {
        let named =
            (0..IDS.len()).filter(|member| self.servers[*member].named && !self.is_local(*member));
        let record = |member: usize| MemberRecord {
            name: MemberName::Id(IDS[member].into()),
            address: Some(format!("{}:1", IDS[member]).into()),
            kind: if self.has_gateway(member) { MemberKind::Mvp } else { MemberKind::Bare },
            heard: Some(self.heard[member]),
        };
        named.map(record).collect()
    }

    fn recorded(&self) -> BTreeMap<String, Arc<Recorded>> {
        let mut recorded = BTreeMap::new();
        if let Some((member, true)) = self.setup.mute {
            let group = self.setup.versions[member].own_group();
            let things = (group.to_owned(), "v1".to_owned(), "things".to_owned());
            recorded.insert(IDS[member].to_owned(), Arc::new(Recorded::from_iter([things])));
        }
        recorded
    }

    /// Ends a fetch, with the document of this version or without an answer.
    pub(super) fn end_fetch(&mut self, member: usize, version: Option<Version>) {
        let Some(Fetch { ticket, known, .. }) = self.fetches[member].take() else { return };
        let fetched = match version {
            None => Fetched::failed(&known, "lost"),
            Some(version) => self.fetched(member, version),
        };
        self.step_roster(Event::Fetched { ticket, fetched: Box::new(fetched) });
    }

    fn fetched(&self, member: usize, version: Version) -> Fetched {
        let list = |list| Outcome::Changed { list, etag: None, complaints: Vec::new() };
        let id: Arc<str> = IDS[member].into();
        let who = match self.has_gateway(member) {
            true => Who::Gateway { id: Arc::clone(&id), instance: id },
            false => Who::Server,
        };
        Fetched {
            parts: [list(Arc::default()), list(version.document())],
            openapi: OpenApiOutcome::None,
            release: version.release(),
            extensions: Found::Nothing,
            who: Some(who),
            refused: None,
        }
    }

    /// Lets time pass. Fetches meanwhile tell the gateway how everything is at its end.
    pub(super) fn pass(&mut self, seconds: u64, notes: Notes<'_>) -> Result<(), Violation> {
        (0..IDS.len()).for_each(|member| self.end_fetch(member, None));
        for _ in 0..seconds / HEARTBEAT.as_secs() {
            self.now = self.now.after(HEARTBEAT);
            self.list();
        }
        self.publish(notes)?;
        self.step_roster(Event::Tick);
        for member in 0..IDS.len() {
            let is_mute = self.setup.mute.is_some_and(|(mute, _)| mute == member);
            let version = match self.servers[member].life {
                Life::Up(version) if !is_mute => Some(version),
                _ => None,
            };
            self.end_fetch(member, version);
        }
        if self.setup.local {
            self.health = health_of(self.servers[A].life);
        }
        self.publish(notes)
    }

    /// Does something with a request that is here, and checks it if it has ended.
    pub(super) fn with_request(
        &mut self,
        slot: usize,
        notes: Notes<'_>,
        act: impl FnOnce(&mut Request, &Gateway<'_>) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let Slot::Here(request) = &mut self.slots[slot] else { return Ok(()) };
        let mut request = Request::clone(request);
        let published = Arc::clone(&self.published);
        let gateway = Gateway {
            rules: self.rules,
            now: self.now,
            local: self.setup.local.then_some(A),
            health: Cell::new(self.health),
            published: &published,
            notes,
        };
        act(&mut request, &gateway)?;
        self.health = gateway.health.get();
        if let Phase::Sent { to, seen, .. } = &mut request.phase
            && seen.is_empty()
        {
            *seen = self.servers[*to].life.bits();
        }
        match request.end() {
            Some(end) => {
                gateway.note(|| {
                    format!("ends with {} by {:?} ({})", end.status, end.by, end.reason.as_str())
                });
                self.last = Some(end);
                self.slots[slot] = Slot::Gone;
                check_end(self, &request, end)
            }
            None => {
                self.slots[slot] = Slot::Here(Arc::new(request));
                Ok(())
            }
        }
    }

    pub(super) fn has_gateway(&self, member: usize) -> bool {
        self.setup.local && member == B
    }
}

pub(super) fn health_of(life: Life) -> LocalHealth {
    match life {
        Life::Up(_) => LocalHealth::Ready,
        Life::Starting(_) => LocalHealth::Unready,
        Life::Down(_) => LocalHealth::Unreachable,
    }
}

pub(super) fn settings(setup: &Setup, rules: Rules) -> ControlSettings {
    ControlSettings {
        local: setup.local.then(|| IDS[A].into()),
        // Every member is always due.
        interval: Duration::ZERO,
        forget_after: rules.forget_after(),
        ..ControlSettings::default()
    }
}

/// The world before anything happened.
pub(super) fn first_world(setup: &Arc<Setup>, rules: Rules) -> World {
    let roster = RosterState::new(&settings(setup, rules), STARTED);
    let from = inputs(&roster, &settings(setup, rules), STARTED, STARTED);
    let snapshot = Snapshot::build(from, None);
    let mut world = World::of(setup, rules, roster, snapshot);
    world.publish(None).expect("no request is there");
    if setup.settled {
        world.pass(60, None).expect("no request is there");
    }
    if let Some(member) = setup.away {
        world.servers[member].life = Life::Down(setup.versions[member]);
        world.pass(360, None).expect("no request is there");
    }
    world
}
