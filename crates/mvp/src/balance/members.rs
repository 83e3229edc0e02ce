//! The members that connections are forwarded to, and what is known of each. Entry items: [`Members`],
//! [`Member`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::order::{Distance, Health, Standing, order};

/// All members, shared by workers, probes and the search for members.
#[derive(Debug)]
pub(super) struct Members {
    list: watch::Sender<Arc<[Arc<Member>]>>,
    /// The address of our own listener.
    listen: SocketAddr,
    turn: AtomicUsize,
    /// Connections that no member could take.
    unserved: AtomicU64,
    /// Whether this process cannot open connections, for want of descriptors or memory.
    short: AtomicBool,
}

impl Members {
    /// The members of `--servers`, and those that are known from an earlier run.
    pub(super) fn new(listen: SocketAddr, seeds: &[Arc<str>], last_known: &[Arc<str>]) -> Members {
        let members = Members {
            list: watch::Sender::new(seeds.iter().map(|seed| Member::new(seed, true)).collect()),
            listen,
            turn: AtomicUsize::default(),
            unserved: AtomicU64::default(),
            short: AtomicBool::default(),
        };
        members.found(last_known);
        members
    }

    /// The cluster names these members. Seeds stay; others that it does not name end. Connections that
    /// are open stay open. Returns whether the members changed.
    pub(super) fn found(&self, addresses: &[Arc<str>]) -> bool {
        if addresses.is_empty() {
            // A cluster without servers could not have answered.
            return false;
        }
        self.list.send_if_modified(|list| {
            let is_named = |member: &Member| addresses.contains(&member.address);
            let mut changed = false;
            for member in list.iter() {
                let found = is_named(member);
                changed |= std::mem::replace(&mut member.state().found, found) != found;
                if !found && !member.seed {
                    member.gone.cancel();
                }
            }
            let kept = list.iter().filter(|member| member.seed || is_named(member)).cloned();
            let new = addresses
                .iter()
                .filter(|&address| !list.iter().any(|member| member.address == *address));
            let new = new.map(|address| {
                let member = Member::new(address, false);
                member.state().found = true;
                member
            });
            let next: Arc<[Arc<Member>]> = kept.chain(new).collect();
            changed |= next.len() != list.len()
                || next.iter().zip(list.iter()).any(|(a, b)| !Arc::ptr_eq(a, b));
            *list = next;
            changed
        })
    }

    /// All members.
    pub(super) fn all(&self) -> Arc<[Arc<Member>]> {
        Arc::clone(&self.list.borrow())
    }

    /// A receiver that is woken when members come or go.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<[Arc<Member>]>> {
        self.list.subscribe()
    }

    /// All members in the order in which a new connection tries them.
    pub(super) fn in_order(&self) -> Vec<Arc<Member>> {
        let all = self.all();
        let standings: Vec<Standing> = all.iter().map(|member| member.standing()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let positions = order(&standings, turn).into_iter();
        positions.filter_map(|position| all.get(position).cloned()).collect()
    }

    /// Whether a connection between these addresses leads back to our own listener.
    pub(super) fn is_ours(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let listens = |ip: IpAddr| self.listen.ip().is_unspecified() || self.listen.ip() == ip;
        let ip = remote.ip().to_canonical();
        remote.port() == self.listen.port() && is_on_this_host(local, remote) && listens(ip)
    }

    /// Logs when this process can open no connections for a reason of its own, and when it can again.
    pub(super) fn note_shortage(&self, own: Option<&io::Error>) {
        let was_short = self.short.swap(own.is_some(), Ordering::Relaxed);
        match own {
            Some(error) if !was_short => {
                tracing::warn!(%error, "cannot open connections to members");
            }
            None if was_short => tracing::info!("connections to members can be opened again"),
            _ => {}
        }
    }

    /// Counts a connection that no member could take.
    pub(super) fn count_unserved(&self) {
        self.unserved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unserved(&self) -> u64 {
        self.unserved.load(Ordering::Relaxed)
    }
}

/// A server, or a name that leads to one.
#[derive(Debug)]
pub(super) struct Member {
    /// `HOST:PORT`.
    pub(super) address: Arc<str>,
    /// Whether `--servers` names it.
    pub(super) seed: bool,
    /// Cancelled when the member is removed.
    pub(super) gone: CancellationToken,
    /// Wakes the probe: something is wrong.
    pub(super) suspect: Notify,
    state: Mutex<State>,
    open: AtomicUsize,
    ends: [AtomicU64; Outcome::ALL.len()],
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) health: Health,
    /// Why it is unhealthy.
    pub(super) problem: Option<String>,
    pub(super) found: bool,
    pub(super) on_this_host: bool,
    pub(super) distance: Distance,
}

