//! The rules by which claims become members. Entry item: [`merge`].
//!
//! Every claimed address is a member and is fetched from, whatever its ID: taking the ID or the
//! address of a member cannot hide it. Two addresses are one member only if recent answers from
//! both prove it: they come from the same process, or from a gateway and the server behind it. A
//! server that answers where its gateway answered before is that server: a gateway that steers shares
//! the address of its server.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::MemberKind;
use mvp_proxy::control::{MemberName, MemberRecord, Who};

use super::{Answer, Conflict, Own};
use crate::claim::{Claim, Claims};
use crate::limits::SILENT_AFTER;

/// How long an address that led back to this gateway is not tried again.
const OURS_FOR: Duration = Duration::from_secs(60);
/// The most members without an address that are kept: they cannot be fetched from.
const MAX_UNADDRESSED: usize = 128;

/// What is known besides the claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) own: &'a Own,
    pub(super) answers: &'a BTreeMap<Arc<str>, Answer>,
    pub(super) forgotten: &'a BTreeMap<MemberName, Timestamp>,
    pub(super) now: Timestamp,
}

/// The members that follow from all claims.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Members that answered once, or that a source vouches for.
    pub(super) verified: Vec<MemberRecord>,
    /// Members that may not exist.
    pub(super) unverified: Vec<(Seniority, MemberRecord)>,
    pub(super) conflicts: BTreeSet<Conflict>,
}

/// The order of unverified members: by source, by our own clock, by the source's clock.
pub(super) type Seniority = (usize, Timestamp, Arc<str>);

/// A claim, with the place of its source: the lower, the more it is trusted.
type Sourced<'a> = (usize, &'a Claim);

/// Makes members of claims.
pub(super) fn merge(sources: &[Claims], facts: &Facts<'_>) -> Merged {
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        let counts = |claim: &&Claim| !facts.is_forgotten(claim) && !facts.is_ours(claim);
        let counting = source.claims.iter().filter(counts);
        claims.extend(counting.map(|claim| (place, source.audible(claim, facts.now))));
    }
    let mut by_address: BTreeMap<&Arc<str>, Vec<Sourced<'_>>> = BTreeMap::new();
    let mut unaddressed: BTreeMap<&Arc<str>, Sourced<'_>> = BTreeMap::new();
    for (place, claim) in &claims {
        let sourced = (*place, claim);
        match (&claim.address, &claim.id) {
            (Some(address), _) => by_address.entry(address).or_default().push(sourced),
            (None, Some(id)) => {
                let first = unaddressed.entry(id).or_insert(sourced);
                if facts.rank(sourced) < facts.rank(*first) {
                    *first = sourced;
                }
            }
            (None, None) => {}
        }
    }
    let sites = by_address.into_iter().filter_map(|(at, claims)| Site::new(at, &claims, facts));
    let mut by_id: BTreeMap<&Arc<str>, Vec<Site<'_>>> = BTreeMap::new();
    let mut merged = Merged::default();
    for site in one_of_each_process(sites, facts) {
        match site.id() {
            Some(id) => by_id.entry(id).or_default().push(site),
            None => merged.push(&site, MemberName::Id(Arc::clone(site.address))),
        }
    }
    for (id, sites) in &mut by_id {
        if let Some((_, server)) = unaddressed.get(id) {
            sites
                .iter_mut()
                .filter(|site| site.is_its_server())
                .for_each(|site| site.hears(server));
        }
    }
    // A server without a known address stays apart from gateways that only claim to be its gateway.
    let is_unproved = |id: &Arc<str>| {
        by_id.get(id).is_none_or(|sites| {
            let is_proved = |site: &Site<'_>| site.is_gateway() || site.is_its_server();
            sites.iter().all(|site| site.claim().kind == MemberKind::Mvp && !is_proved(site))
        })
    };
    unaddressed.retain(|id, _| is_unproved(id));
    let mut ordered: Vec<_> = unaddressed.iter().collect();
    ordered.sort_by_cached_key(|(_, sourced)| facts.rank(**sourced));
    for (id, (_, claim)) in ordered.into_iter().take(MAX_UNADDRESSED) {
        let (name, kind) = (MemberName::Id(Arc::clone(id)), claim.kind);
        let record = MemberRecord { name, address: None, kind, heard: claim.heard };
        merged.verified.push(record);
    }
    for (id, sites) in by_id {
        merged.add(id, sites, unaddressed.contains_key(id), facts);
    }
    merged
}

