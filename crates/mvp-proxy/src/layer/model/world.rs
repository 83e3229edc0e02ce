//! The world of the model: the servers, one gateway with its roster, and the requests at it. Entry
//! item: [`World::apply`].

use std::cell::RefCell;
use std::sync::Arc;

use mvp_core::decide::{LocalHealth, Origin};
use mvp_core::{Snapshot, Timestamp};

use super::bits::Bits;
use super::cluster::{A, About, Ask, DOWN, IDS, Life, STARTING, Version, named};
use super::control::{STARTED, STEP, health_of};
use super::invariants::Violation;
use super::outcome::{Came, End, Failure};
use super::request::{Phase, Request};
use super::rules::Rules;
use crate::control::model::{Event, Known, RosterState, Ticket};

/// How a world begins, and what may happen in it.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) versions: [Version; 3],
    /// Whether the first member is the local server.
    pub(super) local: bool,
    /// Whether every view was fetched before. Else the gateway has just started.
    pub(super) settled: bool,
    /// A member that answers no fetch, and whether StorageVersions record what it serves.
    pub(super) mute: Option<(usize, bool)>,
    /// A member that has been down for 6 minutes, and that the sources still name. It may return
    /// with another version, which is no fault.
    pub(super) away: Option<usize>,
    /// Seconds that may pass at once.
    pub(super) jumps: &'static [u64],
    pub(super) asks: &'static [&'static str],
    /// How many faults there may be.
    pub(super) faults: u8,
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The control loop starts the fetches that are due.
    Tick,
    /// A fetch ends with the document of this version.
    Fetched(usize, Version),
    /// A fetch ends without an answer.
    FetchLost(usize),
    /// A server changes its version.
    Change(usize),
    Crash(usize),
    /// A server that is down starts.
    Start(usize, Version),
    /// The local server has read its rules.
    Ready,
    /// The sources no longer name a member that is down.
    Unlist(usize),
    /// The sources have named all members.
    Complete,
    /// The probe finds out how the local server is.
    Probe,
    /// Seconds pass.
    Pass(u64),
    Arrive(usize),
    /// A request is sent to a member.
    Send(usize, usize),
    /// A request comes back.
    Came(usize, Came),
    /// The time to wait for fresh views is over.
    WaitOver(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) life: Life,
    pub(super) named: bool,
    /// The versions that it has had.
    pub(super) had: Bits,
}

/// A fetch that is running.
#[derive(Debug, Clone)]
pub(super) struct Fetch {
    pub(super) ticket: Ticket,
    pub(super) known: Known,
    /// The states of the server since it began.
    pub(super) seen: Bits,
}

/// A request of the setup.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    Awaited,
    Here(Arc<Request>),
    Gone,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) setup: Arc<Setup>,
    pub(super) rules: Rules,
    pub(super) now: Timestamp,
    pub(super) servers: [Server; 3],
    pub(super) heard: [Timestamp; 3],
    pub(super) complete: bool,
    pub(super) roster: Arc<RosterState>,
    pub(super) published: Arc<Snapshot>,
    pub(super) fetches: [Option<Fetch>; 3],
    pub(super) health: LocalHealth,
    pub(super) slots: Vec<Slot>,
    pub(super) faults: u8,
    /// How the last request ended.
    pub(super) last: Option<End>,
}

type Stepped = Result<(), Violation>;

impl World {
    /// A world in which nothing has happened yet.
    pub(super) fn of(
        setup: &Arc<Setup>,
        rules: Rules,
        roster: RosterState,
        published: Snapshot,
    ) -> World {
        let server =
            |version: Version| Server { life: Life::Up(version), named: true, had: version.bits() };
        World {
            setup: Arc::clone(setup),
            rules,
            now: STARTED,
            servers: setup.versions.map(server),
            heard: [STARTED; 3],
            complete: setup.settled,
            published: Arc::new(published),
            roster: Arc::new(roster),
            fetches: [None, None, None],
            health: LocalHealth::Ready,
            slots: setup.asks.iter().map(|_| Slot::Awaited).collect(),
            faults: 0,
            last: None,
        }
    }

    pub(super) fn is_local(&self, member: usize) -> bool {
        self.setup.local && member == A
    }

