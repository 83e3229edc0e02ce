//! From claims to members. Entry item: [`merge`].
//!
//! Whoever is at an address is a member, whatever it is called, and is asked; so that nobody is lost
//! to whoever takes its name or its place. Two addresses are one member only where what answers there
//! says so itself, and lately: the same process, or a gateway that stands before the server which the
//! other is claimed to be, and by nobody to be anything else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::{MemberRecord, Who};

use super::{Answer, Conflict, Own};
use crate::claim::{Claim, Claims};
use crate::heartbeat::HEARTBEAT;

/// Who neither was heard of nor answered for so long may be gone.
const LAPSES: Duration = Duration::from_secs(3 * HEARTBEAT.as_secs());
/// So long we are not asked again whether we are still there.
const OURS_FOR: Duration = Duration::from_secs(60);
/// Who says no address cannot be asked: no more of them are kept.
const MAX_HOMELESS: usize = 128;

/// What is known beside the claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) own: &'a Own,
    pub(super) answered: &'a BTreeMap<Arc<str>, Answer>,
    pub(super) forgotten: &'a BTreeMap<Arc<str>, Timestamp>,
    pub(super) now: Timestamp,
}

/// What became of all claims.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) members: Vec<Candidate>,
    pub(super) conflicts: BTreeSet<Conflict>,
}

/// Somebody who may be a member.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) record: MemberRecord,
    /// Neither did it ever answer, nor does its source vouch for it.
    pub(super) is_stranger: bool,
    /// The least is asked first.
    pub(super) seniority: (usize, Timestamp, Arc<str>),
}

/// Makes members of claims.
pub(super) fn merge(sources: &[Claims], known: &Known<'_>) -> Merged {
    let mut places: BTreeMap<&Arc<str>, Vec<Ranked<'_>>> = BTreeMap::new();
    let mut homeless: BTreeMap<&Arc<str>, Ranked<'_>> = BTreeMap::new();
    for (place, source) in sources.iter().enumerate() {
        for claim in &source.claims {
            let heard = claim.heard.map(|heard| not_deaf(heard, source.deaf_since, known.now));
            let alive = heard.is_none_or(|heard| known.now.since(heard) <= LAPSES);
            let ranked = Ranked { place, claim, heard, alive };
            match (&claim.address, &claim.id) {
                _ if known.forgets(claim) || known.is_of_us(claim) => {}
                (Some(address), _) => places.entry(address).or_default().push(ranked),
                (None, Some(id)) => {
                    let first = homeless.entry(id).or_insert(ranked);
                    if ranked.rank() < first.rank() {
                        *first = ranked;
                    }
                }
                (None, None) => {}
            }
        }
    }
    let sites =
        places.into_iter().filter_map(|(address, claims)| Site::new(address, &claims, known));
    let mut by_id: BTreeMap<&Arc<str>, Vec<Site<'_>>> = BTreeMap::new();
    let mut merged = Merged::default();
    for site in one_of_each_process(sites) {
        match &site.first.claim.id {
            Some(id) => by_id.entry(id).or_default().push(site),
            None => merged.members.push(site.candidate(Arc::clone(site.address))),
        }
    }
    // A server of which nobody knows where it is, and somebody who says to stand before it, but does
    // not say so itself.
    let is_unproved = |id: &Arc<str>| {
        by_id.get(id).is_none_or(|sites| {
            sites.iter().all(|site| site.first.claim.kind == MemberKind::Mvp && !site.is_gateway())
        })
    };
    homeless.retain(|id, _| is_unproved(id));
    let apart: BTreeSet<&Arc<str>> = homeless.keys().copied().collect();
    let unsaid = homeless.into_iter();
    let mut unsaid: Vec<_> = unsaid.map(|(id, ranked)| (ranked.rank(), id, ranked)).collect();
    unsaid.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    for (_, id, ranked) in unsaid.into_iter().take(MAX_HOMELESS) {
        merged.members.push(ranked.candidate(Arc::clone(id), ranked.heard, true));
    }
    for (id, sites) in by_id {
        merged.add(id, sites, apart.contains(id), known);
    }
    merged
}

