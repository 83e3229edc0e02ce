//! The roster driven by events, second by second, without a runtime.

mod reports;
mod table;
mod times;

use std::slice;

use mvp_core::Snapshot;
use mvp_core::member::{MemberKind, Presence};
use mvp_core::snapshot::{Inputs, Policy};

use super::super::extensions::Found;
use super::super::fetch::{OpenApiOutcome, Outcome};
use super::super::membership::MemberName;
use super::*;
use crate::gateway::Who;

const FORGET_AFTER: Duration = Duration::from_secs(600);

fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

fn state() -> RosterState {
    remembering(FORGET_AFTER)
}

fn remembering(forget_after: Duration) -> RosterState {
    let local = Some("own".into());
    let settings = ControlSettings { local, forget_after, ..ControlSettings::default() };
    RosterState::new(&settings, at(0))
}

fn record(address: &str, heard: Option<u64>) -> MemberRecord {
    named("b", address, heard)
}

fn named(name: &str, address: &str, heard: Option<u64>) -> MemberRecord {
    let (name, address) = (MemberName::parse(name), Some(address.into()));
    MemberRecord { name, address, kind: MemberKind::Mvp, heard: heard.map(at) }
}

/// Lists the members. Returns how many were forgotten.
fn list(state: &mut RosterState, records: &[MemberRecord], now: u64) -> usize {
    let effects = state.step(Event::Listed(Roster::complete(records.to_vec())), at(now));
    effects.iter().filter(|effect| matches!(effect, Effect::Forget(_))).count()
}

fn forget(state: &mut RosterState, id: &str) -> bool {
    !state.step(Event::Forget(id.into()), at(0)).is_empty()
}

/// The result of a fetch in which both documents came.
fn documents(who: &Who) -> Fetched {
    let document = || Outcome::Changed { list: Arc::default(), etag: None, complaints: Vec::new() };
    let (parts, openapi) = ([document(), document()], OpenApiOutcome::None);
    let (extensions, who) = (Found::Nothing, Some(who.clone()));
    Fetched { parts, openapi, release: None, extensions, who, refused: None }
}

/// The result of a fetch in which no document came, although somebody answered.
fn failure(who: Option<&Who>) -> Fetched {
    Fetched { who: who.cloned(), ..Fetched::failed(&Known::default(), "refused") }
}

/// Fetches from one member, with this result. Returns the effects.
fn fetch(state: &mut RosterState, id: &str, result: Fetched, now: u64) -> Vec<Effect> {
    state.step(Event::RefreshWanted, at(now));
    let effects = state.step(Event::Tick, at(now));
    let mut ticket = None;
    for effect in effects {
        let Effect::Fetch(request) = effect else { continue };
        match &*request.member.id == id {
            true => ticket = Some(request.ticket),
            false => drop(state.step(Event::Unreachable(request.member.id), at(now))),
        }
    }
    let ticket = ticket.unwrap_or_else(|| panic!("{id} is not fetched from"));
    state.step(Event::Fetched { ticket, fetched: Box::new(result) }, at(now))
}

fn answers(state: &mut RosterState, id: &str, who: &Who, now: u64) {
    fetch(state, id, documents(who), now);
}

fn gateway(instance: &str) -> Who {
    Who::Gateway { id: "b".into(), instance: instance.into() }
}

fn tracked<'a>(state: &'a RosterState, id: &str) -> &'a Member {
    state.members().find(|member| &*member.id == id).unwrap()
}

/// The presence of `b`, and whether any member blocks 404s.
fn shown(state: &RosterState, now: u64) -> Option<(Presence, bool)> {
    let member = state.members().find(|member| &*member.id == "b")?;
    Some((member.presence, blocks(state, now)))
}

/// Whether any member blocks 404s.
fn blocks(state: &RosterState, now: u64) -> bool {
    snapshot(state, now).blocking(Part::Apis).next().is_some()
}

fn snapshot(state: &RosterState, now: u64) -> Snapshot {
    let inputs = Inputs {
        members_known: true,
        members: state.members().cloned().collect(),
        local: Some("own".into()),
        extension_versions: Arc::default(),
        started: at(0),
        now: at(now),
        policy: Policy::default(),
    };
    Snapshot::build(inputs, None)
}

/// It is claimed to be a member and never answers: it cannot wedge a cluster.
#[test]
fn a_member_that_never_answers_blocks_404s_while_it_has_heartbeats_and_for_300_s_at_most() {
    let (mut silent, mut beating) = (state(), state());
    for now in 0..900 {
        list(&mut silent, &[record("a:1", Some(0))], now);
        list(&mut beating, &[record("a:1", Some(now))], now);
        if now < FORGET_AFTER.as_secs() {
            assert_eq!(shown(&silent, now), Some((Presence::Present, now <= 40)), "{now}");
        } else {
            assert_eq!(shown(&silent, now), None, "{now}: it is forgotten");
        }
        assert_eq!(shown(&beating, now), Some((Presence::Present, now < 300)), "{now}");
    }
}

