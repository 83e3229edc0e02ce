//! What must hold in every simulation. The expectations come from what servers really served and
//! processed, never from a gateway. Entry item: [`check`].

use std::fmt;

use super::client::NOBODY;
use super::log::{Ended, Entries, How, Place, name};
use super::network::CLIENTS;

/// The most requests at servers for one request of a client: each member is asked at most twice,
/// and a request for discovery asks for consent and for hashes.
const MOST_ASKED: usize = 16;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    /// No 404 for what some live member serves throughout the request.
    NoFalse404,
    /// A request makes one hop at most.
    OneHop,
    /// No write is processed twice.
    WriteOnce,
    /// Every request ends, and asks servers a bounded number of times.
    Ends,
    /// Once faults have stopped, everything is answered.
    Answered,
    /// Each register behaves as if there were one server.
    Linearizable,
}

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) invariant: Invariant,
    text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

/// Checks a simulation that has ended.
pub(super) fn check(entries: &Entries) -> Vec<Violation> {
    let mut violations: Vec<Violation> =
        entries.ended.iter().flat_map(|ended| check_request(entries, ended)).collect();
    if let Err(fault) = entries.registers.check() {
        let text = fault.to_string();
        violations.push(Violation { invariant: Invariant::Linearizable, text });
    }
    violations
}

fn check_request(entries: &Entries, ended: &Ended) -> Vec<Violation> {
    let Ended { op, what, group, called, returned, how, calm } = ended;
    let mut violations = Vec::new();
    let mut broken = |invariant, why: String| {
        let text = format!("op-{op} {what}: {how:?}: {why}");
        violations.push(Violation { invariant, text });
    };
    let serving = entries.serving(group, *called, *returned);
    if *how == How::Status(404) && !serving.is_empty() {
        let names: Vec<&str> = serving.iter().map(|node| name(*node)).collect();
        broken(Invariant::NoFalse404, format!("{names:?} served it throughout"));
    }
    if *how == How::Never {
        broken(Invariant::Ends, "no response".to_owned());
    }
    let arrivals = || entries.arrivals_of(*op);
    let asked = arrivals().filter(|arrival| arrival.place == Place::Server).count();
    if asked > MOST_ASKED {
        broken(Invariant::Ends, format!("{asked} requests at servers"));
    }
    let processed = arrivals().filter(|arrival| arrival.place == Place::Storage).count();
    if processed > 1 {
        broken(Invariant::WriteOnce, format!("processed {processed} times"));
    }
    let is_first = |node| {
        let mut first = arrivals().filter(|arrival| arrival.place == Place::Gateway);
        first.any(|arrival| arrival.to == node && arrival.from == CLIENTS)
    };
    let far = arrivals().find(|arrival| {
        let stays = arrival.from == arrival.to && arrival.place != Place::Gateway;
        arrival.from != CLIENTS && !stays && !is_first(arrival.from)
    });
    if let Some(far) = far {
        broken(Invariant::OneHop, format!("from {} to {}", name(far.from), name(far.to)));
    }
    if *calm {
        check_calm(entries, ended).into_iter().for_each(|why| {
            broken(Invariant::Answered, why);
        });
    }
    violations
}

fn check_calm(entries: &Entries, ended: &Ended) -> Option<String> {
    let Ended { group, called, returned, how, .. } = ended;
    let is_served = *group != NOBODY && !entries.serving(group, *called, *returned).is_empty();
    let is_right = match how {
        How::Status(200 | 201 | 409) | How::NoObject => is_served,
        How::Status(404) => !is_served,
        _ => false,
    };
    (!is_right).then(|| format!("although faults have stopped; served: {is_served}"))
}