impl Known<'_> {
    /// Whether a claim is of ourselves, or of the server beside us, wherever that is said to be; or
    /// is what we left behind.
    fn is_of_us(&self, claim: &Claim) -> bool {
        let by_id = claim.id.is_some() && claim.id == self.own.id && !claim.announced;
        by_id || claim.address.as_ref().is_some_and(|address| self.is_ours(address))
    }

    fn is_ours(&self, address: &Arc<str>) -> bool {
        let leads_to_us =
            |answer: &Answer| answer.who == Who::Ourselves && self.now.since(answer.at) <= OURS_FOR;
        self.own.addresses.contains(address) || self.answered.get(address).is_some_and(leads_to_us)
    }

    fn forgets(&self, claim: &Claim) -> bool {
        let until =
            self.forgotten.iter().filter(|(name, _)| claim.is_named(name)).map(|(_, at)| at);
        until.max().is_some_and(|until| claim.heard.is_some_and(|heard| heard <= *until))
    }
}

impl Merged {
    /// All who are claimed to go by one ID. One of them has it, unless it is kept `apart` for who says
    /// no address; the others go by their address, too.
    fn add(&mut self, id: &Arc<str>, mut sites: Vec<Site<'_>>, apart: bool, known: &Known<'_>) {
        sites.sort_by_cached_key(Site::rank);
        let mut sites = sites.into_iter();
        let is_own = known.own.id.as_ref() == Some(id);
        let holder = if is_own || apart { None } else { sites.next() };
        if let Some(holder) = &holder {
            self.members.push(holder.candidate(Arc::clone(id)));
        }
        for site in sites {
            let counts = match &holder {
                None => !site.is_gone(),
                Some(holder) => {
                    let moved = site.is_gone() && holder.who.is_some();
                    !(moved || holder.speaks_for(&site))
                }
            };
            if !counts {
                continue;
            }
            // Of what two sources say, the one that is believed more counts: that is no conflict.
            let same_source = |holder: &Site<'_>| holder.first.place == site.first.place;
            let is_rival = site.first.claim.announced && site.first.alive;
            if is_rival && (is_own || holder.as_ref().is_some_and(same_source)) {
                let has = holder.as_ref().map(|holder| Arc::clone(holder.address));
                let (id, claims) = (Arc::clone(id), Arc::clone(site.address));
                self.conflicts.insert(Conflict { id, has, claims });
            }
            self.members.push(site.candidate(format!("{id}@{}", site.address).into()));
        }
    }
}

/// Of the addresses at which one process answers, the one that is believed most.
fn one_of_each_process<'a>(
    sites: impl Iterator<Item = Site<'a>>,
) -> impl Iterator<Item = Site<'a>> {
    let mut known: BTreeMap<(&Arc<str>, &Arc<str>), Site<'a>> = BTreeMap::new();
    let mut others = Vec::new();
    for site in sites {
        let Some(Who::Gateway { id, instance }) = site.who else {
            others.push(site);
            continue;
        };
        match known.get_mut(&(id, instance)) {
            Some(first) if site.first.rank() < first.first.rank() => *first = site,
            Some(_) => {}
            None => {
                known.insert((id, instance), site);
            }
        }
    }
    known.into_values().chain(others)
}

/// An address, and what counts of all that is said of it.
#[derive(Debug)]
struct Site<'a> {
    address: &'a Arc<str>,
    /// Whether anybody ever answered there.
    is_known: bool,
    /// Who answers there, lately.
    who: Option<&'a Who>,
    /// The claim that gives it its name.
    first: Ranked<'a>,
    /// Whether all claims are of a server, and of one ID.
    is_one_server: bool,
    /// When it was last heard of, by whichever claim; nothing where one of them vouches.
    heard: Option<Timestamp>,
    is_alive: bool,
}