/// A source may name a dead member for hours.
#[test]
fn a_silent_member_is_forgotten_unless_it_answers() {
    let mut state = state();
    list(&mut state, &[record("a:1", Some(0))], 0);
    answers(&mut state, "b", &gateway("1"), 300);
    assert_eq!(list(&mut state, &[record("a:1", Some(0))], 899), 0);
    assert_eq!(list(&mut state, &[record("a:1", Some(0))], 900), 1);
    assert_eq!(list(&mut state, &[record("a:1", Some(0))], 901), 0, "it stays forgotten");
    assert_eq!(shown(&state, 901), None);
    list(&mut state, &[record("a:1", Some(902))], 902);
    assert_eq!(shown(&state, 902), Some((Presence::Present, true)), "until its next heartbeat");
}

#[test]
fn a_member_that_left_is_remembered_until_it_expires_or_is_forgotten() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    assert!(!forget(&mut state, "b"), "it is present");
    answers(&mut state, "b", &Who::Server, 0);
    list(&mut state, &[], 10);
    assert_eq!(shown(&state, 10), Some((Presence::Left, false)));
    assert_eq!(list(&mut state, &[], 609), 0);
    // It comes back at another address.
    list(&mut state, &[record("a:2", None)], 609);
    assert_eq!(tracked(&state, "b").address.as_deref(), Some("a:2"));
    list(&mut state, &[], 620);
    assert!(forget(&mut state, "b") && !forget(&mut state, "b") && !forget(&mut state, "own"));
    list(&mut state, &[record("a:2", None)], 630);
    answers(&mut state, "b", &Who::Server, 630);
    list(&mut state, &[], 640);
    assert_eq!(list(&mut state, &[], 1239), 1, "what it served at a:1");
    assert_eq!(list(&mut state, &[], 1240), 1);
    // What is recorded about a member that was never seen is remembered, too.
    list(&mut state, &[record("a:2", None)], 1250);
    let recorded = BTreeMap::from([("b".to_owned(), Arc::default())]);
    state.step(Event::Recorded(Arc::new(recorded)), at(1250));
    assert_eq!(list(&mut state, &[], 1260), 0);
    assert_eq!(list(&mut state, &[], 1859), 0);
    assert_eq!(list(&mut state, &[], 1860), 1);
    // A member that was never seen leaves nothing to remember.
    list(&mut state, &[record("a:2", None)], 1870);
    assert_eq!(list(&mut state, &[], 1871), 1);
}

/// Its name, its address, or both may change. It is remembered only while it is not present.
#[test]
fn a_member_with_another_name_did_not_leave() {
    let at_1 = || named("b", "a:1", None);
    let at_2 = |name: &str| named(name, "a:2", None);
    for (before, after, who, is_recognised) in [
        // At the same address.
        (gateway("1"), at_1(), None, true),
        (Who::Server, at_1(), None, true),
        // The same process, at another address.
        (gateway("1"), at_2("b"), Some(gateway("1")), true),
        (gateway("1"), at_2("b"), Some(gateway("2")), false),
        (gateway("1"), at_2("b"), Some(Who::Server), false),
        // Its gateway.
        (Who::Server, at_2("b"), Some(gateway("1")), true),
        (Who::Server, at_2("b"), Some(Who::Server), false),
        (Who::Server, at_2("b"), None, false),
        (Who::Server, at_2("c"), Some(gateway("1")), false),
    ] {
        let mut state = state();
        list(&mut state, &[named("b@a:1", "a:1", None)], 0);
        answers(&mut state, "b@a:1", &before, 0);
        let forgotten = list(&mut state, slice::from_ref(&after), 1);
        if who.is_none() && is_recognised {
            assert_eq!(forgotten, 1, "its view is taken over: {after:?}");
            assert!(tracked(&state, "b").view.apis.is_some());
            continue;
        }
        assert_eq!(forgotten, 0, "nobody has answered yet");
        if let Some(who) = &who {
            answers(&mut state, &after.name.label(), who, 1);
        }
        let forgotten = list(&mut state, slice::from_ref(&after), 2);
        assert_eq!(forgotten, usize::from(is_recognised), "{after:?} {who:?}");
    }
}

/// It was away, and may serve something new.
#[test]
fn a_member_that_returns_blocks_404s_again_within_the_wait_budget() {
    let mut state = state();
    let mut blocked = 0;
    for now in 0..4000 {
        // Its Lease is created again and again, and it never answers again.
        let is_listed = now < 10 || now % 600 >= 400;
        let records = [record("a:1", Some(now))];
        list(&mut state, if is_listed { &records } else { &[] }, now);
        answers(&mut state, "own", &Who::Server, now);
        if now < 10 {
            answers(&mut state, "b", &Who::Server, now);
        }
        let blocks = blocks(&state, now);
        assert_eq!(blocks && now < 600, (400..600).contains(&now), "{now}");
        blocked += u64::from(blocks);
    }
    assert!((200..=450).contains(&blocked), "{blocked} s");
}

