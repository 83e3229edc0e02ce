//! Round after round: look, end some connections at rest, wait. Entry: [`run`].
//!
//! Only what was seen a moment before is ended: each round looks again, and ends at most as many as
//! the rate allows for the time between two rounds.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A connection that is not steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found<C> {
    pub(super) connection: C,
    pub(super) at_rest: bool,
    pub(super) idle: Duration,
}

/// What the rounds look at and change.
pub(super) trait Host {
    type Connection;

    /// Fails if connections must not be ended now.
    fn may_go_on(&mut self) -> anyhow::Result<()>;

    /// The connections of clients that are not steered, by their cookies.
    fn look(&mut self) -> anyhow::Result<HashMap<u64, Found<Self::Connection>>>;

    /// Drops what the last look found, but for these.
    fn keep_only(&mut self, cookies: &dyn Fn(u64) -> bool);

    /// Ends a connection. Returns whether it was still there.
    fn end(&mut self, connection: &Self::Connection) -> anyhow::Result<bool>;

    /// Waits for the next round. Returns whether there is time for one.
    fn wait(&mut self, ended: usize, left: usize) -> bool;
}

/// The limits of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The most connections to end in one round.
    pub(super) rate: usize,
    /// Whether only connections of the first round are ended. Otherwise clients that come back to the
    /// server would be cut off again and again.
    pub(super) only_first: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) ended: usize,
    /// Why it stopped early.
    pub(super) failed: Option<anyhow::Error>,
}

/// Ends connections until none is left, or the time is over. What is left then is what the last look
/// found.
pub(super) fn run<H: Host>(host: &mut H, limits: Limits) -> Done {
    let mut done = Done::default();
    done.failed = rounds(host, limits, &mut done.ended).err();
    done
}

fn rounds<H: Host>(host: &mut H, limits: Limits, ended: &mut usize) -> anyhow::Result<()> {
    let mut first: Option<HashSet<u64>> = None;
    let mut has_time = true;
    loop {
        let mut found = host.look()?;
        if limits.only_first {
            let first = first.get_or_insert_with(|| found.keys().copied().collect());
            found.retain(|cookie, _| first.contains(cookie));
            host.keep_only(&|cookie| first.contains(&cookie));
        }
        if found.is_empty() || !has_time {
            return Ok(());
        }
        host.may_go_on()?;
        let left = found.len();
        let mut rests: Vec<_> = found.into_values().filter(|one| one.at_rest).collect();
        // The longest at rest are the least likely to have a request under way.
        rests.sort_by_key(|one| std::cmp::Reverse(one.idle));
        let before = *ended;
        for one in rests.iter().take(limits.rate) {
            *ended += usize::from(host.end(&one.connection)?);
        }
        has_time = host.wait(*ended, left.saturating_sub(*ended - before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections by their cookies: the round in which each comes to rest.
    #[derive(Default)]
    struct Fake {
        connections: HashMap<u64, usize>,
        round: usize,
        rounds: usize,
        /// The round in which the gateway stops steering.
        stops: Option<usize>,
        /// Each client that is cut off connects again, past the gateway.
        come_back: bool,
        ended: Vec<(usize, u64)>,
        kept: Vec<u64>,
    }

    impl Host for Fake {
        type Connection = u64;

        fn may_go_on(&mut self) -> anyhow::Result<()> {
            anyhow::ensure!(self.stops != Some(self.round), "not steered");
            Ok(())
        }

        fn look(&mut self) -> anyhow::Result<HashMap<u64, Found<u64>>> {
            self.kept = self.connections.keys().copied().collect();
            let found = self.connections.iter().map(|(cookie, rests)| {
                let idle = Duration::from_secs(*cookie);
                (*cookie, Found { connection: *cookie, at_rest: *rests <= self.round, idle })
            });
            Ok(found.collect())
        }

        fn keep_only(&mut self, cookies: &dyn Fn(u64) -> bool) {
            self.kept.retain(|cookie| cookies(*cookie));
        }

        fn end(&mut self, cookie: &u64) -> anyhow::Result<bool> {
            self.ended.push((self.round, *cookie));
            if self.come_back {
                self.connections.insert(cookie + 1000, 0);
            }
            Ok(self.connections.remove(cookie).is_some())
        }

        fn wait(&mut self, _: usize, _: usize) -> bool {
            self.round += 1;
            self.round < self.rounds
        }
    }

    fn fake(connections: &[(u64, usize)]) -> Fake {
        Fake { connections: connections.iter().copied().collect(), rounds: 10, ..Fake::default() }
    }

    const TWO: Limits = Limits { rate: 2, only_first: false };

    #[test]
    fn the_longest_at_rest_are_ended_first_and_no_more_than_the_rate() {
        let mut host = fake(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        let done = run(&mut host, TWO);
        assert_eq!((done.ended, done.failed.is_none()), (5, true));
        assert_eq!(host.ended, [(0, 5), (0, 4), (1, 3), (1, 2), (2, 1)]);
        assert!(host.kept.is_empty(), "{:?}", host.kept);
    }

    #[test]
    fn a_busy_connection_is_ended_when_it_rests_or_left_at_the_timeout() {
        let mut host = fake(&[(1, 3), (2, 99)]);
        let done = run(&mut host, TWO);
        assert_eq!((done.ended, host.ended), (1, vec![(3, 1)]));
        assert_eq!((host.round, host.kept), (10, vec![2]));
    }

    #[test]
    fn it_stops_when_the_gateway_stops_steering() {
        let mut host = Fake { stops: Some(1), ..fake(&[(1, 0), (2, 0), (3, 0)]) };
        let done = run(&mut host, TWO);
        assert_eq!((done.ended, host.ended.len()), (2, 2));
        assert_eq!(done.failed.unwrap().to_string(), "not steered");
        // Nothing to end: nobody needs to steer.
        let mut host = Fake { stops: Some(0), ..fake(&[]) };
        assert!(run(&mut host, TWO).failed.is_none());
    }

    #[test]
    fn clients_that_come_back_to_the_server_are_cut_off_once_only() {
        let mut host = Fake { come_back: true, ..fake(&[(1, 0), (2, 99)]) };
        let done = run(&mut host, Limits { rate: 2, only_first: true });
        assert_eq!((done.ended, host.ended), (1, vec![(0, 1)]));
        assert_eq!(host.kept, [2], "only those of the first round are told");
    }
}
