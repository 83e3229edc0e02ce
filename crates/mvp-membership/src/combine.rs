//! Members, of all that sources claim. Entry item: [`Combined`]; what it decides is [`merge`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use mvp_core::Timestamp;
use mvp_proxy::control::{Clock, MemberRecord, Membership};

use crate::claim::{Claim, Claims, Source};
use crate::heartbeat::HEARTBEAT;

/// Who was not heard of for so long has no claim to an ID that somebody else claims, too.
const LAPSES: Duration = Duration::from_secs(3 * HEARTBEAT.as_secs());
/// No cluster comes near this. Who floods us with claims gets no more than so many asked.
const MAX_MEMBERS: usize = 512;

/// Ourselves, who are nobody's peer.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Our ID; a load balancer has none.
    pub id: Option<Arc<str>>,
    /// Where we and our local server are reached: `HOST:PORT` each.
    pub addresses: Vec<Arc<str>>,
}

/// Two members go by one ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The ID.
    pub id: Arc<str>,
    /// Where the one is that has it; nothing where we are it.
    pub has: Option<Arc<str>>,
    /// Where the other one is, which is known by ID and address.
    pub claims: Arc<str>,
}

/// Many sources as one.
#[derive(Debug)]
pub struct Combined {
    sources: Vec<Source>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    own: Own,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Until when what was heard of a member counts for nothing.
    forgotten: BTreeMap<Arc<str>, Timestamp>,
    conflicts: BTreeSet<Conflict>,
    /// Addresses that turned out to lead to ourselves.
    ourselves: BTreeSet<Arc<str>>,
}

/// A hold on a [`Combined`] that went to the control loop.
#[derive(Debug, Clone)]
pub struct Handle {
    sources: Vec<Source>,
    shared: Arc<Shared>,
}

impl Combined {
    /// These sources, the first of which is believed most.
    pub fn new(own: Own, clock: Clock, sources: Vec<Source>) -> Combined {
        Combined { sources, shared: Arc::new(Shared { own, clock, state: Mutex::default() }) }
    }

    /// A hold on it.
    pub fn handle(&self) -> Handle {
        Handle { sources: self.sources.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl Membership for Combined {
    fn members(&self) -> Vec<MemberRecord> {
        let shared = &self.shared;
        let all: Vec<Claims> =
            self.sources.iter().map(|source| source.claims.borrow().clone()).collect();
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = shared.own.clone();
        own.addresses.extend(state.ourselves.iter().cloned());
        let merged = merge(&own, &all, &state.forgotten, shared.clock.now());
        for conflict in merged.conflicts.difference(&state.conflicts) {
            let Conflict { id, has, claims } = conflict;
            match has {
                Some(has) => tracing::error!(
                    "two members go by the ID {id}, at {has} and at {claims}: the latter is known as \
                     {id}@{claims}; give one of them another --server-id"
                ),
                None => tracing::error!(
                    "a member at {claims} goes by our own ID {id}: it is known as {id}@{claims}; give \
                     one of us another --server-id"
                ),
            }
        }
        state.conflicts = merged.conflicts;
        merged.members
    }

    fn complete(&self) -> bool {
        self.sources.iter().all(|source| source.claims.borrow().read)
    }

    async fn changed(&mut self) {
        let changes = self.sources.iter_mut().map(|source| {
            Box::pin(async {
                // Who says nothing any more said it for good.
                if source.claims.changed().await.is_err() {
                    std::future::pending().await
                }
            })
        });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return std::future::pending().await;
        }
        select_all(changes).await;
    }
}

impl Handle {
    /// Whatever was heard of a member so far counts for nothing. Fails where a source vouches for it.
    pub fn forget(&self, id: &str) -> Result<(), String> {
        for source in &self.sources {
            let claims = source.claims.borrow();
            let vouched = |claim: &Claim| claim.id.as_deref() == Some(id) && claim.heard.is_none();
            if claims.claims.iter().any(vouched) {
                return Err(format!("{id} is named by {}; take it out there", source.name));
            }
        }
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.forgotten.insert(id.into(), self.shared.clock.now());
        Ok(())
    }

    /// An address turned out to lead back to us, by whatever way.
    pub fn leads_to_us(&self, address: &Arc<str>) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has us asked by many names gets no memory for it.
        if state.ourselves.len() < MAX_MEMBERS && state.ourselves.insert(Arc::clone(address)) {
            tracing::warn!("a member at {address} is this gateway itself, and nobody's peer");
        }
    }

    /// What an operator has to mend, by source.
    pub fn problems(&self) -> Vec<(&'static str, Option<String>)> {
        self.sources.iter().map(|source| (source.name, source.problem())).collect()
    }

    /// The first source that was not read yet.
    pub fn unread(&self) -> Option<&'static str> {
        let unread = self.sources.iter().find(|source| !source.claims.borrow().read);
        unread.map(|source| source.name)
    }

    /// The IDs by which two members go.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.conflicts.iter().cloned().collect()
    }
}

/// What became of all claims.
#[derive(Debug, Default)]
struct Merged {
    members: Vec<MemberRecord>,
    conflicts: BTreeSet<Conflict>,
}

