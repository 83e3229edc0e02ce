//! The requests in flight to one member: counted, bounded, and shared fairly between users. Entry
//! items: [`Gate::enter`], [`Place`].
//!
//! While the bound is not reached, nobody waits and nobody is slowed, a request costs one atomic
//! write when it begins and one when it ends. Otherwise [`Fair`] decides under a lock who is next.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mvp_core::Timestamp;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::fair::{Admitted, Class, Fair, Flow, Room, Slow};

/// How long a request waits for its turn.
const WAIT: Duration = Duration::from_secs(1);
/// The most requests that wait for a member.
const MAX_WAITING: usize = 1000;
/// The part of the bound, as a divisor, that nodes have besides it.
const FOR_NODES: usize = 4;

/// The requests in flight to one member.
#[derive(Debug)]
pub(super) struct Gate {
    /// The most requests in flight; nodes may have some more, and exempt users any number.
    bound: usize,
    in_flight: AtomicUsize,
    /// Those of nodes in places of their own, which do not count against the bound.
    of_nodes: AtomicUsize,
    /// Those of exempt users that found no usual place. They do not count against the bound; below
    /// it, exempt users have usual places, as anybody, because nobody is told apart there.
    exempt: AtomicUsize,
    /// Whether anybody waits or is slowed. Written under the lock of `fair`.
    busy: AtomicBool,
    fair: Mutex<Fair<oneshot::Sender<Place>>>,
}

/// Why a request may not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Refused {
    /// Too many wait already.
    #[error("too many requests wait for it; try again")]
    Full,
    /// It waited for as long as it may.
    #[error("too many requests are in flight to it; try again")]
    Late,
}

impl Default for Gate {
    /// A gate without a bound.
    fn default() -> Gate {
        Gate::new(0)
    }
}

impl Gate {
    /// A gate with this bound; 0 for none.
    pub(super) fn new(bound: usize) -> Gate {
        let bound = if bound == 0 { usize::MAX } else { bound };
        let fair = Mutex::new(Fair::new(bound, MAX_WAITING));
        let [in_flight, of_nodes, exempt] = [0; 3].map(AtomicUsize::new);
        Gate { bound, in_flight, of_nodes, exempt, busy: AtomicBool::new(false), fair }
    }

