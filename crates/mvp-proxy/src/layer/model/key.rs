//! What a world is recognised by: worlds with the same key behave alike. Times count only by the
//! comparisons that rules make: their order relative to what happened to the requests, and how old
//! they are. Entry item: [`key`].

use std::hash::{DefaultHasher, Hash, Hasher};

use mvp_core::decide::Summary;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, Seen};
use mvp_core::{Snapshot, Timestamp};

use super::cluster::{Version, index};
use super::control::STARTED;
use super::outcome::Made;
use super::request::{Phase, Request};
use super::world::{Slot, World};

/// The key of a world.
pub(super) fn key(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    let times = Times { now: world.now, marks: marks(world) };
    control(world, &times, &mut hasher);
    world.faults.hash(&mut hasher);
    for slot in &world.slots {
        match slot {
            Slot::Awaited => 0u8.hash(&mut hasher),
            Slot::Gone => 1u8.hash(&mut hasher),
            Slot::Here(request) => self::request(request, &mut hasher),
        }
    }
    hasher.finish()
}

/// The key of a world without its requests and without the count of faults.
pub(super) fn control_key(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    control(world, &Times { now: world.now, marks: Vec::new() }, &mut hasher);
    hasher.finish()
}

/// Times reduced to what comparisons depend on.
struct Times {
    now: Timestamp,
    /// The moments that requests compare other times with.
    marks: Vec<Timestamp>,
}

impl Times {
    /// Whole units of 20 s: steps take less than 5 s together, and jumps are multiples of a minute.
    fn age(&self, time: Timestamp) -> u64 {
        (self.now.since(time).as_secs() / 20).min(100)
    }

    fn of(&self, time: Timestamp) -> (usize, u64) {
        (self.marks.iter().filter(|mark| **mark <= time).count(), self.age(time))
    }

    fn seen(&self, seen: &Option<Seen>) -> Option<(Version, usize, u64)> {
        let seen = seen.as_ref()?;
        let (order, age) = self.of(seen.confirmed);
        Some((Version::of(&seen.list), order, age))
    }
}

/// When the requests that are here arrived and were denied.
fn marks(world: &World) -> Vec<Timestamp> {
    let here = world.slots.iter().filter_map(|slot| match slot {
        Slot::Here(request) => Some(request),
        Slot::Awaited | Slot::Gone => None,
    });
    here.flat_map(|request| marks_of(request)).collect()
}

fn marks_of(request: &Request) -> impl Iterator<Item = Timestamp> {
    let denials = request.rounds.iter().filter(|round| matches!(round.made, Made::NotFound { .. }));
    std::iter::once(request.arrived).chain(denials.map(|round| round.at))
}

fn control(world: &World, times: &Times, hasher: &mut DefaultHasher) {
    world.servers.hash(hasher);
    (world.complete, world.health as u8, times.age(STARTED)).hash(hasher);
    world.heard.map(|heard| times.age(heard)).hash(hasher);
    for facts in world.roster.facts() {
        let left = facts.left.map(|left| times.age(left));
        let running = facts.running.map(|running| times.of(running));
        (index(&facts.member.id), facts.vouched, left, running, facts.contact).hash(hasher);
        member(facts.member, times, hasher);
        (times.age(facts.member.joined), times.age(facts.member.heard)).hash(hasher);
    }
    let (spent, updated) = world.roster.wait_spent();
    (spent.as_secs() / 20, times.age(updated)).hash(hasher);
    world.fetches.each_ref().map(|fetch| fetch.as_ref().map(|fetch| fetch.seen)).hash(hasher);
}

fn member(member: &Member, times: &Times, hasher: &mut DefaultHasher) {
    (member.presence as u8, member.awaited, member.view.release).hash(hasher);
    (times.seen(&member.view.api), times.seen(&member.view.apis)).hash(hasher);
}

fn request(request: &Request, hasher: &mut DefaultHasher) {
    let Request { ask, insists, rounds, failures, processed, throughout, remembered, .. } = request;
    (request.promised, &request.lost, request.disturbed).hash(hasher);
    (ask.name, insists, processed, throughout, remembered).hash(hasher);
    for round in rounds {
        round.hash_into(hasher);
    }
    failures.iter().for_each(|stage| (*stage as u8).hash(hasher));
    match request.phase {
        Phase::Arrived | Phase::Done(_) => {}
        Phase::Choosing { summary, sending } => (1u8, brief(summary), sending).hash(hasher),
        Phase::Sent { summary, to, seen, sending } => {
            (2u8, brief(summary), to, seen, sending).hash(hasher);
        }
        Phase::Refreshing { health } => (3u8, health as u8).hash(hasher),
    }
    snapshot(request, &request.snapshot, hasher);
}

/// The snapshot that a request holds, as far as its decisions depend on it.
fn snapshot(request: &Request, snapshot: &Snapshot, hasher: &mut DefaultHasher) {
    let times = Times { now: snapshot.built(), marks: marks_of(request).collect() };
    snapshot.members().for_each(|known| member(known, &times, hasher));
    let unconfirmed = snapshot.unconfirmed(Part::Apis, request.arrived);
    unconfirmed.for_each(|member| index(&member.id).hash(hasher));
    (snapshot.awaits_members(), snapshot.is_incomplete_start(Part::Apis)).hash(hasher);
}

/// A summary that can be hashed.
pub(super) fn brief(summary: Summary) -> impl Hash {
    let Summary { action, on_not_found, reason, listed } = summary;
    (action as u8, on_not_found as u8, reason, listed)
}
