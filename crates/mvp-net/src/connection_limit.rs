//! The limit of open client connections. Entry: [`ConnectionLimit`].
//!
//! A connection counts from accept to the end of its stream, also after an upgrade. At the limit, the
//! oldest connection that never had a request is cut, or else one that has been idle for a while, so
//! that unused connections do not keep new clients out.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::serve::Activity;

/// The age from which a connection may be cut to make room.
const LEAST_AGE: Duration = Duration::from_secs(1);
/// The time after a shortage of descriptors, or a connection over the limit, in which the next one would
/// fail, too.
const SHORTAGE: Duration = Duration::from_secs(2);
/// The part of the limit, as a divisor, that must be free after a shortage.
const RESERVE: usize = 16;
/// The most connections that are examined to find an idle one.
const EXAMINED: usize = 64;

/// A limit of open client connections, with counters. Clones share both: use one for all listeners of
/// a process.
///
/// The default is no limit.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: usize,
    per_address: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    opened: u64,
    open: usize,
    refused: u64,
    evicted: u64,
    idle: u64,
    addresses: HashMap<IpAddr, usize>,
    /// Connections by age, the oldest first. Those that had a request are moved to `used` later.
    unused: BTreeMap<u64, Candidate>,
    /// Connections that had a request, examined in turn.
    used: BTreeMap<u64, Candidate>,
    next: u64,
    /// The last time that a connection could not be accepted or served for want of descriptors or room.
    short: Option<Instant>,
}

/// A connection that may be cut to make room.
#[derive(Debug)]
struct Candidate {
    /// The last time that it was known to be in use.
    since: Instant,
    /// The number of requests at that time.
    started: usize,
    activity: Arc<Activity>,
    /// The task that serves it; `None` until it is spawned.
    task: Option<AbortHandle>,
}

