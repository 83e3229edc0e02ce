//! The worlds that are searched. The tests that are ignored search them with more faults:
//! `MVP_MODEL_FAULTS` gives their number, and `MVP_MODEL_WORLD` the name of a single world.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::cluster::{C, New, Old};
use super::invariants::Invariant::{
    self, Discovery, NoFalse404, NoNeedless503, NoOlderWriter, OneHop, OwnPaths, Remembered,
    WriteOnce,
};
use super::rules::{Rule, Rules};
use super::search::search;
use super::world::Setup;

/// A world in which one server is ahead of the others.
const MIXED: Setup = Setup {
    name: "mixed",
    versions: [Old, New, Old],
    local: true,
    settled: true,
    mute: None,
    away: None,
    jumps: &[],
    asks: &[],
    faults: 1,
};
/// The upgrade has not begun.
const OLD: Setup = Setup { name: "old", versions: [Old, Old, Old], ..MIXED };
/// The local server is ahead.
const AHEAD: Setup = Setup { name: "ahead", versions: [New, Old, Old], ..MIXED };
/// Two peers serve what the local server does not.
const TWO: Setup = Setup { name: "two", versions: [Old, New, New], ..MIXED };
/// The gateway has just started.
const FRESH: Setup = Setup { name: "fresh", settled: false, ..MIXED };
/// A load balancer in front of all servers.
const BALANCER: Setup = Setup { name: "balancer", local: false, ..MIXED };
/// A server whose discovery cannot be fetched, but StorageVersions record what it serves.
const MUTE: Setup = Setup {
    name: "mute",
    versions: [Old, Old, New],
    mute: Some((C, true)),
    jumps: &[60, 360],
    ..MIXED
};
/// A server is away for its upgrade, and its Lease stays.
const AWAY: Setup = Setup { name: "away", away: Some(C), ..OLD };
/// Minutes pass.
const LONG: Setup = Setup { name: "long", jumps: &[60, 360, 720], ..MIXED };

/// The worlds, each with the requests that are searched alone.
const WORLDS: [(Setup, &[&[&str]]); 9] = [
    (
        MIXED,
        &[
            &["read new"],
            &["write new"],
            &["read old"],
            &["write old"],
            &["write shared"],
            &["vague read"],
            &["vague write"],
            &["vague write new"],
            &["clear new"],
            &["discovery"],
            &["own discovery"],
            &["health"],
            &["read new from a peer"],
            &["write new from a peer"],
            &["read new, marked"],
            &["discovery from a peer"],
        ],
    ),
    (OLD, &[&["read new"], &["write new"], &["read new from a peer"]]),
    (AHEAD, &[&["write shared"], &["read old"], &["read new from a peer"]]),
    (TWO, &[&["read new"], &["write new"]]),
    (FRESH, &[&["read new"], &["write new"], &["discovery"], &["health"]]),
    (BALANCER, &[&["read new"], &["write new"], &["health"], &["discovery"]]),
    (MUTE, &[&["read new"], &["write new"]]),
    (AWAY, &[&["read new"]]),
    (LONG, &[&["read new"], &["write shared"]]),
];

/// Searches a world, and prints what the search went through.
fn check(setup: Setup) {
    let (setup, begun) = (Arc::new(setup), Instant::now());
    match search(&setup, Rules::default()) {
        Ok(explored) => println!(
            "{}, {:?}, faults {}: {} states, {} steps, depth {}, {} healed, {:.1?}",
            setup.name,
            setup.asks,
            setup.faults,
            explored.states,
            explored.steps,
            explored.depth,
            explored.healed,
            begun.elapsed(),
        ),
        Err(counterexample) => panic!("{counterexample}"),
    }
}

/// Searches all worlds that are wanted, each with this many faults.
fn check_all(faults: impl Fn(&Setup, &[&str]) -> u8) {
    let wanted = std::env::var("MVP_MODEL_WORLD").ok();
    let is_wanted = |setup: &Setup| wanted.as_ref().is_none_or(|name| name == setup.name);
    for (setup, requests) in WORLDS.into_iter().filter(|(setup, _)| is_wanted(setup)) {
        for asks in requests {
            check(Setup { asks, faults: faults(&setup, asks), ..setup.clone() });
        }
    }
}