impl Facts<'_> {
    /// Whether a claim is about this gateway or its local server, or a leftover of an earlier
    /// address.
    fn is_ours(&self, claim: &Claim) -> bool {
        let by_id = claim.id.is_some() && claim.id == self.own.id && !claim.announced;
        by_id || claim.address.as_ref().is_some_and(|address| self.leads_to_us(address))
    }

    fn leads_to_us(&self, address: &Arc<str>) -> bool {
        let led_to_us =
            |answer: &Answer| answer.who == Who::Ourselves && self.now.since(answer.at) <= OURS_FOR;
        self.own.addresses.contains(address) || self.answers.get(address).is_some_and(led_to_us)
    }

    /// Whether an operator forgot the member after its last heartbeat.
    fn is_forgotten(&self, claim: &Claim) -> bool {
        let until =
            self.forgotten.iter().filter(|(name, _)| claim.is_named(name)).map(|(_, at)| at);
        until.max().is_some_and(|until| claim.heard.is_some_and(|heard| heard <= *until))
    }

    fn is_alive(&self, claim: &Claim) -> bool {
        claim.heard.is_none_or(|heard| self.now.since(heard) <= SILENT_AFTER)
    }

    /// The order of precedence of claims: alive, from a trusted source, senior.
    fn rank(&self, (place, claim): Sourced<'_>) -> impl Ord + use<> {
        (!self.is_alive(claim), place, claim.since, Arc::clone(&claim.seniority))
    }
}

impl Merged {
    /// Adds all who claim one ID. The first holds the ID, unless it is `reserved` for a server
    /// without a known address. The others are named by ID and address.
    fn add(&mut self, id: &Arc<str>, mut sites: Vec<Site<'_>>, reserved: bool, facts: &Facts<'_>) {
        sites.sort_by_cached_key(|site| site.rank(facts));
        let mut sites = sites.into_iter();
        let is_own = facts.own.id.as_ref() == Some(id);
        let holder = if is_own || reserved { None } else { sites.next() };
        if let Some(holder) = &holder {
            self.push(holder, MemberName::Id(Arc::clone(id)));
        }
        for site in sites {
            let counts = match &holder {
                None => !site.is_gone(),
                Some(holder) => {
                    let is_superseded = site.is_gone() && holder.who.is_some();
                    !(is_superseded || holder.speaks_for(&site))
                }
            };
            if !counts {
                continue;
            }
            // Two sources that differ are no conflict: the first takes precedence.
            let same_source = |holder: &Site<'_>| holder.first.0 == site.first.0;
            let is_rival = site.claim().announced && facts.is_alive(site.claim());
            if is_rival && (is_own || holder.as_ref().is_some_and(same_source)) {
                let has = holder.as_ref().map(|holder| Arc::clone(holder.address));
                let (id, claims) = (Arc::clone(id), Arc::clone(site.address));
                self.conflicts.insert(Conflict { id, has, claims });
            }
            let (id, address) = (Arc::clone(id), Arc::clone(site.address));
            self.push(&site, MemberName::At { id, address });
        }
    }

    fn push(&mut self, site: &Site<'_>, name: MemberName) {
        let (place, claim) = site.first;
        let address = Some(Arc::clone(site.address));
        let record = MemberRecord { name, address, kind: site.kind(), heard: site.heard };
        if site.has_answered || site.heard.is_none() {
            self.verified.push(record);
        } else {
            let seniority = (place, claim.since, Arc::clone(&claim.seniority));
            self.unverified.push((seniority, record));
        }
    }
}

/// Of the addresses at which one process answers, the one with the best claim.
fn one_of_each_process<'a>(
    sites: impl Iterator<Item = Site<'a>>,
    facts: &Facts<'_>,
) -> impl Iterator<Item = Site<'a>> {
    let mut processes: BTreeMap<(&Arc<str>, &Arc<str>), Site<'a>> = BTreeMap::new();
    let mut others = Vec::new();
    for site in sites {
        let Some(Who::Gateway { id, instance }) = site.who else {
            others.push(site);
            continue;
        };
        match processes.get_mut(&(id, instance)) {
            Some(best) if facts.rank(site.first) < facts.rank(best.first) => *best = site,
            Some(_) => {}
            None => {
                processes.insert((id, instance), site);
            }
        }
    }
    processes.into_values().chain(others)
}

