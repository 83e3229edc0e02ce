//! Members, of all that sources claim. Entry item: [`Combined`]; what it decides is in [`merge`].

mod merge;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use mvp_core::Timestamp;
use mvp_proxy::control::{Clock, MemberRecord, Membership, Who};

use crate::claim::{Claims, Source};
use merge::{Known, Merged, merge};
use turns::Turns;

/// Heartbeats and the passing of time are looked at so often; all else at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// So long it is known who answered at an address, claimed or not: whoever takes away the claim of a
/// member for a moment does not make a stranger of it.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// No cluster comes near this.
const MAX_KNOWN: usize = 4096;

/// Who answered at an address, and when it last did.
#[derive(Debug)]
struct Answer {
    who: Who,
    at: Timestamp,
}

/// Ourselves, who are nobody's peer.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Our ID; a load balancer has none.
    pub id: Option<Arc<str>>,
    /// Where we and our local server are reached: `HOST:PORT` each.
    pub addresses: Vec<Arc<str>>,
    /// How often we ask members.
    pub interval: Duration,
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

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Conflict { id, has, claims } = self;
        match has {
            Some(has) => write!(
                f,
                "two members go by the ID {id}, at {has} and at {claims}: the latter is known as \
                 {id}@{claims}; give one of them another --server-id"
            ),
            None => write!(
                f,
                "a member at {claims} goes by our own ID {id}: it is known as {id}@{claims}; give \
                 one of us another --server-id"
            ),
        }
    }
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
    /// Who answered at which address.
    answered: BTreeMap<Arc<str>, Answer>,
    turns: Turns,
    /// What came of the last look; nothing after a change.
    looked: Option<Looked>,
}

/// Who the members were at one moment.
#[derive(Debug)]
struct Looked {
    at: Timestamp,
    members: Vec<MemberRecord>,
    /// Whether these are all.
    complete: bool,
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

    fn look(&self, state: &mut State, now: Timestamp) -> Looked {
        let all: Vec<Claims> =
            self.sources.iter().map(|source| source.claims.borrow().clone()).collect();
        let claims = || all.iter().flat_map(|source| &source.claims);
        state.answered.retain(|_, answer| now.since(answer.at) <= KNOWN_FOR);
        state.forgotten.retain(|name, _| claims().any(|claim| claim.is_named(name)));
        let (own, answered, forgotten) = (&self.shared.own, &state.answered, &state.forgotten);
        let Merged { members, conflicts } = merge(&all, &Known { own, answered, forgotten, now });
        for conflict in conflicts.difference(&state.conflicts) {
            tracing::error!("{conflict}");
        }
        state.conflicts = conflicts;
        let members = state.turns.choose(members, now);
        let are_all = all.iter().all(|source| source.read && !source.partial);
        let complete = are_all && !state.turns.are_due();
        Looked { at: now, members, complete }
    }

    /// What came of the last look, or of one now.
    fn looked<T>(&self, take: impl FnOnce(&Looked) -> T) -> T {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        if let Some(looked) = &state.looked
            && now.since(looked.at) < LOOK_INTERVAL
        {
            return take(looked);
        }
        let looked = self.look(&mut state, now);
        take(state.looked.insert(looked))
    }
}

impl Membership for Combined {
    fn members(&self) -> Vec<MemberRecord> {
        self.looked(|looked| looked.members.clone())
    }

    /// Of the same look as the members, if that was a moment ago.
    fn complete(&self) -> bool {
        self.looked(|looked| looked.complete)
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
        self.shared.state().looked = None;
    }

    fn answered(&mut self, address: &Arc<str>, who: &Who) {
        let at = self.shared.clock.now();
        let mut state = self.shared.state();
        let full = state.answered.len() >= MAX_KNOWN;
        match state.answered.get_mut(address) {
            Some(answer) if answer.who == *who => {
                answer.at = at;
                if *who == Who::Ourselves {
                    state.looked = None;
                }
            }
            None if full => {}
            _ => {
                if *who == Who::Ourselves {
                    tracing::warn!("a member at {address} is this gateway itself, nobody's peer");
                }
                state.answered.insert(Arc::clone(address), Answer { who: who.clone(), at });
                state.looked = None;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Whatever was heard of a member so far counts for nothing. Fails where a source vouches for it.
    pub fn forget(&self, name: &str) -> Result<(), String> {
        for source in &self.sources {
            let claims = source.claims.borrow();
            if claims.claims.iter().any(|claim| claim.is_named(name) && claim.heard.is_none()) {
                return Err(format!("{name} is named by {}; take it out there", source.name));
            }
        }
        let mut state = self.shared.state();
        state.forgotten.insert(name.into(), self.shared.clock.now());
        state.looked = None;
        Ok(())
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
        self.shared.state().conflicts.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