fn faults_or(default: u8) -> u8 {
    std::env::var("MVP_MODEL_FAULTS").map_or(default, |faults| faults.parse().expect("a number"))
}

#[test]
fn every_promise_holds() {
    // The worlds in which little is known are larger, and so is a read that every member denies.
    check_all(|setup, asks| {
        let is_large = matches!(setup.name, "fresh" | "balancer" | "away" | "long");
        u8::from(!is_large && asks != ["vague read"])
    });
}

#[test]
fn a_read_and_a_write_at_the_same_time_keep_every_promise() {
    check(Setup { asks: &["read new", "write new"], faults: 0, ..MIXED });
    check(Setup { asks: &["read new", "write old"], faults: 0, ..OLD });
}

#[test]
#[ignore = "minutes: see docs/proof.md"]
fn every_promise_holds_with_more_faults() {
    let faults = faults_or(2);
    check_all(|_, _| faults);
}

#[test]
#[ignore = "minutes: see docs/proof.md"]
fn a_read_and_a_write_at_the_same_time_keep_every_promise_with_faults() {
    let faults = faults_or(1);
    check(Setup { asks: &["read new", "write new"], faults, ..MIXED });
    check(Setup { asks: &["read new", "write old"], faults, ..OLD });
}

/// A check that finds nothing checks nothing: each rule, taken out, is missed.
#[test]
fn each_rule_that_is_taken_out_is_found() {
    let cases: [(Rule, Setup, &[&str], Invariant); 22] = [
        (Rule::MergedDiscovery, MIXED, &["discovery"], Discovery),
        (Rule::DiscoveryWaits, FRESH, &["discovery"], Discovery),
        (Rule::OwnDiscovery, MIXED, &["discovery from a peer"], Discovery),
        (Rule::OwnPaths, MIXED, &["health"], OwnPaths),
        (Rule::ServedLocally, MIXED, &["read old"], NoNeedless503),
        (Rule::ServedByPeer, MIXED, &["read new"], NoFalse404),
        (Rule::OneHop, MIXED, &["read new from a peer"], OneHop),
        (Rule::UnlistedDoubted, OLD, &["read new"], NoFalse404),
        (Rule::ConfirmedSince, OLD, &["read new"], NoFalse404),
        (Rule::UnconfirmedRefused, OLD, &["read new"], NoFalse404),
        (Rule::LocalUnseenRefused, FRESH, &["read new"], NoFalse404),
        (Rule::RecordedRefused, MUTE, &["read new"], NoFalse404),
        (Rule::PeersWhileDown, OLD, &["read old"], NoNeedless503),
        (Rule::NotOlder, AHEAD, &["write shared"], NoOlderWriter),
        (Rule::LocalDenialDoubted, MIXED, &["read old"], NoFalse404),
        (Rule::PeerDenialDoubted, TWO, &["read new"], NoFalse404),
        (Rule::AskAny, BALANCER, &["health"], NoNeedless503),
        (Rule::VerbUnlisted, MIXED, &["clear new"], NoNeedless503),
        (Rule::SentOnce, OLD, &["write shared"], WriteOnce),
        (Rule::VagueProcessed, OLD, &["vague write"], WriteOnce),
        (Rule::ReadRetried, MIXED, &["read old"], NoNeedless503),
        (Rule::Remembered, MIXED, &["read new"], Remembered),
    ];
    assert_eq!(cases.iter().map(|case| case.0).collect::<HashSet<_>>(), Rule::ALL.into());
    let mut missed = Vec::new();
    for (rule, setup, asks, expected) in cases {
        let setup = Arc::new(Setup { asks, ..setup });
        match search(&setup, Rules { without: Some(rule) }) {
            Err(counterexample) => {
                println!("without {rule:?}:\n{counterexample}");
                if counterexample.violation.invariant != expected {
                    missed.push(format!("{rule:?}: {}", counterexample.violation));
                }
            }
            Ok(_) => missed.push(format!("{rule:?} is not found")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
