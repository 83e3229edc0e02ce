//! The requests in flight to one member: counted, bounded, and shared fairly between users. Entry
//! items: [`Gate::enter`], [`Place`].
//!
//! Below half of the bound, while nobody waits and nobody is slowed, users are not told apart: a request
//! costs one atomic write when it begins and one when it ends. Otherwise [`Fair`] counts places by user
//! under a lock, and decides who may have one. So a user holds at most three quarters of the
//! bound: half of it uncounted, and then as many as it leaves free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mvp_core::Timestamp;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::fair::{Class, Fair, Flow, Room};

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
    /// It waited for as long as it may, and all places are taken.
    #[error("too many requests are in flight to it; try again")]
    Late,
    /// The same, but places are free: its user holds too many.
    #[error("too many requests of this user are in flight to it; try again")]
    Share,
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

    /// Whether so few are in flight that users are not told apart.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < self.uncounted()
    }

    /// A place, if few are in flight, nobody waits, and nobody is slowed.
    pub(super) fn try_enter(self: &Arc<Gate>) -> Option<Place> {
        if self.busy.load(Ordering::SeqCst) {
            return None;
        }
        reserve(&self.in_flight, self.uncounted()).map(|_| self.place(Kind::Uncounted))
    }

    /// The places for which users are not told apart.
    fn uncounted(&self) -> usize {
        self.bound / 2
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
            Err(_) if self.in_flight.load(Ordering::Relaxed) < self.bound => Err(Refused::Share),
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
            let rooms = [
                (Room::Nodes, &self.of_nodes, for_nodes),
                (Room::Anybody, &self.in_flight, self.bound),
            ];
            rooms.into_iter().find_map(|(room, counter, bound)| {
                let free = if fair.wants(room) { reserve(counter, bound)? } else { return None };
                let Some((user, item)) = fair.pop(room, free) else {
                    counter.fetch_sub(1, Ordering::SeqCst);
                    return None;
                };
                Some((item, Kind::Counted { user, room }))
            })
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

/// Takes a place below `bound`. Returns how many were free.
fn reserve(counter: &AtomicUsize, bound: usize) -> Option<usize> {
    let one_more = |in_flight: usize| (in_flight < bound).then(|| in_flight + 1);
    let before = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
    Some(bound - before)
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
    Uncounted,
    /// Against the bound of this room, and as one of this user.
    Counted { user: u64, room: Room },
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
        if let (Some(gate), Kind::Counted { user, .. }) = (&self.gate, self.kind)
            && gate.busy.load(Ordering::SeqCst)
        {
            gate.change(|fair| fair.served(user));
        }
    }

    /// Ends it, and lets nobody in.
    fn leave(mut self) {
        self.end();
    }

    /// Ends it. Returns the gate if somebody may be next.
    fn end(&mut self) -> Option<Arc<Gate>> {
        let gate = self.gate.take()?;
        match self.kind {
            Kind::Uncounted => gate.in_flight.fetch_sub(1, Ordering::SeqCst),
            Kind::Counted { user, room } => gate.change(|fair| {
                fair.left(user);
                let counter = if room == Room::Nodes { &gate.of_nodes } else { &gate.in_flight };
                counter.fetch_sub(1, Ordering::SeqCst)
            }),
            Kind::Exempt => {
                gate.exempt.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
        };
        gate.busy.load(Ordering::SeqCst).then_some(gate)
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