impl Member {
    fn new(address: &Arc<str>, seed: bool) -> Arc<Member> {
        Arc::new(Member {
            address: Arc::clone(address),
            seed,
            gone: CancellationToken::new(),
            suspect: Notify::new(),
            state: Mutex::default(),
            open: AtomicUsize::default(),
            ends: Default::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> Standing {
        let open = self.open();
        let State { health, found, on_this_host, distance, .. } = &*self.state();
        let (health, found, on_this_host) = (*health, *found, *on_this_host);
        Standing { health, found, on_this_host, distance: distance.bucket(), open }
    }

    pub(super) fn health(&self) -> Health {
        self.state().health
    }

    /// A probe succeeded.
    pub(super) fn is_healthy(&self) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.health, Health::Healthy);
        state.problem = None;
        drop(state);
        if before != Health::Healthy {
            tracing::info!(member = %self.address, "member healthy");
        }
    }

    /// A connection was established: how long it took, and between which addresses.
    pub(super) fn connected(&self, took: Duration, local: SocketAddr, remote: SocketAddr) {
        let mut state = self.state();
        state.distance.measure(took);
        state.on_this_host = is_on_this_host(local, remote);
    }

    /// A probe or a connection attempt failed.
    pub(super) fn failed(&self, reason: &str) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.health, Health::Unhealthy);
        state.problem = Some(reason.to_owned());
        drop(state);
        if before != Health::Unhealthy {
            tracing::warn!(member = %self.address, reason, "member unhealthy");
        }
    }

    /// The number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection for as long as the guard lives.
    pub(super) fn begin(self: &Arc<Member>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open { member: Arc::clone(self), outcome: Outcome::Cut }
    }

    /// Counts a connection, or an attempt, that ended like this.
    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(count) = self.ends.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many connections ended like this.
    pub(super) fn ended(&self, outcome: Outcome) -> u64 {
        self.ends.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// Whether the other end of a connection is on this host: the kernel uses an address of this host as
/// the source of connections to itself.
fn is_on_this_host(local: SocketAddr, remote: SocketAddr) -> bool {
    let (local, remote) = (local.ip().to_canonical(), remote.ip().to_canonical());
    remote.is_loopback() || local == remote
}

/// How a connection, or the attempt at one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Both sides closed it.
    Closed,
    /// One side reset it.
    Reset,
    /// It was open at the end of the grace period.
    Cut,
    /// The member could not be connected to; the next one was tried.
    ConnectFailed,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 4] =
        [Outcome::Closed, Outcome::Reset, Outcome::Cut, Outcome::ConnectFailed];

    /// The value of the label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Outcome::Closed => "closed",
            Outcome::Reset => "reset",
            Outcome::Cut => "cut",
            Outcome::ConnectFailed => "connect-failed",
        }
    }
}

/// An open connection of a member, counted until this is dropped. Unless it [ends](Open::end), it was
/// cut.
#[derive(Debug)]
pub(super) struct Open {
    member: Arc<Member>,
    outcome: Outcome,
}