/// An address, and what follows from all claims about it.
#[derive(Debug)]
struct Site<'a> {
    address: &'a Arc<str>,
    /// Whether anybody ever answered there.
    has_answered: bool,
    /// Who answered there recently.
    who: Option<&'a Who>,
    /// The ID of the last gateway that answered there.
    gateway: Option<&'a Arc<str>>,
    /// The claim that decides its ID.
    first: Sourced<'a>,
    /// Whether all claims are about a server, with one ID.
    is_one_server: bool,
    /// The last heartbeat of any claim. `None` if a source vouches for it.
    heard: Option<Timestamp>,
    is_alive: bool,
}

impl<'a> Site<'a> {
    fn new(address: &'a Arc<str>, claims: &[Sourced<'a>], facts: &Facts<'a>) -> Option<Site<'a>> {
        let answer = facts.answers.get(address);
        let recent = SILENT_AFTER.max(facts.own.interval * 3);
        let lately = answer.filter(|answer| facts.now.since(answer.at) <= recent);
        let who = lately.map(|answer| &answer.who);
        // What a gateway says about itself takes precedence.
        let is_own_word = |claim: &Claim| match who {
            Some(Who::Gateway { id, .. }) => claim.id.as_ref() == Some(id),
            _ => false,
        };
        let first = *claims.iter().min_by_key(|sourced| {
            let (_, claim) = sourced;
            (claim.id.is_none(), !is_own_word(claim), facts.rank(**sourced))
        })?;
        let is_same_server =
            |(_, claim): &Sourced<'_>| claim.kind == MemberKind::Bare && claim.id == first.1.id;
        let is_vouched = claims.iter().any(|(_, claim)| claim.heard.is_none());
        let heard = claims.iter().filter_map(|(_, claim)| claim.heard).max();
        Some(Site {
            address,
            has_answered: answer.is_some(),
            who,
            gateway: lately.and_then(|answer| answer.gateway.as_ref()),
            first,
            is_one_server: claims.iter().all(is_same_server),
            heard: heard.filter(|_| !is_vouched),
            is_alive: claims.iter().any(|(_, claim)| facts.is_alive(claim)),
        })
    }

    fn claim(&self) -> &'a Claim {
        self.first.1
    }

    /// What answers there. Answers take precedence over claims, except over the operator's own
    /// list.
    fn kind(&self) -> MemberKind {
        match self.who {
            Some(Who::Gateway { .. }) if self.first.0 > 0 => MemberKind::Mvp,
            Some(Who::Server) if self.first.0 > 0 => MemberKind::Bare,
            _ => self.claim().kind,
        }
    }

    /// Whether what answers there is what the claim says, as far as can be known.
    fn is_proved(&self) -> bool {
        match self.claim().kind {
            MemberKind::Mvp => self.is_gateway(),
            MemberKind::Bare => self.who.is_some(),
        }
    }

    /// Whether the gateway of the server with the claimed ID answers there.
    fn is_gateway(&self) -> bool {
        let claimed = self.claim().id.as_ref();
        matches!(self.who, Some(Who::Gateway { id, .. }) if Some(id) == claimed)
    }

    /// The claimed ID or, for a server that answers where its gateway answered before, that of the
    /// gateway. A gateway that stops takes its claim back; the server stays the same member.
    fn id(&self) -> Option<&'a Arc<str>> {
        let of_gateway = self.gateway.filter(|_| self.who == Some(&Who::Server));
        self.claim().id.as_ref().or(of_gateway)
    }

    /// Whether the server itself answers at the address of its gateway, which does not run now.
    fn is_its_server(&self) -> bool {
        self.who == Some(&Who::Server) && self.gateway.is_some() && self.gateway == self.id()
    }

    /// The server that answers there is alive by this claim, too.
    fn hears(&mut self, server: &Claim) {
        self.heard = self.heard.zip(server.heard).map(|(here, there)| here.max(there));
    }

    /// Whether it is the gateway of the server that the other site is claimed to be.
    fn speaks_for(&self, other: &Site<'_>) -> bool {
        self.is_gateway() && other.is_one_server
    }

    /// Whether it neither answers nor has a living claim.
    fn is_gone(&self) -> bool {
        !self.is_alive && self.who.is_none()
    }

    /// The order of precedence for an ID: proved, then by the claim.
    fn rank(&self, facts: &Facts<'_>) -> impl Ord + use<> {
        (
            Reverse((self.is_proved(), self.is_its_server())),
            facts.rank(self.first),
            Arc::clone(self.address),
        )
    }
}
