//! Who may have a place in flight, and who is next, without I/O and clock. Entry item: [`Fair`].
//!
//! A user may take one more place as long as it holds fewer than are free: whatever one user sends
//! and however long it lasts, as many places as it holds are left for others, and the same is true of
//! what those leave. Users take turns, whatever the number of their requests. Nodes have places of
//! their own, and every other turn for the places of everybody: they never starve others. The number
//! that waits is bounded: of each user, and in total; if nobody more may wait, a user with more waiting
//! requests than the newcomer loses the last one. A user whose requests the member itself refuses with
//! 429 gets fewer in flight: half as many at most once a second, and more with each round of successes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mvp_core::Timestamp;

/// The part of all waiting requests, as a divisor, that one user may have.
const SHARE: usize = 4;
/// The users that are slowed at the same time, at most.
const MAX_SLOWED: usize = 256;
/// How often the requests of a user are halved, at most.
const SLOWED_EVERY: Duration = Duration::from_secs(1);
/// How long a user is slowed after the last 429.
const SLOWED_FOR: Duration = Duration::from_secs(30);
/// The part of the bound, as a divisor, that a user has in flight after the first 429.
const FIRST: usize = 8;
/// The part of that, as a divisor, that is added after a round of successes.
const STEP: usize = 16;

/// Who sends a request: a hash of the user, and what the user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) hash: u64,
    pub(super) class: Class,
}

/// What a user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Never waits: `system:masters`, and gateways themselves.
    Exempt,
    /// Has places of its own, and every other turn: `system:nodes`.
    Node,
    /// Anybody else.
    Other,
}

/// Who may be next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Nodes alone: it is one of their own places.
    Nodes,
    /// Anybody.
    Anybody,
}

/// The requests that wait for a member, the places that users hold, and the users that are slowed.
#[derive(Debug)]
pub(super) struct Fair<T> {
    nodes: Queue<T>,
    others: Queue<T>,
    /// The places that were given here, by user.
    held: HashMap<u64, usize>,
    slowed: HashMap<u64, Slowed>,
    /// The bound of requests in flight.
    bound: usize,
    max_waiting: usize,
    next_ticket: u64,
    /// Whether the last place of everybody went to a node.
    node_was_last: bool,
}

#[derive(Debug)]
struct Queue<T> {
    users: HashMap<u64, VecDeque<(u64, T)>>,
    /// The users with waiting requests, the next one first.
    turns: VecDeque<u64>,
    length: usize,
}

#[derive(Debug)]
struct Slowed {
    limit: usize,
    successes: usize,
    since: Timestamp,
}

impl<T> Fair<T> {
    /// Nobody waits. `bound` is that of requests in flight, `max_waiting` that of waiting ones.
    pub(super) fn new(bound: usize, max_waiting: usize) -> Fair<T> {
        let (nodes, others) = (Queue::new(), Queue::new());
        let (held, slowed) = (HashMap::new(), HashMap::new());
        let (next_ticket, node_was_last) = (0, false);
        Fair { nodes, others, held, slowed, bound, max_waiting, next_ticket, node_was_last }
    }