/// Its gateway is gone and its server lives on.
#[test]
fn the_view_of_a_member_without_an_address_expires() {
    let mut state = state();
    let without = |now| MemberRecord { address: None, ..record("a:1", Some(now)) };
    list(&mut state, &[record("a:1", Some(0))], 0);
    answers(&mut state, "b", &Who::Server, 0);
    list(&mut state, &[without(599)], 599);
    assert!(tracked(&state, "b").view.apis.is_some());
    list(&mut state, &[without(600)], 600);
    assert!(tracked(&state, "b").view.apis.is_none());
}

/// A new member every minute, each with heartbeats and without an answer.
#[test]
fn all_unverified_members_together_block_404s_no_longer_than_one() {
    let mut state = state();
    let mut blocked = Vec::new();
    for now in 0..3600 {
        let forged = named(&format!("forged-{}", now / 60), "a:6", Some(now));
        list(&mut state, &[forged, named("known", "a:2", Some(now))], now);
        answers(&mut state, "own", &Who::Server, now);
        answers(&mut state, "known", &Who::Server, now);
        if blocks(&state, now) {
            blocked.push(now);
        }
    }
    assert_eq!(blocked, (0..300).collect::<Vec<_>>());
    // A member that a source vouches for blocks all the same, and so does one that answered.
    list(&mut state, &[record("a:3", None)], 3600);
    assert!(blocks(&state, 3600));
    list(&mut state, &[], 3601);
    assert!(!blocks(&state, 3601));
    list(&mut state, &[record("a:3", Some(3602))], 3602);
    assert!(!blocks(&state, 3602), "it is unverified");
    fetch(&mut state, "b", failure(Some(&Who::Server)), 3602);
    list(&mut state, &[record("a:3", Some(3603))], 3603);
    assert!(blocks(&state, 3603), "it answers, but not what it serves");
}

#[test]
fn a_view_tells_how_long_its_last_complete_fetch_took() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let fetched_in = |state: &RosterState| tracked(state, "b").view.fetched_in.as_secs();
    let took = |state: &mut RosterState, result: Fetched, begun: u64, seconds: u64| {
        state.step(Event::RefreshWanted, at(begun));
        let effects = state.step(Event::Tick, at(begun));
        let tickets = effects.into_iter().filter_map(|effect| match effect {
            Effect::Fetch(request) if &*request.member.id == "b" => Some(request.ticket),
            _ => None,
        });
        for ticket in tickets {
            let fetched = Box::new(result.clone());
            state.step(Event::Fetched { ticket, fetched }, at(begun + seconds));
        }
    };
    took(&mut state, documents(&Who::Server), 1, 3);
    assert_eq!(fetched_in(&state), 3);
    // How long a member takes to fail does not tell how long it needs.
    took(&mut state, failure(None), 10, 9);
    assert_eq!(fetched_in(&state), 3);
    took(&mut state, documents(&Who::Server), 20, 1);
    assert_eq!(fetched_in(&state), 1);
}

#[test]
fn a_late_heartbeat_does_not_remove_a_member_however_short_the_memory() {
    let mut state = remembering(Duration::ZERO);
    for now in 0..100 {
        list(&mut state, &[record("a:1", Some(now / 5 * 5))], now);
        assert_eq!(shown(&state, now).map(|shown| shown.0), Some(Presence::Present), "{now}");
    }
}

/// Its Lease is made to point at another server while it is down: what only it serves is not gone.
#[test]
fn a_member_that_moved_is_remembered_at_its_former_address_until_its_gateway_answers() {
    let remembered = |state: &RosterState| {
        state.members().any(|member| {
            &*member.id == "b@a:1"
                && member.presence == Presence::Left
                && member.view.apis.is_some()
        })
    };
    for (who, is_it) in [(gateway("2"), true), (Who::Server, false)] {
        let mut state = state();
        list(&mut state, &[record("a:1", None)], 0);
        answers(&mut state, "b", &gateway("1"), 0);
        assert_eq!(list(&mut state, &[record("a:2", None)], 1), 0);
        assert!(remembered(&state), "nobody has answered at a:2 yet");
        answers(&mut state, "b", &who, 1);
        assert_eq!(list(&mut state, &[record("a:2", None)], 2), usize::from(is_it), "{who:?}");
        assert_eq!(remembered(&state), !is_it, "{who:?}");
        list(&mut state, &[record("a:2", None)], 700);
        assert!(!remembered(&state), "it expires");
    }
}

/// Its Lease outlives it, so it never left: found by the model checker (`layer::model`).
#[test]
fn a_member_that_was_silent_for_minutes_blocks_404s_from_its_next_heartbeat_until_it_answers() {
    let mut state = state();
    list(&mut state, &[record("a:1", Some(0))], 0);
    answers(&mut state, "own", &Who::Server, 0);
    answers(&mut state, "b", &Who::Server, 0);
    list(&mut state, &[record("a:1", Some(0))], 360);
    assert_eq!(shown(&state, 360), Some((Presence::Present, false)), "404s no longer wait for it");
    list(&mut state, &[record("a:1", Some(361))], 361);
    assert_eq!(shown(&state, 361), Some((Presence::Present, true)), "it may serve something new");
    answers(&mut state, "b", &Who::Server, 362);
    assert_eq!(shown(&state, 362), Some((Presence::Present, false)));
}
