//! The order in which members are tried for a new connection: healthy ones, the nearest, then the one
//! with the fewest connections. Entry item: [`order`]. Pure: no sockets, no clock.

use std::time::Duration;

/// Whether a member can take a connection, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Health {
    /// The last probe succeeded.
    Healthy,
    /// It was not probed yet.
    #[default]
    Unknown,
    /// The last probe or connection attempt failed.
    Unhealthy,
}

/// What the order depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    pub(super) health: Health,
    /// Whether the cluster names it. A member of `--servers` that the cluster does not name may be on
    /// its way out, or may be a name that leads to any server.
    pub(super) found: bool,
    /// Whether it is on this host.
    pub(super) on_this_host: bool,
    /// How far it is.
    pub(super) distance: Bucket,
    /// Its open connections.
    pub(super) open: usize,
}

/// The positions of members in the order in which they are tried. None is left out: all may be
/// unhealthy. `turn` decides between equals.
pub(super) fn order(members: &[Standing], turn: usize) -> Vec<usize> {
    let mut positions: Vec<(usize, &Standing)> = members.iter().enumerate().collect();
    let start = turn.checked_rem(positions.len()).unwrap_or_default();
    positions.rotate_left(start);
    positions.sort_by_key(|(_, one)| {
        (one.health, !one.found, !one.on_this_host, one.distance, one.open)
    });
    positions.into_iter().map(|(position, _)| position).collect()
}

/// A distance in coarse steps, so that members of about the same distance share the load. The default
/// is the farthest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket(u8);

/// The upper bounds of all buckets but the last.
const BOUNDS: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
];

impl Bucket {
    fn of(time: Duration) -> Bucket {
        let below = BOUNDS.iter().filter(|bound| time >= **bound).count();
        Bucket(u8::try_from(below).unwrap_or(u8::MAX))
    }
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket::of(Duration::MAX)
    }
}

/// The measured time to connect to a member.
#[derive(Debug, Clone, Default)]
pub(super) struct Distance {
    /// The last measurements. The least of them counts: noise only adds time.
    samples: [Option<Duration>; 5],
    next: usize,
    bucket: Option<Bucket>,
}

impl Distance {
    /// Adds a measurement. The bucket changes only if the time is beyond its bound by a quarter, so that
    /// a member at a bound does not move to and fro.
    pub(super) fn measure(&mut self, took: Duration) {
        if let Some(sample) = self.samples.get_mut(self.next) {
            *sample = Some(took);
        }
        self.next = (self.next + 1) % self.samples.len();
        let Some(least) = self.least() else { return };
        let new = Bucket::of(least);
        let is_clear = match self.bucket {
            None => true,
            Some(now) if new > now => Bucket::of(least * 4 / 5) > now,
            Some(now) => Bucket::of(least * 5 / 4) < now,
        };
        if is_clear {
            self.bucket = Some(new);
        }
    }

    /// The least of the last measurements.
    pub(super) fn least(&self) -> Option<Duration> {
        self.samples.iter().flatten().min().copied()
    }

    pub(super) fn bucket(&self) -> Bucket {
        self.bucket.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn healthy(distance: Duration, open: usize) -> Standing {
        let distance = Bucket::of(distance);
        Standing { health: Health::Healthy, found: true, on_this_host: false, distance, open }
    }

    #[test]
    fn members_are_ordered() {
        let near = healthy(Duration::from_micros(400), 7);
        let far = healthy(ms(20), 0);
        let here = Standing { on_this_host: true, ..healthy(ms(2), 90) };
        let seed = Standing { found: false, ..healthy(Duration::ZERO, 0) };
        let unknown = Standing { health: Health::Unknown, ..Standing::default() };
        let unhealthy = Standing { health: Health::Unhealthy, ..here };
        for (what, members, expected) in [
            ("nobody", vec![], vec![]),
            ("the nearest, even if it has more connections", vec![far, near], vec![1, 0]),
            ("this host before all others", vec![near, here], vec![1, 0]),
            ("an unhealthy one last, even on this host", vec![unhealthy, far], vec![1, 0]),
            ("all unhealthy: none is left out", vec![unhealthy, unhealthy], vec![0, 1]),
            ("unknown between healthy and unhealthy", vec![unhealthy, unknown, far], vec![2, 1, 0]),
            ("a seed that the cluster does not name after those", vec![seed, far], vec![1, 0]),
            ("a healthy seed before an unhealthy member", vec![unhealthy, seed], vec![1, 0]),
            (
                "equals by connections",
                vec![healthy(ms(4), 2), healthy(ms(9), 1), healthy(ms(5), 0)],
                vec![2, 1, 0],
            ),
        ] {
            assert_eq!(order(&members, 0), expected, "{what}");
        }
    }

    #[test]
    fn equals_take_turns() {
        let members = [healthy(ms(1), 0); 3];
        assert_eq!(order(&members, 0), [0, 1, 2]);
        assert_eq!(order(&members, 4), [1, 2, 0]);
        assert_eq!(order(&members, usize::MAX), [0, 1, 2], "2^64 - 1 is a multiple of 3");
    }

    #[test]
    fn buckets_have_bounds() {
        for (micros, bucket) in [
            (0, 0),
            (999, 0),
            (1_000, 1),
            (2_999, 1),
            (3_000, 2),
            (9_999, 2),
            (10_000, 3),
            (30_000, 4),
            (9_000_000, 4),
        ] {
            assert_eq!(Bucket::of(Duration::from_micros(micros)), Bucket(bucket), "{micros}");
        }
        assert_eq!(Bucket::default(), Bucket(4));
    }

    #[test]
    fn a_distance_at_a_bound_does_not_flap() {
        let after = |samples: &[u64]| {
            let mut distance = Distance::default();
            samples.iter().for_each(|micros| distance.measure(Duration::from_micros(*micros)));
            distance.bucket().0
        };
        assert_eq!(after(&[]), 4, "unknown");
        assert_eq!(after(&[990]), 0);
        assert_eq!(after(&[990, 90_000]), 0, "one slow measurement is noise");
        assert_eq!(after(&[990, 1_010, 1_010, 1_010, 1_010, 1_010, 1_010]), 0);
        assert_eq!(after(&[990, 1_300, 1_300, 1_300, 1_300, 1_300]), 1, "clearly farther");
        assert_eq!(after(&[1_010, 990]), 1, "not clearly nearer");
        assert_eq!(after(&[1_010, 700]), 0, "clearly nearer");
        assert_eq!(after(&[500, 90_000, 90_000, 90_000, 90_000, 90_000]), 4, "it moved away");
    }
}