impl ConnectionLimit {
    /// Allows `total` open connections, and `per_address` from one IP address.
    ///
    /// At the total limit, the oldest connection that never had a request and is older than a second
    /// is cut, or else one that was idle for a second. If there is none, the new connection is
    /// refused. At the limit of its address, a new connection is refused.
    pub fn new(total: usize, per_address: Option<usize>) -> Self {
        let shared = Shared { total, per_address, state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The most connections that may be open.
    pub fn total(&self) -> usize {
        self.shared.total
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.shared.state().open
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> u64 {
        self.shared.state().refused
    }

    /// The number of connections that were cut to make room for others.
    pub fn evicted(&self) -> u64 {
        self.shared.state().evicted
    }

    /// The number of connections that were closed because they had no request for a while.
    pub fn idle(&self) -> u64 {
        self.shared.state().idle
    }

    /// Notes that a connection is closed because it had no request for a while.
    pub(crate) fn note_idle(&self) {
        self.shared.state().idle += 1;
    }

    /// Admits a new connection from this address; `None` if it is refused.
    pub(crate) fn admit(&self, address: IpAddr, activity: &Arc<Activity>) -> Option<Permit> {
        let address = address.to_canonical();
        let Shared { total, per_address, .. } = *self.shared;
        let state = &mut *self.shared.state();
        let from_address = state.addresses.get(&address).copied().unwrap_or_default();
        let fits = per_address.is_none_or(|bound| from_address < bound)
            && (state.open < total || state.evict());
        if !fits {
            state.refused += 1;
            if state.open >= total {
                state.short = Some(Instant::now());
            }
            return None;
        }
        state.open += 1;
        state.opened += 1;
        let number = state.opened;
        if per_address.is_some() {
            state.addresses.insert(address, from_address + 1);
        }
        let (since, activity) = (Instant::now(), Arc::clone(activity));
        state.unused.insert(number, Candidate { since, started: 0, activity, task: None });
        Some(Permit { shared: Arc::clone(&self.shared), number, address })
    }

    /// Whether new connections can be expected to find descriptors and room. After a shortage, not for
    /// two seconds, and not before some room is free; idle connections are cut for it.
    pub fn has_room(&self) -> bool {
        let total = self.shared.total;
        let state = &mut *self.shared.state();
        if state.short.is_some_and(|since| since.elapsed() < SHORTAGE) {
            return false;
        }
        // With the first free place alone, most of the next connections would be refused again.
        if state.short.is_some() && state.open > total - total.div_ceil(RESERVE) {
            state.evict();
            return false;
        }
        state.short = None;
        true
    }

    /// A connection could not be accepted, or not be served, because this process or host is short of
    /// something: descriptors, memory, ports.
    pub fn note_shortage(&self) {
        self.shared.state().short = Some(Instant::now());
    }

    /// Sets the task that serves a connection.
    pub(crate) fn is_served_by(&self, number: u64, task: AbortHandle) {
        // It may have ended already.
        if let Some(unused) = self.shared.state().unused.get_mut(&number) {
            unused.task = Some(task);
        }
    }

    /// Cuts the oldest connection that never had a request, such as one whose handshake takes long.
    /// Returns whether there was one.
    pub(crate) fn make_room_for_handshake(&self) -> bool {
        let state = &mut *self.shared.state();
        let cut = state.evict_unused();
        state.evicted += u64::from(cut);
        cut
    }

    /// Cuts up to `number` connections to free descriptors. Returns whether any was cut.
    pub(crate) fn make_room(&self, number: usize) -> bool {
        let state = &mut *self.shared.state();
        (0..number).take_while(|_| state.evict()).count() > 0
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(usize::MAX, None)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Cuts a connection. It counts as open until its stream is dropped.
    fn evict(&mut self) -> bool {
        let evicted = self.evict_unused() || self.evict_idle();
        self.evicted += u64::from(evicted);
        evicted
    }

    /// Cuts the oldest connection that never had a request.
    fn evict_unused(&mut self) -> bool {
        while let Some(oldest) = self.unused.first_entry() {
            let unused = oldest.get();
            let started = unused.activity.started();
            if started > 0 {
                let (number, unused) = oldest.remove_entry();
                self.used.insert(number, Candidate { since: Instant::now(), started, ..unused });
                continue;
            }
            let cut = unused.since.elapsed() >= LEAST_AGE && unused.cut();
            if cut {
                oldest.remove();
            }
            return cut;
        }
        false
    }

    /// Cuts a connection that was idle since it was last examined, at least `LEAST_AGE` ago.
    fn evict_idle(&mut self) -> bool {
        let in_turn = self.used.range(self.next..).chain(self.used.range(..self.next));
        let in_turn: Vec<u64> = in_turn.take(EXAMINED).map(|(number, _)| *number).collect();
        for number in in_turn {
            self.next = number + 1;
            let Some(used) = self.used.get_mut(&number) else { continue };
            if !used.is_idle() {
                (used.since, used.started) = (Instant::now(), used.activity.started());
            } else if used.since.elapsed() >= LEAST_AGE && used.cut() {
                self.used.remove(&number);
                return true;
            }
        }
        false
    }
}

impl Candidate {
    /// Whether it has no request, and had none since it was last examined.
    fn is_idle(&self) -> bool {
        let activity = &self.activity;
        activity.counts() == (self.started, 0) && !activity.upgraded()
    }

    fn cut(&self) -> bool {
        self.task.as_ref().map(AbortHandle::abort).is_some()
    }
}

/// The permit of one connection, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    shared: Arc<Shared>,
    number: u64,
    address: IpAddr,
}

impl Permit {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let state = &mut *self.shared.state();
        state.open = state.open.saturating_sub(1);
        state.unused.remove(&self.number);
        state.used.remove(&self.number);
        if let Some(count) = state.addresses.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::Guard;
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A connection that lasts until it is cut.
    fn open(limit: &ConnectionLimit, activity: &Arc<Activity>) -> bool {
        let Some(permit) = limit.admit(HERE, activity) else {
            return false;
        };
        let number = permit.number();
        let task = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(permit);
        });
        limit.is_served_by(number, task.abort_handle());
        true
    }

    async fn has_open(limit: &ConnectionLimit, number: usize) {
        while limit.open() != number {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shortage_is_remembered_for_two_seconds() {
        let limit = ConnectionLimit::new(1, Some(1));
        assert!(limit.has_room());
        assert!(open(&limit, &Arc::default()));
        assert!(limit.has_room());
        assert!(!open(&limit, &Arc::default()));
        assert!(!limit.has_room());
        tokio::time::advance(SHORTAGE).await;
        assert!(!limit.has_room(), "no place is free");
        has_open(&limit, 0).await;
        assert!(limit.has_room(), "an unused connection was cut");
        limit.note_shortage();
        assert!(!limit.has_room());
        tokio::time::advance(SHORTAGE).await;
        assert!(limit.has_room());
        // The limit of one address is no shortage.
        let limit = ConnectionLimit::new(5, Some(1));
        assert!(open(&limit, &Arc::default()) && !open(&limit, &Arc::default()));
        assert!(limit.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_room_as_long_as_all_connections_are_busy() {
        let limit = ConnectionLimit::new(32, None);
        let activity = Arc::<Activity>::default();
        let busy = Guard::new(Arc::clone(&activity));
        let permits: Vec<_> = (0..32).map(|_| limit.admit(HERE, &activity).unwrap()).collect();
        assert!(limit.has_room(), "nobody was refused");
        assert!(limit.admit(HERE, &activity).is_none());
        tokio::time::advance(SHORTAGE * 100).await;
        assert!(!limit.has_room());
        let mut permits = permits.into_iter();
        drop(permits.next());
        assert!(!limit.has_room(), "one free place is too few");
        drop(permits.next());
        assert!(limit.has_room());
        assert_eq!(limit.evicted(), 0);
        drop((busy, permits));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_unused_connection_makes_room() {
        let limit = ConnectionLimit::new(3, None);
        let [used, unused, young]: [Arc<Activity>; 3] = Default::default();
        assert!(open(&limit, &used));
        assert!(open(&limit, &unused));
        tokio::time::advance(LEAST_AGE).await;
        drop(Guard::new(Arc::clone(&used)));
        assert!(open(&limit, &young));

        assert!(open(&limit, &young), "in the place of the unused one");
        has_open(&limit, 3).await;
        assert_eq!((limit.refused(), limit.evicted()), (0, 1));
        assert!(!open(&limit, &young), "the others are used or young");
        assert_eq!((limit.open(), limit.refused(), limit.evicted()), (3, 1, 1));
        let busy = Guard::new(Arc::clone(&used));
        tokio::time::advance(LEAST_AGE).await;
        assert!(limit.make_room(5));
        has_open(&limit, 1).await;
        assert!(!limit.make_room(5), "a connection with a request is never cut");
        assert_eq!(limit.evicted(), 3);

        drop(busy);
        assert!(!limit.make_room(5), "it was busy a moment ago");
        tokio::time::advance(LEAST_AGE).await;
        drop(Guard::new(Arc::clone(&used)));
        assert!(!limit.make_room(5), "it had another request meanwhile");
        tokio::time::advance(LEAST_AGE).await;
        assert!(limit.make_room(5), "it is idle");
        has_open(&limit, 0).await;
    }

    #[tokio::test]
    async fn connections_are_limited_per_address() {
        let limit = ConnectionLimit::new(usize::MAX, Some(2));
        let activity = Arc::default();
        let mapped = "::ffff:127.0.0.1".parse().unwrap();
        let first = limit.admit(HERE, &activity).unwrap();
        let _second = limit.admit(mapped, &activity).unwrap();
        assert!(limit.admit(HERE, &activity).is_none());
        let _other = limit.admit("127.0.0.2".parse().unwrap(), &activity).unwrap();
        assert_eq!((limit.open(), limit.refused()), (3, 1));
        drop(first);
        assert!(limit.admit(HERE, &activity).is_some());
        assert_eq!(limit.shared.state().addresses.len(), 2);
    }
}