/// Claims of one ID are one member's, and those without an ID are of whoever is at their address.
/// Of two at one ID the senior has it, as long as it is heard of; the other goes by its address,
/// too, so that nobody loses a member to whoever takes its name.
fn merge(
    own: &Own,
    sources: &[Claims],
    forgotten: &BTreeMap<Arc<str>, Timestamp>,
    now: Timestamp,
) -> Merged {
    let mut merged = Merged::default();
    let mut by_id: BTreeMap<Arc<str>, Vec<Ranked<'_>>> = BTreeMap::new();
    let mut nameless: Vec<Ranked<'_>> = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        for claim in &source.claims {
            let heard = claim.heard.map(|heard| not_deaf(heard, source.deaf_since, now));
            let ranked = Ranked { place, claim, heard };
            match &claim.id {
                _ if ranked.is_forgotten(forgotten) => {}
                Some(id) => by_id.entry(Arc::clone(id)).or_default().push(ranked),
                None => nameless.push(ranked),
            }
        }
    }
    let ours =
        |address: Option<&Arc<str>>| address.is_some_and(|address| own.addresses.contains(address));
    for (id, claims) in by_id {
        let is_own = own.id.as_ref() == Some(&id);
        let holder = claims.iter().filter(|_| !is_own).min_by_key(|claim| claim.rank(now));
        let mut has = None;
        if let Some(holder) = holder {
            has = holder.claim.address.clone();
            if !ours(has.as_ref()) {
                merged.members.push(holder.record(Arc::clone(&id), &claims));
            }
        }
        // Others of the same source that say to be a gateway by this ID, somewhere else. Of what
        // two sources say, the one that is believed more counts, and that is no conflict.
        for claim in &claims {
            let rival =
                claim.claim.announced && holder.is_none_or(|holder| claim.place == holder.place);
            let Some(address) = claim.claim.address.as_ref().filter(|_| rival) else { continue };
            if has.as_ref() != Some(address) && !ours(Some(address)) && claim.is_alive(now) {
                let claims = Arc::clone(address);
                merged.conflicts.insert(Conflict { id: Arc::clone(&id), has: has.clone(), claims });
                let id = format!("{id}@{address}").into();
                merged.members.push(claim.record(id, std::slice::from_ref(claim)));
            }
        }
    }
    for claim in nameless {
        let Some(address) = &claim.claim.address else { continue };
        let known = |record: &MemberRecord| record.address.as_ref() == Some(address);
        if !ours(Some(address)) && !merged.members.iter().any(known) {
            let record = claim.record(Arc::clone(address), std::slice::from_ref(&claim));
            merged.members.push(record);
        }
    }
    merged.limit(sources);
    merged
}

impl Merged {
    /// Who was first stays.
    fn limit(&mut self, sources: &[Claims]) {
        if self.members.len() <= MAX_MEMBERS {
            return;
        }
        let mut since: BTreeMap<&Arc<str>, Timestamp> = BTreeMap::new();
        for claim in sources.iter().flat_map(|source| &source.claims) {
            if let Some(address) = &claim.address {
                let first = since.entry(address).or_insert(claim.since);
                *first = claim.since.min(*first);
            }
        }
        let age = |record: &MemberRecord| {
            record.address.as_ref().and_then(|address| since.get(address)).copied()
        };
        self.members.sort_by_key(|record| (age(record).is_none(), age(record)));
        self.members.truncate(MAX_MEMBERS);
    }
}

/// A claim, and how far it is believed.
#[derive(Debug)]
struct Ranked<'a> {
    place: usize,
    claim: &'a Claim,
    heard: Option<Timestamp>,
}

impl Ranked<'_> {
    fn is_alive(&self, now: Timestamp) -> bool {
        self.heard.is_none_or(|heard| now.since(heard) <= LAPSES)
    }

    /// The least counts: with an address, alive, of the source that is believed more, senior.
    fn rank(&self, now: Timestamp) -> impl Ord + use<> {
        (
            self.claim.address.is_none(),
            !self.is_alive(now),
            self.place,
            self.claim.since,
            Arc::clone(&self.claim.seniority),
            self.claim.address.clone(),
        )
    }

    /// The member, as this claim has it, heard of through all of these.
    fn record(&self, id: Arc<str>, all: &[Ranked<'_>]) -> MemberRecord {
        let same = |other: &&Ranked<'_>| other.claim.address == self.claim.address;
        let heard = all.iter().filter(same).filter_map(|claim| claim.heard).max();
        let Claim { address, kind, .. } = self.claim;
        MemberRecord { id, address: address.clone(), kind: *kind, heard: self.heard.and(heard) }
    }

    fn is_forgotten(&self, forgotten: &BTreeMap<Arc<str>, Timestamp>) -> bool {
        let at = self.claim.id.as_ref().and_then(|id| forgotten.get(id));
        at.is_some_and(|at| self.claim.heard.is_some_and(|heard| heard <= *at))
    }
}

/// Who was alive when its source went deaf is taken to be so still.
fn not_deaf(heard: Timestamp, deaf_since: Option<Timestamp>, now: Timestamp) -> Timestamp {
    match deaf_since {
        Some(since) => heard.after(now.since(since.max(heard))).min(now),
        None => heard,
    }
}

#[cfg(test)]
mod tests;