    /// Whether a step is one of the faults that are counted.
    fn is_fault(&self, step: Step) -> bool {
        match step {
            Step::Change(_) | Step::Crash(_) | Step::Pass(_) => true,
            Step::Start(member, version) => {
                let is_change = version != self.servers[member].life.version();
                is_change && self.setup.away != Some(member)
            }
            Step::FetchLost(member) => {
                let is_mute = self.setup.mute.is_some_and(|(mute, _)| mute == member);
                let seen = self.fetches[member].as_ref().map_or(DOWN, |fetch| fetch.seen);
                !is_mute && !seen.meets(DOWN.with(STARTING))
            }
            Step::Came(slot, Came::Failed { stage: Failure::Exchange, .. }) => {
                let Slot::Here(request) = &self.slots[slot] else { return false };
                matches!(request.phase, Phase::Sent { seen, .. } if !seen.meets(DOWN))
            }
            _ => false,
        }
    }

    /// The world after a step.
    pub(super) fn apply(
        &self,
        step: Step,
        notes: Option<&RefCell<Vec<String>>>,
    ) -> Result<World, Violation> {
        let mut world = self.clone();
        world.now = world.now.after(STEP);
        let is_fault = world.is_fault(step);
        world.faults += u8::from(is_fault);
        match step {
            Step::Tick => {
                // A request that waits has asked for this round.
                world.step_roster(Event::RefreshWanted);
                world.step_roster(Event::Tick);
                world.publish(notes)?;
            }
            Step::Fetched(member, version) => {
                world.end_fetch(member, Some(version));
                world.publish(notes)?;
            }
            Step::FetchLost(member) => {
                world.end_fetch(member, None);
                world.disturb();
                world.publish(notes)?;
            }
            Step::Change(member) => {
                let version = world.servers[member].life.version().other();
                world.turn(member, Life::Up(version));
            }
            Step::Crash(member) => {
                let version = world.servers[member].life.version();
                world.turn(member, Life::Down(version));
            }
            Step::Start(member, version) => {
                let local = world.is_local(member);
                let life = if local { Life::Starting(version) } else { Life::Up(version) };
                world.servers[member].named = true;
                world.turn(member, life);
                world.publish(notes)?;
            }
            Step::Ready => {
                let version = world.servers[A].life.version();
                world.turn(A, Life::Up(version));
            }
            Step::Unlist(member) => {
                world.servers[member].named = false;
                world.disturb();
                world.publish(notes)?;
            }
            Step::Complete => {
                world.complete = true;
                world.publish(notes)?;
            }
            Step::Probe => world.health = health_of(world.servers[A].life),
            Step::Pass(seconds) => world.pass(seconds, notes)?,
            Step::Arrive(slot) => world.arrive(slot, named(world.setup.asks[slot]), notes)?,
            Step::Send(slot, member) => {
                world
                    .with_request(slot, notes, |request, gateway| request.send(gateway, member))?;
            }
            Step::Came(slot, came) => {
                let failed =
                    !matches!(came, Came::Reply(_) | Came::Failed { stage: Failure::Connect, .. });
                world.with_request(slot, notes, |request, gateway| {
                    request.disturbed |= failed;
                    request.answered(gateway, came)
                })?;
            }
            Step::WaitOver(slot) => {
                world.with_request(slot, notes, |request, gateway| {
                    request.disturbed = true;
                    request.refreshed(gateway)
                })?;
            }
        }
        Ok(world)
    }

    pub(super) fn arrive(
        &mut self,
        slot: usize,
        ask: &'static Ask,
        notes: Option<&RefCell<Vec<String>>>,
    ) -> Stepped {
        let mut request = Request::new(ask, ask.origin, self.now, &self.published);
        request.throughout = self.serving(ask);
        request.remembered = self.remembered(ask);
        request.promised = self.promised(ask);
        request.disturbed = !self.is_calm(ask);
        self.slots[slot] = Slot::Here(Arc::new(request));
        self.with_request(slot, notes, |request, gateway| request.decide(gateway))
    }

    /// The members that serve a request now.
    pub(super) fn serving(&self, ask: &Ask) -> Bits {
        (0..IDS.len()).filter(|member| ask.has(self.servers[*member].life)).collect()
    }

