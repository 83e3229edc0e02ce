//! The changes of members: the same list in each run.

use std::collections::VecDeque;

/// A change of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Leaves(usize),
    Returns(usize),
    /// It moves to another address.
    Moves(usize),
    /// It changes to the other release, or back.
    Upgrades(usize),
    /// It serves a custom resource group more, or less.
    Serves(usize, u8),
}

impl Change {
    pub(super) fn member(self) -> usize {
        match self {
            Change::Leaves(member)
            | Change::Returns(member)
            | Change::Moves(member)
            | Change::Upgrades(member)
            | Change::Serves(member, _) => member,
        }
    }
}

/// The number of custom resource groups that come and go.
pub(super) const GROUPS: u8 = 8;

/// The maximum number of members that are away at once.
const ABSENT: usize = 5;

/// An endless list of changes.
pub(super) struct Changes {
    state: u64,
    present: Vec<usize>,
    absent: VecDeque<usize>,
}

impl Changes {
    pub(super) fn new(seed: u64, members: usize) -> Changes {
        Changes { state: seed, present: (0..members).collect(), absent: VecDeque::new() }
    }

    /// Each kind is a quarter: presence, address, release, groups.
    pub(super) fn next(&mut self) -> Change {
        let kind = self.below(4);
        if kind == 0 && (self.absent.len() >= ABSENT || self.present.len() < 2) {
            let member = self.absent.pop_front().unwrap_or_default();
            self.present.push(member);
            return Change::Returns(member);
        }
        let place = self.below(self.present.len());
        let member = self.present.get(place).copied().unwrap_or_default();
        match kind {
            0 => {
                self.present.swap_remove(place);
                self.absent.push_back(member);
                Change::Leaves(member)
            }
            1 => Change::Moves(member),
            2 => Change::Upgrades(member),
            _ => Change::Serves(member, u8::try_from(self.below(GROUPS.into())).unwrap_or(0)),
        }
    }

    /// SplitMix64: small and deterministic.
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_list_each_time() {
        let (mut one, mut other) = (Changes::new(9, 50), Changes::new(9, 50));
        assert!((0..500).all(|_| one.next() == other.next()));
        let mut third = Changes::new(10, 50);
        assert!((0..500).any(|_| one.next() != third.next()));
    }

    #[test]
    fn every_kind_has_its_part_and_only_who_is_there_changes() {
        let mut changes = Changes::new(9, 50);
        let (mut away, mut counts) = (Vec::new(), [0; 4]);
        for _ in 0..2000 {
            let change = changes.next();
            let kind = match change {
                Change::Leaves(_) | Change::Returns(_) => 0,
                Change::Moves(_) => 1,
                Change::Upgrades(_) => 2,
                Change::Serves(..) => 3,
            };
            counts[kind] += 1;
            match change {
                Change::Returns(member) => assert_eq!(away.remove(0), member),
                _ => assert!(!away.contains(&change.member()), "{change:?}"),
            }
            if let Change::Leaves(member) = change {
                away.push(member);
            }
            assert!(away.len() <= ABSENT);
        }
        assert!(counts.iter().all(|count| (400..600).contains(count)), "{counts:?}");
    }
}
