//! Which unverified members are fetched from when there are more than any cluster has. Entry item:
//! [`Turns`].
//!
//! A flood of forged claims gets no more than a fixed number of fetches at a time. A real member
//! among them gets its turn, answers, and is verified from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::snapshot::Policy;
use mvp_proxy::control::{MemberRecord, ReportOnce};

use super::merge::Seniority;

/// The most unverified members at a time.
const PLACES: usize = 128;
/// The length of a turn, and its lower limit where there are very many members.
const TURN: Duration = Duration::from_secs(5);
const SHORTEST_TURN: Duration = Duration::from_secs(1);
/// Every member must have had a turn within this time: well before 404s stop waiting for it.
const ALL_WITHIN: Duration = Duration::from_secs(Policy::BLOCKS_FOR.as_secs() / 5 * 4);

/// The unverified members by address. Empty while there are few enough.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: BTreeMap<Arc<str>, Wait>,
    /// Whether some members have had no turn yet.
    due: bool,
    flood: ReportOnce,
}

/// The wait of one member.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// When its address was first claimed.
    since: Timestamp,
    /// When its last turn began.
    began: Option<Timestamp>,
}

impl Wait {
    /// Whether its turn lasts.
    fn is_on(&self, now: Timestamp, turn: Duration) -> bool {
        self.began.is_some_and(|began| now.since(began) < turn)
    }
}

impl Turns {
    /// Whether some members have had no turn yet.
    pub(super) fn are_due(&self) -> bool {
        self.due
    }

    /// All verified members, and the unverified ones whose turn it is.
    pub(super) fn choose(
        &mut self,
        verified: Vec<MemberRecord>,
        mut unverified: Vec<(Seniority, MemberRecord)>,
        now: Timestamp,
    ) -> Vec<MemberRecord> {
        let mut members = verified;
        if unverified.len() <= PLACES {
            *self = Turns::default();
            members.extend(unverified.into_iter().map(|(_, record)| record));
            return members;
        }
        if self.flood.report() {
            tracing::warn!(
                members = unverified.len(),
                limit = PLACES,
                "too many unverified members; fetching from a few at a time; check who creates \
                 Leases in kube-system"
            );
        }
        let rounds = u32::try_from(unverified.len().div_ceil(PLACES)).unwrap_or(u32::MAX);
        let turn = (ALL_WITHIN / rounds.max(1)).clamp(SHORTEST_TURN, TURN);
        let wait = |record: &MemberRecord| {
            let new = Wait { since: now, began: None };
            let address = record.address.as_ref();
            address.and_then(|address| self.waiting.get(address)).copied().unwrap_or(new)
        };
        // Those whose turn lasts, then those who had none, each by how long they wait.
        unverified.sort_by_cached_key(|(seniority, record)| {
            let wait = wait(record);
            (!wait.is_on(now, turn), wait.began, wait.since, seniority.clone())
        });
        let mut waiting = BTreeMap::new();
        let mut due = false;
        for (place, (_, record)) in unverified.into_iter().enumerate() {
            let mut wait = wait(&record);
            if place < PLACES && !wait.is_on(now, turn) {
                wait.began = Some(now);
            }
            due |= wait.began.is_none();
            if let Some(address) = &record.address {
                waiting.insert(Arc::clone(address), wait);
            }
            if place < PLACES {
                members.push(record);
            }
        }
        (self.waiting, self.due) = (waiting, due);
        members
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mvp_core::member::MemberKind;

    use super::*;

    fn record(number: usize) -> MemberRecord {
        let id: Arc<str> = format!("{number:04}").into();
        let (address, kind) = (Some(Arc::clone(&id)), MemberKind::Mvp);
        MemberRecord { name: id.into(), address, kind, heard: Some(Timestamp::default()) }
    }

    fn unverified(number: usize, place: usize) -> (Seniority, MemberRecord) {
        ((place, Timestamp::default(), "".into()), record(number))
    }

    #[test]
    fn every_unverified_member_gets_a_turn_and_verified_ones_need_none() {
        let verified = || vec![record(9000)];
        let all = || {
            let flood = (0..3 * PLACES).map(|number| unverified(number, 2));
            flood.chain([unverified(9999, 1)]).collect::<Vec<_>>()
        };
        let mut turns = Turns::default();
        let mut asked: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for second in 0..40 {
            let now = Timestamp::after_start(Duration::from_secs(second));
            let chosen = turns.choose(verified(), all(), now);
            assert_eq!(chosen.len(), PLACES + 1, "{second}");
            let ids: BTreeSet<_> = chosen.iter().map(|record| record.name.label()).collect();
            assert!(ids.contains("9000"), "{second}");
            if second < TURN.as_secs() {
                assert!(ids.contains("9999"), "{second}: its source takes precedence");
            }
            for id in ids {
                *asked.entry(id).or_default() += 1;
            }
            // Four turns of 128 are enough for 385.
            assert_eq!(turns.are_due(), second < 3 * TURN.as_secs(), "{second}");
        }
        assert_eq!(asked.len(), 3 * PLACES + 2);
        assert!(asked.values().all(|seconds| *seconds >= TURN.as_secs()), "{asked:?}");
        // Later members wait behind earlier ones, however many they are.
        let mut turns = Turns::default();
        turns.choose(verified(), all(), Timestamp::default());
        let mut last = None;
        for second in 1..100 {
            let now = Timestamp::after_start(Duration::from_secs(second));
            let new = (0..PLACES).map(|number| unverified(10_000 * second as usize + number, 1));
            let chosen = turns.choose(verified(), all().into_iter().chain(new).collect(), now);
            if chosen.iter().any(|record| &*record.name.label() == "0383") {
                last = Some(second);
                break;
            }
        }
        assert_eq!(last, Some(3 * TURN.as_secs()), "the last of the earlier members");
        // The flood is over.
        let few = turns.choose(Vec::new(), vec![unverified(1, 2)], Timestamp::default());
        assert_eq!((few.len(), turns.are_due(), turns.waiting.len()), (1, false, 0));
    }
}