impl<'a> Site<'a> {
    fn new(address: &'a Arc<str>, claims: &[Ranked<'a>], known: &Known<'a>) -> Option<Site<'a>> {
        let answered = known.answered.get(address);
        let lapses = LAPSES.max(known.own.interval * 3);
        let lately = answered.filter(|answer| known.now.since(answer.at) <= lapses);
        let who = lately.map(|answer| &answer.who);
        // What it says of itself counts more than what is said of it.
        let says = |claim: &Claim| match who {
            Some(Who::Gateway { id, .. }) => claim.id.as_ref() == Some(id),
            _ => false,
        };
        let first = claims
            .iter()
            .min_by_key(|ranked| (ranked.claim.id.is_none(), !says(ranked.claim), ranked.rank()))?;
        let same = |ranked: &Ranked<'_>| {
            ranked.claim.kind == MemberKind::Bare && ranked.claim.id == first.claim.id
        };
        let vouched = claims.iter().any(|ranked| ranked.heard.is_none());
        let heard = claims.iter().filter_map(|ranked| ranked.heard).max();
        Some(Site {
            address,
            is_known: answered.is_some(),
            who,
            first: *first,
            is_one_server: claims.iter().all(same),
            heard: heard.filter(|_| !vouched),
            is_alive: claims.iter().any(|ranked| ranked.alive),
        })
    }

    /// Whether what answers there is what it is claimed to be, as far as can be known.
    fn is_proved(&self) -> bool {
        match self.first.claim.kind {
            MemberKind::Mvp => self.is_gateway(),
            MemberKind::Bare => self.who.is_some(),
        }
    }

    /// Whether a gateway answers there, and says to stand before the server of the claimed ID.
    fn is_gateway(&self) -> bool {
        let claimed = self.first.claim.id.as_ref();
        matches!(self.who, Some(Who::Gateway { id, .. }) if Some(id) == claimed)
    }

    /// Whether it is a gateway before what the other is claimed to be, and nothing else.
    fn speaks_for(&self, other: &Site<'_>) -> bool {
        self.is_gateway() && other.is_one_server
    }

    /// Whether neither it nor anybody else says that it is there.
    fn is_gone(&self) -> bool {
        !self.is_alive && self.who.is_none()
    }

    /// The least has the ID: proved, alive, of the source that is believed more, senior.
    fn rank(&self) -> impl Ord + use<> {
        (Reverse(self.is_proved()), self.first.rank(), Arc::clone(self.address))
    }

    fn candidate(&self, name: Arc<str>) -> Candidate {
        let is_known = self.is_known || self.heard.is_none();
        let mut candidate = self.first.candidate(name, self.heard, is_known);
        // Where nobody wrote it down, what answers says what it is.
        match self.who {
            Some(Who::Gateway { .. }) if self.first.place > 0 => {
                candidate.record.kind = MemberKind::Mvp;
            }
            Some(Who::Server) if self.first.place > 0 => candidate.record.kind = MemberKind::Bare,
            _ => {}
        }
        candidate
    }
}

/// A claim, and how far it is believed.
#[derive(Debug, Clone, Copy)]
struct Ranked<'a> {
    place: usize,
    claim: &'a Claim,
    heard: Option<Timestamp>,
    alive: bool,
}

impl Ranked<'_> {
    /// The least counts.
    fn rank(&self) -> impl Ord + use<> {
        let Claim { since, seniority, .. } = self.claim;
        (!self.alive, self.place, *since, Arc::clone(seniority))
    }

    fn candidate(&self, id: Arc<str>, heard: Option<Timestamp>, is_known: bool) -> Candidate {
        let Claim { address, kind, since, seniority, .. } = self.claim;
        Candidate {
            record: MemberRecord { id, address: address.clone(), kind: *kind, heard },
            is_stranger: !is_known,
            seniority: (self.place, *since, Arc::clone(seniority)),
        }
    }
}

/// Who was alive when its source went deaf is taken to be so still.
fn not_deaf(heard: Timestamp, deaf_since: Option<Timestamp>, now: Timestamp) -> Timestamp {
    match deaf_since {
        Some(since) => heard.after(now.since(since.max(heard))).min(now),
        None => heard,
    }
}