    /// The members that are down, and that the gateway saw serve a request.
    fn remembered(&self, ask: &Ask) -> Bits {
        let is_remembered = |member: &usize| {
            let Server { life, had, .. } = self.servers[*member];
            let version = life.version();
            matches!(life, Life::Down(_)) && ask.has(Life::Up(version)) && had == version.bits()
        };
        // It is forgotten in time, and was not seen before the gateway started.
        let lasting =
            self.setup.settled && self.setup.jumps.is_empty() && self.setup.away.is_none();
        (0..IDS.len()).filter(is_remembered).filter(|_| lasting).collect()
    }

    /// The version of a member, by what the gateway knows.
    fn known(&self, member: usize) -> Option<Version> {
        let known = self.published.member_by_id(IDS[member])?;
        Some(Version::of(&known.view.apis.as_ref()?.list))
    }

    /// The live members that serve a request, and that the gateway may and can send it to: it knows
    /// that they serve it.
    fn promised(&self, ask: &Ask) -> Bits {
        let local = self.known(A).filter(|_| self.setup.local);
        let is_promised = |member: &usize| {
            let Server { life: Life::Up(version), named: true, had } = self.servers[*member] else {
                return false;
            };
            let is_known = self.known(*member) == Some(version) && had == version.bits();
            let may_get_it = match self.is_local(*member) {
                true => self.health == LocalHealth::Ready,
                // An older server would erase fields.
                false => {
                    let lists = |local: &Version| ask.has(Life::Up(*local));
                    let is_older = match local {
                        Some(local) => Some(local).filter(lists) > Some(version),
                        None => self.setup.local,
                    };
                    ask.origin == Origin::Client && !(ask.is_write && is_older)
                }
            };
            ask.is_served_by(Life::Up(version)) && is_known && may_get_it
        };
        let is_resource = matches!(ask.about, About::Resource(_));
        (0..IDS.len()).filter(is_promised).filter(|_| is_resource).collect()
    }

    /// Whether the gateway has no reason to refuse this request: everything is well, and it knows
    /// that; or only its own server is not, and another one serves the request.
    fn is_calm(&self, ask: &Ask) -> bool {
        let is_well = |member: usize| {
            let server = self.servers[member];
            // A gateway whose server has changed may have an old view of it.
            let is_known = !self.has_gateway(member) || server.had == server.life.version().bits();
            server.named && Some(server.life) == self.known(member).map(Life::Up) && is_known
        };
        let (first, others) = (usize::from(self.setup.local), 1..IDS.len());
        let replaces_local = |member: usize| {
            let version = self.servers[member].life.version();
            let is_older = self.known(A).is_none_or(|local| local > version);
            ask.is_served_by(self.servers[member].life) && !(ask.is_write && is_older)
        };
        let is_resource = matches!(ask.about, About::Resource(_));
        self.complete
            && (first..IDS.len()).all(is_well)
            && (first == 0
                || (is_well(A) && self.health == LocalHealth::Ready)
                || (is_resource && { others }.any(replaces_local)))
    }

    /// A server changes: requests and fetches on their way meet both states.
    fn turn(&mut self, member: usize, life: Life) {
        let server = &mut self.servers[member];
        server.life = life;
        if let Life::Up(version) = life {
            server.had = server.had.with(version.bits());
        }
        if let Some(fetch) = &mut self.fetches[member] {
            fetch.seen = fetch.seen.with(life.bits());
        }
        for slot in &mut self.slots {
            let Slot::Here(request) = slot else { continue };
            let request = Arc::make_mut(request);
            if let Phase::Sent { to, seen, .. } = &mut request.phase
                && *to == member
            {
                *seen = seen.with(life.bits());
            }
            if !request.ask.has(life) {
                request.throughout = request.throughout.without(member);
                request.promised = request.promised.without(member);
            }
            if !matches!(life, Life::Down(_)) {
                request.remembered = request.remembered.without(member);
            }
        }
        self.disturb();
    }

    fn disturb(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Here(request) = slot {
                Arc::make_mut(request).disturbed = true;
            }
        }
    }
}
