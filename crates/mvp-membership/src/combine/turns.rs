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
/// For so long, when others wait.
const TURN: Duration = Duration::from_secs(5);

/// When each of the strangers had its last turn, by address; nothing while all are asked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    begun: BTreeMap<Arc<str>, Timestamp>,
    /// Whether some have had none yet.
    due: bool,
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
        if self.begun.is_empty() {
            let (all, places) = (strangers.len(), PLACES);
            tracing::warn!(
                "{all} members are claimed that never answered; {places} are asked at a time; see \
                 who makes Leases in kube-system"
            );
        }
        let began = |stranger: &Candidate| {
            stranger.record.address.as_ref().and_then(|address| self.begun.get(address)).copied()
        };
        // Whose turn it is, then who waits: those first who had none, or had it longest ago.
        let order = |stranger: &Candidate| {
            let began = began(stranger);
            let is_on = began.is_some_and(|began| now.since(began) < TURN);
            (!is_on, began, stranger.seniority.clone())
        };
        strangers.sort_by_cached_key(order);
        let mut begun = BTreeMap::new();
        self.due = false;
        for (place, stranger) in strangers.into_iter().enumerate() {
            let began = began(&stranger);
            let Some(address) = stranger.record.address.clone() else { continue };
            if place < PLACES {
                let is_on = began.filter(|began| now.since(*began) < TURN);
                begun.insert(address, is_on.unwrap_or(now));
                members.push(stranger.record);
            } else if let Some(began) = began {
                begun.insert(address, began);
            } else {
                self.due = true;
            }
        }
        self.begun = begun;
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
        // The flood is over.
        let few = turns.choose(vec![stranger(1, 2, true)], Timestamp::default());
        assert_eq!((few.len(), turns.are_due(), turns.begun.len()), (1, false, 0));
    }
}