impl Open {
    /// It ended like this.
    pub(super) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.member.open.fetch_sub(1, Ordering::Relaxed);
        self.member.count(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<Arc<str>> {
        list.iter().map(|name| Arc::from(*name)).collect()
    }

    fn new(seeds: &[Arc<str>], last_known: &[Arc<str>]) -> Members {
        Members::new("0.0.0.0:7445".parse().unwrap(), seeds, last_known)
    }

    fn known(members: &Members) -> Vec<String> {
        members.all().iter().map(|member| member.address.to_string()).collect()
    }

    #[test]
    fn seeds_stay_and_found_members_follow_the_cluster() {
        let members = new(&names(&["a:1", "b:1"]), &names(&["c:1"]));
        assert_eq!(known(&members), ["a:1", "b:1", "c:1"]);
        let all = members.all();
        let gone = &all[2];
        assert!(members.found(&names(&["b:1", "d:1"])));
        assert_eq!(known(&members), ["a:1", "b:1", "d:1"]);
        assert!(gone.gone.is_cancelled());
        assert!(Arc::ptr_eq(&members.all()[1], &all[1]), "what is known of a member stays");
        let found: Vec<bool> = members.all().iter().map(|member| member.state().found).collect();
        assert_eq!(found, [false, true, true]);
        assert!(!members.found(&names(&["b:1", "d:1"])), "no change");
        assert!(!members.found(&[]), "an empty list is ignored");
        assert_eq!(known(&members).len(), 3);
        assert!(members.found(&names(&["a:1"])));
        assert_eq!(known(&members), ["a:1", "b:1"]);
    }

    #[test]
    fn an_unhealthy_member_is_tried_last_until_a_probe_succeeds() {
        let members = new(&names(&["a:1", "b:1"]), &[]);
        let all = members.all();
        let first = |members: &Members| members.in_order()[0].address.to_string();
        all.iter().for_each(|member| member.is_healthy());
        all[0].failed("connect timed out");
        assert_eq!((first(&members), first(&members)), ("b:1".to_owned(), "b:1".to_owned()));
        all[0].is_healthy();
        all[1].failed("connect timed out");
        assert_eq!(first(&members), "a:1");
    }

    #[test]
    fn connections_are_counted_by_outcome() {
        let members = new(&names(&["a:1"]), &[]);
        let member = &members.all()[0];
        let (one, two) = (member.begin(), member.begin());
        assert_eq!(member.open(), 2);
        one.end(Outcome::Closed);
        drop(two);
        member.count(Outcome::ConnectFailed);
        assert_eq!(member.open(), 0);
        let counts = Outcome::ALL.map(|outcome| member.ended(outcome));
        assert_eq!(counts, [1, 0, 1, 1]);
    }

    #[test]
    fn a_member_on_this_host_is_recognized_by_its_connection() {
        let members = new(&names(&["a:1"]), &[]);
        let member = &members.all()[0];
        for (local, remote, here) in [
            ("10.0.0.1:40000", "10.0.0.1:6443", true),
            ("10.0.0.1:40000", "10.0.0.2:6443", false),
            ("127.0.0.1:40000", "127.0.0.2:6443", true),
            ("[fd00::1]:40000", "[fd00::1]:6443", true),
            ("[fd00::1]:40000", "[fd00::2]:6443", false),
        ] {
            member.connected(Duration::ZERO, local.parse().unwrap(), remote.parse().unwrap());
            assert_eq!(member.state().on_this_host, here, "{local} {remote}");
        }
        let ours = |local: &str, remote: &str| {
            members.is_ours(local.parse().unwrap(), remote.parse().unwrap())
        };
        assert!(ours("10.0.0.1:40000", "10.0.0.1:7445"), "it listens on all addresses");
        assert!(!ours("10.0.0.1:40000", "10.0.0.1:6443"));
        assert!(!ours("10.0.0.1:40000", "10.0.0.2:7445"), "the same port of another node");
    }
}
