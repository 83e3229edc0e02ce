//! Who is asked of those whom nobody knows, when there are more than any cluster has. Entry item:
//! [`Turns`].
//!
//! Whoever floods us with claims gets no more than so many asked at a time; and whoever is in truth
//! a member comes to its turn, and is known from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_proxy::control::MemberRecord;

use super::merge::Candidate;

/// So many strangers are asked at a time.
const PLACES: usize = 128;
/// For so long, when others wait; for less where each would not have its turn in time.
const TURN: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_secs(1);
/// Within this each is to have had its turn: for 300 s after the start 404s wait for it.
const ALL_WITHIN: Duration = Duration::from_secs(240);

/// The strangers, by address; nobody while all are asked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: BTreeMap<Arc<str>, Wait>,
    /// Whether some have had no turn yet.
    due: bool,
}

/// How long a stranger waits.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Since when its address is claimed.
    since: Timestamp,
    /// When its last turn began.
    began: Option<Timestamp>,
}

impl Wait {
    /// Whether it is its turn.
    fn is_on(&self, now: Timestamp, turn: Duration) -> bool {
        self.began.is_some_and(|began| now.since(began) < turn)
    }
}

impl Turns {
    /// Whether there are some who were never asked.
    pub(super) fn are_due(&self) -> bool {
        self.due
    }

    /// All who are known, and the strangers whose turn it is.
    pub(super) fn choose(
        &mut self,
        candidates: Vec<Candidate>,
        now: Timestamp,
    ) -> Vec<MemberRecord> {
        let (mut strangers, known): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| candidate.is_stranger);
        let mut members: Vec<MemberRecord> = known.into_iter().map(|known| known.record).collect();
        if strangers.len() <= PLACES {
            *self = Turns::default();
            members.extend(strangers.into_iter().map(|stranger| stranger.record));
            return members;
        }
        if self.waiting.is_empty() {
            let (all, places) = (strangers.len(), PLACES);
            tracing::warn!(
                "{all} members are claimed that never answered; {places} are asked at a time; see \
                 who makes Leases in kube-system"
            );
        }
        let rounds = u32::try_from(strangers.len().div_ceil(PLACES)).unwrap_or(u32::MAX);
        let turn = (ALL_WITHIN / rounds.max(1)).clamp(SHORTEST, TURN);
        let known = |stranger: &Candidate| {
            let address = stranger.record.address.as_ref();
            let new = Wait { since: now, began: None };
            address.and_then(|address| self.waiting.get(address)).copied().unwrap_or(new)
        };
        // Whose turn it is, then who waits: those first who had none, and of all the first that came.
        strangers.sort_by_cached_key(|stranger| {
            let wait = known(stranger);
            (!wait.is_on(now, turn), wait.began, wait.since, stranger.seniority.clone())
        });
        let mut waiting = BTreeMap::new();
        let mut due = false;
        for (place, stranger) in strangers.into_iter().enumerate() {
            let mut wait = known(&stranger);
            if place < PLACES && !wait.is_on(now, turn) {
                wait.began = Some(now);
            }
            due |= wait.began.is_none();
            if let Some(address) = &stranger.record.address {
                waiting.insert(Arc::clone(address), wait);
            }
            if place < PLACES {
                members.push(stranger.record);
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

    fn stranger(number: usize, place: usize, is_stranger: bool) -> Candidate {
        let id: Arc<str> = format!("{number:04}").into();
        let (address, kind) = (Some(Arc::clone(&id)), MemberKind::Mvp);
        Candidate {
            record: MemberRecord { id, address, kind, heard: Some(Timestamp::default()) },
            is_stranger,
            seniority: (place, Timestamp::default(), "".into()),
        }
    }

    #[test]
    fn everybody_comes_to_its_turn_and_the_known_always_do() {
        let all = || {
            let flood = (0..3 * PLACES).map(|number| stranger(number, 2, true));
            let known = stranger(9000, 2, false);
            flood.chain([known, stranger(9999, 1, true)]).collect::<Vec<_>>()
        };
        let mut turns = Turns::default();
        let mut asked: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for second in 0..40 {
            let now = Timestamp::after_start(Duration::from_secs(second));
            let chosen = turns.choose(all(), now);
            assert_eq!(chosen.len(), PLACES + 1, "{second}");
            let ids: BTreeSet<_> = chosen.iter().map(|record| &*record.id).collect();
            assert!(ids.contains("9000"), "{second}");
            if second < TURN.as_secs() {
                assert!(ids.contains("9999"), "{second}: of the source that is believed more");
            }
            for id in ids {
                *asked.entry(id.into()).or_default() += 1;
            }
            // Four turns of 128 are enough for 385.
            assert_eq!(turns.are_due(), second < 3 * TURN.as_secs(), "{second}");
        }
        assert_eq!(asked.len(), 3 * PLACES + 2);
        assert!(asked.values().all(|seconds| *seconds >= TURN.as_secs()), "{asked:?}");
        // Who comes later waits behind who is there, however many they are.
        let mut turns = Turns::default();
        turns.choose(all(), Timestamp::default());
        let mut last = None;
        for second in 1..100 {
            let now = Timestamp::after_start(Duration::from_secs(second));
            let new =
                (0..PLACES).map(|number| stranger(10_000 * second as usize + number, 1, true));
            let chosen = turns.choose(all().into_iter().chain(new).collect(), now);
            if chosen.iter().any(|record| &*record.id == "0383") {
                last = Some(second);
                break;
            }
        }
        assert_eq!(last, Some(3 * TURN.as_secs()), "the last of those who were there first");
        // The flood is over.
        let few = turns.choose(vec![stranger(1, 2, true)], Timestamp::default());
        assert_eq!((few.len(), turns.are_due(), turns.waiting.len()), (1, false, 0));
    }
}
