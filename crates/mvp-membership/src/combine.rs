//! The members of all sources as one roster. Entry item: [`Combined`]; the rules are in [`merge`].

mod merge;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use mvp_core::Timestamp;
use mvp_proxy::control::{Clock, MemberName, Membership, Roster, Who};

use crate::claim::{Claims, Source};
use merge::{Facts, Merged, merge};
use turns::Turns;

/// How long a roster stays in use. A change of a source replaces it at once; heartbeats do not.
const ROSTER_MAX_AGE: Duration = Duration::from_millis(250);
/// How long an answer at an address is remembered. Deleting the claim of a member for a moment does
/// not make it unverified again.
const ANSWER_MAX_AGE: Duration = Duration::from_secs(600);
/// The most addresses whose answers are remembered: far more than any cluster has.
const MAX_ANSWERS: usize = 4096;

/// Who answered at an address, and when.
#[derive(Debug)]
struct Answer {
    who: Who,
    at: Timestamp,
    /// The ID of the last gateway that answered there. One that steers shares the address with its
    /// server, which answers while the gateway does not run.
    gateway: Option<Arc<str>>,
}

/// This gateway, which is no peer of itself.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// The ID of the local server. `None` for a load balancer.
    pub id: Option<Arc<str>>,
    /// The addresses of this gateway and of its local server, as `HOST:PORT`.
    pub addresses: Vec<Arc<str>>,
    /// How often members are fetched from.
    pub interval: Duration,
}

/// Two members with one ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The ID.
    pub id: Arc<str>,
    /// The address of the member that holds the ID. `None` if this gateway holds it.
    pub has: Option<Arc<str>>,
    /// The address of the other member, which is named `ID@ADDRESS`.
    pub claims: Arc<str>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { id, has, claims } = self;
        match has {
            Some(has) => write!(
                f,
                "two members use the ID {id}, at {has} and at {claims}; the latter is named \
                 {id}@{claims}; give one of them another --server-id"
            ),
            None => write!(
                f,
                "the member at {claims} uses the ID {id} of this gateway, and is named \
                 {id}@{claims}; give one of them another --server-id"
            ),
        }
    }
}

/// A member cannot be forgotten, because a source without heartbeats names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetError {
    /// The name of the member.
    pub member: MemberName,
    /// The name of the source.
    pub source: &'static str,
}

impl fmt::Display for ForgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is listed by {}; remove it there", self.member, self.source)
    }
}

impl std::error::Error for ForgetError {}

/// Several sources as one [`Membership`].
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
    /// Members that an operator forgot: heartbeats up to this time do not count.
    forgotten: BTreeMap<MemberName, Timestamp>,
    conflicts: BTreeSet<Conflict>,
    /// The answers, by address.
    answers: BTreeMap<Arc<str>, Answer>,
    turns: Turns,
    /// The last roster and its time. `None` after a change.
    current: Option<(Timestamp, Roster)>,
}

/// Access to a [`Combined`] that the control loop owns.
#[derive(Debug, Clone)]
pub struct Handle {
    sources: Vec<Source>,
    shared: Arc<Shared>,
}

impl Combined {
    /// Combines sources. Earlier ones take precedence.
    pub fn new(own: Own, clock: Clock, sources: Vec<Source>) -> Combined {
        Combined { sources, shared: Arc::new(Shared { own, clock, state: Mutex::default() }) }
    }

    /// Access to it for other tasks.
    pub fn handle(&self) -> Handle {
        Handle { sources: self.sources.clone(), shared: Arc::clone(&self.shared) }
    }

    fn build(&self, state: &mut State, now: Timestamp) -> Roster {
        let all: Vec<Claims> =
            self.sources.iter().map(|source| source.claims.borrow().clone()).collect();
        let claims = || all.iter().flat_map(|source| &source.claims);
        state.answers.retain(|_, answer| now.since(answer.at) <= ANSWER_MAX_AGE);
        state.forgotten.retain(|name, _| claims().any(|claim| claim.is_named(name)));
        let (own, answers, forgotten) = (&self.shared.own, &state.answers, &state.forgotten);
        let merged = merge(&all, &Facts { own, answers, forgotten, now });
        let Merged { verified, unverified, conflicts } = merged;
        for conflict in conflicts.difference(&state.conflicts) {
            let Conflict { id, claims, .. } = conflict;
            tracing::error!(%id, address = %claims, "member ID conflict: {conflict}");
        }
        state.conflicts = conflicts;
        let members = state.turns.choose(verified, unverified, now);
        let are_all = all.iter().all(|source| source.read && !source.partial);
        Roster { members, complete: are_all && !state.turns.are_due() }
    }
}

impl Membership for Combined {
    fn roster(&self) -> Roster {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        if let Some((at, roster)) = &state.current
            && now.since(*at) < ROSTER_MAX_AGE
        {
            return roster.clone();
        }
        let roster = self.build(&mut state, now);
        state.current = Some((now, roster.clone()));
        roster
    }

    async fn changed(&mut self) {
        let changes = self.sources.iter_mut().map(|source| {
            Box::pin(async {
                // A source that ended keeps its last claims.
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
        self.shared.state().current = None;
    }

    fn answered(&mut self, address: &Arc<str>, who: &Who) {
        let at = self.shared.clock.now();
        let mut state = self.shared.state();
        let is_full = state.answers.len() >= MAX_ANSWERS;
        let before = state.answers.get(address).and_then(|answer| answer.gateway.clone());
        match state.answers.get_mut(address) {
            Some(answer) if answer.who == *who => {
                answer.at = at;
                if *who == Who::Ourselves {
                    state.current = None;
                }
            }
            None if is_full => {}
            _ => {
                if *who == Who::Ourselves {
                    tracing::warn!(%address, "member address leads back to this gateway; ignored");
                }
                let gateway = match who {
                    Who::Gateway { id, .. } => Some(Arc::clone(id)),
                    Who::Server => before,
                    Who::Ourselves => None,
                };
                let answer = Answer { who: who.clone(), at, gateway };
                state.answers.insert(Arc::clone(address), answer);
                state.current = None;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Forgets a member until its next heartbeat. Fails if a source without heartbeats names it.
    pub fn forget(&self, name: &str) -> Result<(), ForgetError> {
        let member = MemberName::parse(name);
        for source in &self.sources {
            let claims = source.claims.borrow();
            if claims.claims.iter().any(|claim| claim.is_named(&member) && claim.heard.is_none()) {
                return Err(ForgetError { member, source: source.name });
            }
        }
        let mut state = self.shared.state();
        state.forgotten.insert(member, self.shared.clock.now());
        state.current = None;
        Ok(())
    }

    /// The problem of each source that an operator must solve.
    pub fn problems(&self) -> Vec<(&'static str, Option<String>)> {
        self.sources.iter().map(|source| (source.name, source.problem())).collect()
    }

    /// The first source that was not read yet.
    pub fn unread(&self) -> Option<&'static str> {
        let unread = self.sources.iter().find(|source| !source.claims.borrow().read);
        unread.map(|source| source.name)
    }

    /// The IDs that two members use.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.shared.state().conflicts.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