    /// The number of requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        let counters = [&self.in_flight, &self.of_nodes, &self.exempt];
        counters.map(|counter| counter.load(Ordering::Relaxed)).into_iter().sum()
    }

    /// Whether a place is free that anybody may have.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < self.bound
    }

    /// A place, if there is one, nobody waits, and nobody is slowed.
    pub(super) fn try_enter(self: &Arc<Gate>) -> Option<Place> {
        let is_free = !self.busy.load(Ordering::SeqCst) && reserve(&self.in_flight, self.bound);
        is_free.then(|| self.place(Kind::Usual))
    }

    /// A place, after the requests of others if there is none. Waits for [`WAIT`].
    pub(super) async fn enter(
        self: &Arc<Gate>,
        flow: Flow,
        now: Timestamp,
    ) -> Result<Place, Refused> {
        if flow.class == Class::Exempt {
            self.exempt.fetch_add(1, Ordering::Relaxed);
            return Ok(self.place(Kind::Exempt));
        }
        let (sender, mut receiver) = oneshot::channel();
        let waiting = self.push(flow, sender, now)?;
        self.dispatch();
        match receiver.try_recv() {
            Ok(place) => return Ok(place),
            Err(TryRecvError::Closed) => return Err(Refused::Full),
            Err(TryRecvError::Empty) => {}
        }
        let entered = timeout(WAIT, receiver).await;
        drop(waiting);
        match entered {
            Ok(Ok(mut place)) => {
                place.waited = true;
                Ok(place)
            }
            Ok(Err(_)) => Err(Refused::Full),
            Err(_) => Err(Refused::Late),
        }
    }

    /// Notes that the member refused a request of this user with 429. Returns whether fewer of them
    /// may be in flight now.
    pub(super) fn slow(&self, flow: Flow, now: Timestamp) -> bool {
        flow.class == Class::Other
            && self.bound < usize::MAX
            && self.change(|fair| fair.refused(flow.hash, now))
    }

    fn push(
        self: &Arc<Gate>,
        flow: Flow,
        sender: oneshot::Sender<Place>,
        now: Timestamp,
    ) -> Result<Waiting, Refused> {
        let pushed = self.change(|fair| {
            fair.sweep(now);
            fair.push(flow, sender)
        });
        let (ticket, lost) = pushed.ok_or(Refused::Full)?;
        // Its receiver learns it.
        drop(lost);
        Ok(Waiting { gate: Arc::clone(self), flow, ticket })
    }

    /// Gives places to those who are next.
    fn dispatch(self: &Arc<Gate>) {
        while let Some((item, kind)) = self.next() {
            if let Err(place) = item.send(self.place(kind)) {
                // Nobody waits for it any more. Not its `drop`, which would come back here.
                place.leave();
            }
        }
    }

    /// The request that is next, with a place in flight.
    fn next(&self) -> Option<(oneshot::Sender<Place>, Kind)> {
        // The lock is held meanwhile: a place that is reserved for nothing could otherwise keep
        // somebody else waiting.
        self.change(|fair| {
            let for_nodes = self.bound.div_ceil(FOR_NODES);
            let (room, counter) = if fair.has_nodes() && reserve(&self.of_nodes, for_nodes) {
                (Room::Nodes, &self.of_nodes)
            } else if reserve(&self.in_flight, self.bound) {
                (Room::Anybody, &self.in_flight)
            } else {
                return None;
            };
            let Some(Admitted { item, slowed }) = fair.pop(room) else {
                counter.fetch_sub(1, Ordering::SeqCst);
                return None;
            };
            let kind = match (room, slowed) {
                (Room::Nodes, _) => Kind::Node,
                (Room::Anybody, Some(slow)) => Kind::Slowed(slow),
                (Room::Anybody, None) => Kind::Usual,
            };
            Some((item, kind))
        })
    }

    fn place(self: &Arc<Gate>, kind: Kind) -> Place {
        Place { gate: Some(Arc::clone(self)), kind, waited: false }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Fair<oneshot::Sender<Place>>) -> R) -> R {
        let mut fair = self.fair();
        let result = change(&mut fair);
        self.busy.store(fair.is_busy(), Ordering::SeqCst);
        result
    }

    fn fair(&self) -> MutexGuard<'_, Fair<oneshot::Sender<Place>>> {
        self.fair.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a place below `bound`.
fn reserve(counter: &AtomicUsize, bound: usize) -> bool {
    let one_more = |in_flight: usize| (in_flight < bound).then(|| in_flight + 1);
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
}

/// A guard that counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` once it was left.
    gate: Option<Arc<Gate>>,
    kind: Kind,
    /// Whether the request waited for it.
    waited: bool,
}

/// How a place is counted.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Against the bound.
    Usual,
    /// The same, and against the limit of this slowed user.
    Slowed(Slow),
    /// Against the places of nodes.
    Node,
    /// It only adds to the load.
    Exempt,
}

impl Place {
    /// Whether the request waited for it.
    pub(super) fn waited(&self) -> bool {
        self.waited
    }

    /// Notes that the member served the request.
    pub(super) fn served(&self) {
        if let (Some(gate), Kind::Slowed(slow)) = (&self.gate, self.kind) {
            gate.change(|fair| fair.served(slow));
        }
    }

    /// Ends it, and lets nobody in.
    fn leave(mut self) {
        self.end();
    }

    /// Ends it. Returns the gate if somebody may be next.
    fn end(&mut self) -> Option<Arc<Gate>> {
        let gate = self.gate.take()?;
        if let Kind::Exempt = self.kind {
            gate.exempt.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let counter = if let Kind::Node = self.kind { &gate.of_nodes } else { &gate.in_flight };
        counter.fetch_sub(1, Ordering::SeqCst);
        if !gate.busy.load(Ordering::SeqCst) {
            return None;
        }
        if let Kind::Slowed(slow) = self.kind {
            gate.change(|fair| fair.left(slow));
        }
        Some(gate)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = self.end() {
            gate.dispatch();
        }
    }
}

/// A request that waits. It is removed when this is dropped.
struct Waiting {
    gate: Arc<Gate>,
    flow: Flow,
    ticket: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gate.change(|fair| fair.remove(self.flow, self.ticket));
    }
}

#[cfg(test)]
mod tests;