    /// Whether anybody waits or is slowed.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting() > 0 || !self.slowed.is_empty()
    }

    /// Whether anybody waits that may have places in this room.
    pub(super) fn wants(&self, room: Room) -> bool {
        self.nodes.length > 0 || (room == Room::Anybody && self.others.length > 0)
    }

    /// Whether nobody waits, holds a place or is slowed.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_busy() && self.held.is_empty()
    }

    fn waiting(&self) -> usize {
        self.nodes.length + self.others.length
    }

    /// Adds a request. Returns its ticket, and the request that lost its place to it, if one did;
    /// `None` if there is no place.
    pub(super) fn push(&mut self, flow: Flow, item: T) -> Option<(u64, Option<T>)> {
        let own = self.queue(flow).users.get(&flow.hash).map_or(0, VecDeque::len);
        if own >= self.max_waiting.div_ceil(SHARE) {
            return None;
        }
        let lost = if self.waiting() >= self.max_waiting {
            // Nodes lose theirs only to nodes, and others lose theirs to any node.
            let is_node = flow.class != Class::Other;
            let has_more = |(_, longest): &(u64, usize)| *longest > own + 1;
            let from_others = self.others.longest().filter(|longest| is_node || has_more(longest));
            let from_nodes = self.nodes.longest().filter(has_more);
            match (from_others, from_nodes, flow.class) {
                (Some((user, _)), ..) => self.others.pop_last(user),
                (None, Some((user, _)), Class::Node | Class::Exempt) => self.nodes.pop_last(user),
                _ => return None,
            }
        } else {
            None
        };
        let ticket = self.ticket();
        self.queue(flow).push(flow.hash, ticket, item);
        Some((ticket, lost))
    }

    /// Takes the request that is next, of those whose users may have one more of the places in `room`,
    /// of which so many are `free`. Returns its user, whose place it holds until [`Fair::left`].
    pub(super) fn pop(&mut self, room: Room, free: usize) -> Option<(u64, T)> {
        let (user, item) = match room {
            Room::Nodes => self.pop_node(free),
            Room::Anybody => {
                // Nodes and others take turns.
                let other = if self.node_was_last { self.pop_other(free) } else { None };
                let node = if other.is_none() { self.pop_node(free) } else { None };
                self.node_was_last = node.is_some();
                other.or(node).or_else(|| self.pop_other(free))
            }
        }?;
        *self.held.entry(user).or_default() += 1;
        Some((user, item))
    }

    fn pop_node(&mut self, free: usize) -> Option<(u64, T)> {
        let Fair { nodes, held, .. } = self;
        nodes.pop(|user| holds(held, user) < free)
    }

    fn pop_other(&mut self, free: usize) -> Option<(u64, T)> {
        let Fair { others, held, slowed, .. } = self;
        others.pop(|user| {
            let limit = slowed.get(&user).map_or(usize::MAX, |slowed| slowed.limit);
            holds(held, user) < limit.min(free)
        })
    }

    /// Removes a request that waits no longer.
    pub(super) fn remove(&mut self, flow: Flow, ticket: u64) {
        self.queue(flow).remove(flow.hash, ticket);
    }

    /// Notes that the user has one place less.
    pub(super) fn left(&mut self, user: u64) {
        if let Entry::Occupied(mut held) = self.held.entry(user) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Notes that the member refused a request of this user with 429. Returns whether fewer of them
    /// may be in flight now.
    pub(super) fn refused(&mut self, user: u64, now: Timestamp) -> bool {
        let first = self.first();
        match self.slowed.get_mut(&user) {
            Some(slowed) if now.since(slowed.since) >= SLOWED_EVERY => {
                let before = slowed.limit;
                slowed.limit = (before / 2).max(1);
                (slowed.since, slowed.successes) = (now, 0);
                slowed.limit < before
            }
            Some(_) => false,
            None => {
                self.sweep(now);
                let has_room = self.slowed.len() < MAX_SLOWED;
                if has_room {
                    self.slowed.insert(user, Slowed { limit: first, successes: 0, since: now });
                }
                has_room
            }
        }
    }

    /// Notes that the member served a request of this user, which may be slowed.
    pub(super) fn served(&mut self, user: u64) {
        let first = self.first();
        let Some(slowed) = self.slowed.get_mut(&user) else { return };
        slowed.successes += 1;
        if slowed.successes >= slowed.limit {
            slowed.successes = 0;
            slowed.limit += first.div_ceil(STEP);
        }
        if slowed.limit >= first.saturating_mul(2) {
            self.slowed.remove(&user);
        }
    }

    /// Forgets users that had no 429 for a while.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.slowed.retain(|_, slowed| now.since(slowed.since) < SLOWED_FOR);
    }

    fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        ticket
    }

    fn first(&self) -> usize {
        (self.bound / FIRST).max(1)
    }

    fn queue(&mut self, flow: Flow) -> &mut Queue<T> {
        match flow.class {
            Class::Node | Class::Exempt => &mut self.nodes,
            Class::Other => &mut self.others,
        }
    }
}

fn holds(held: &HashMap<u64, usize>, user: u64) -> usize {
    held.get(&user).copied().unwrap_or_default()
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        Queue { users: HashMap::new(), turns: VecDeque::new(), length: 0 }
    }

    fn push(&mut self, user: u64, ticket: u64, item: T) {
        let waiting = self.users.entry(user).or_default();
        if waiting.is_empty() {
            self.turns.push_back(user);
        }
        waiting.push_back((ticket, item));
        self.length += 1;
    }

    /// Takes the first request of the next user that `may` have one more in flight.
    fn pop(&mut self, may: impl Fn(u64) -> bool) -> Option<(u64, T)> {
        let turn = self.turns.iter().position(|user| may(*user))?;
        let user = self.turns.remove(turn)?;
        let waiting = self.users.get_mut(&user)?;
        let (_, item) = waiting.pop_front()?;
        self.length -= 1;
        if waiting.is_empty() {
            self.users.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        Some((user, item))
    }

    /// The user with the most waiting requests, and their number.
    fn longest(&self) -> Option<(u64, usize)> {
        let lengths = self.users.iter().map(|(user, waiting)| (*user, waiting.len()));
        lengths.max_by_key(|(_, length)| *length)
    }

    fn pop_last(&mut self, user: u64) -> Option<T> {
        let (ticket, _) = self.users.get(&user)?.back()?;
        self.remove(user, *ticket)
    }

    fn remove(&mut self, user: u64, ticket: u64) -> Option<T> {
        let waiting = self.users.get_mut(&user)?;
        let index = waiting.iter().position(|(other, _)| *other == ticket)?;
        let (_, item) = waiting.remove(index)?;
        self.length -= 1;
        if waiting.is_empty() {
            self.users.remove(&user);
            self.turns.retain(|other| *other != user);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests;
