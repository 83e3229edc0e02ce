//! What must hold of every request, whatever happens. The expectations come from DESIGN.md, from what
//! the servers of the model really serve, and never from the decision. Entry item: [`check_end`].

use std::fmt;
use std::time::Duration;

use mvp_core::RequestInfo;
use mvp_core::decide::Origin;
use mvp_core::member::Member;

use super::bits::Bits;
use super::cluster::{A, About, IDS, Version};
use super::control::STARTED;
use super::outcome::End;
use super::request::Request;
use super::world::World;
use crate::metrics::ServedBy;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Invariant {
    /// No 404 for what some live member serves throughout the request.
    NoFalse404,
    /// No 404 for what only a server serves that is down or restarts.
    Remembered,
    /// A request that was proxied is not proxied again.
    OneHop,
    /// No write is processed twice.
    WriteOnce,
    /// A write that the local server lists goes to no member that is older.
    NoOlderWriter,
    /// Every request ends within a bounded number of rounds.
    Ends,
    /// 503 only where something was wrong or changed.
    NoNeedless503,
    /// Once faults stop, everything is answered.
    Answered,
    /// Discovery describes the cluster, or the local server alone where that is asked for.
    Discovery,
    /// The local server alone answers for its own paths.
    OwnPaths,
}

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) invariant: Invariant,
    pub(super) text: String,
}

impl Invariant {
    pub(super) fn broken(self, text: impl Into<String>) -> Violation {
        Violation { invariant: self, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

/// Checks how a request ended.
pub(super) fn check_end(world: &World, request: &Request, end: End) -> Result<(), Violation> {
    match request.ask.about {
        About::Resource(_) => check_resource(world, request, end),
        About::Discovery => check_discovery(request, end),
        About::Health => match end.by {
            ServedBy::Local | ServedBy::Nobody => Ok(()),
            _ if !world.setup.local => Ok(()),
            by => Err(Invariant::OwnPaths.broken(format!("answered by {by:?}"))),
        },
    }?;
    check_refusal(request, end)
}

fn check_resource(world: &World, request: &Request, end: End) -> Result<(), Violation> {
    let serving: Bits =
        request.throughout.iter().filter(|member| counts(world, request, *member)).collect();
    if end.status == 404 && !serving.is_empty() {
        let names: Vec<&str> = serving.iter().map(|member| IDS[member]).collect();
        let text = format!("404 for {:?}, which {names:?} served throughout", request.ask.name);
        return Err(Invariant::NoFalse404.broken(text));
    }
    match end.status == 404 && !request.remembered.is_empty() {
        true => Err(Invariant::Remembered.broken("404 for what a server serves that is down")),
        false => Ok(()),
    }
}

/// Whether 404s wait for a member: its views were confirmed within 5 minutes, or it joined since
/// then, or StorageVersions record what it serves.
fn counts(world: &World, request: &Request, member: usize) -> bool {
    let Some((mute, is_recorded)) = world.setup.mute.filter(|(mute, _)| *mute == member) else {
        return true;
    };
    let known = world.roster.members().find(|known| *known.id == *IDS[mute]);
    let joined = known.map_or(world.now, |known| known.joined);
    is_recorded || request.arrived.since(joined) < Duration::from_secs(300)
}

fn check_discovery(request: &Request, end: End) -> Result<(), Violation> {
    let Some(document) = end.document.filter(|_| end.status == 200) else { return Ok(()) };
    let own = request.ask.nopeer || request.origin == Origin::Peer;
    if own {
        return match end.by {
            ServedBy::Local => Ok(()),
            by => Err(Invariant::Discovery.broken(format!("its own document, by {by:?}"))),
        };
    }
    let unseen = (0..IDS.len()).find(|member| {
        let known = request.snapshot.member_by_id(IDS[*member]);
        known.is_none_or(|known| known.view.apis.is_none()) && request.throughout.has(*member)
    });
    if let Some(member) = unseen
        && request.arrived.since(STARTED) < Duration::from_secs(30)
    {
        let text = format!("a document after the start that lacks {}", IDS[member]);
        return Err(Invariant::Discovery.broken(text));
    }
    // Without a view of the local server, its own document is better than one that lacks it.
    let seen = |member: &Member| Some(Version::of(&member.view.apis.as_ref()?.list) as usize);
    if request.snapshot.local().is_some_and(|local| seen(local).is_none()) {
        return Ok(());
    }
    let told = request.snapshot.members().filter_map(seen);
    match told.into_iter().find(|version| !document.has(*version)) {
        Some(_) => Err(Invariant::Discovery.broken("the document lacks what a member serves")),
        None => Ok(()),
    }
}

/// 503 is for faults, changes and delays, and for requests that must not be proxied again.
fn check_refusal(request: &Request, end: End) -> Result<(), Violation> {
    // A 404 that proves nothing, of a server that has the resource, is withheld: 503.
    if end.status != 503 || request.ask.vague {
        return Ok(());
    }
    let reason = end.reason.as_str();
    let must_be_local = request.origin != Origin::Client && !request.throughout.has(A);
    if !request.disturbed && !must_be_local {
        let text = format!("503 ({reason}) although nothing was wrong");
        return Err(Invariant::NoNeedless503.broken(text));
    }
    // A lost read is sent once more, a lost write never.
    let most = usize::from(!request.ask.is_write);
    let able = request.promised.iter().find(|member| !request.lost.contains(member));
    match able {
        Some(member) if request.lost.len() <= most => {
            let id = IDS[member];
            let text = format!("503 ({reason}), but {id} served it throughout, which was known");
            Err(Invariant::NoNeedless503.broken(text))
        }
        _ => Ok(()),
    }
}

/// A write that the local server lists goes to no member that is older: it would erase fields.
pub(super) fn check_writer(
    request: &Request,
    local: Option<usize>,
    to: usize,
) -> Result<(), Violation> {
    let RequestInfo::Resource(asked) = &request.ask.info else { return Ok(()) };
    let member = |index: usize| request.snapshot.member_by_id(IDS[index]);
    let release = |member: Option<&Member>| member?.view.release;
    let local = local.and_then(member);
    let mut listing = request.snapshot.listing(&asked.group, &asked.version, &asked.resource);
    let local_lists = listing.any(|member| local.is_some_and(|local| local.id == member.id));
    match request.ask.is_write && local_lists && release(member(to)) < release(local) {
        true => Err(Invariant::NoOlderWriter.broken("a write goes to an older member")),
        false => Ok(()),
    }
}
