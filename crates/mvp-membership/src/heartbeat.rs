//! Heartbeats by our own clock: a heartbeat is a change, seen by us, of something that only the
//! member changes. No two clocks are compared, so that none of them must be right. Entry item:
//! [`Heartbeats`].

use std::collections::BTreeMap;

use mvp_core::Timestamp;

/// The last heartbeat of each member, by key.
#[derive(Debug)]
pub(crate) struct Heartbeats<V> {
    seen: BTreeMap<String, Beat<V>>,
    deaf_since: Option<Timestamp>,
}

/// The last heartbeat of one member.
#[derive(Debug)]
pub(crate) struct Beat<V> {
    /// The value that changes with each heartbeat.
    mark: String,
    pub(crate) heard: Timestamp,
    pub(crate) since: Timestamp,
    /// Whether it was ever seen to change. The leftover of a dead member never does.
    pub(crate) renewed: bool,
    pub(crate) value: V,
}

impl<V> Default for Heartbeats<V> {
    fn default() -> Self {
        // Nothing was read yet.
        Heartbeats { seen: BTreeMap::new(), deaf_since: Some(Timestamp::default()) }
    }
}

impl<V> Heartbeats<V> {
    /// An entry exists. A new one counts as alive: it may be.
    pub(crate) fn see(&mut self, key: &str, mark: &str, value: V, now: Timestamp) {
        match self.seen.get_mut(key) {
            Some(beat) => {
                if beat.mark != mark {
                    beat.mark = mark.to_owned();
                    beat.heard = now;
                    beat.renewed = true;
                }
                beat.value = value;
            }
            None => {
                let (mark, renewed) = (mark.to_owned(), false);
                let beat = Beat { mark, heard: now, since: now, renewed, value };
                self.seen.insert(key.to_owned(), beat);
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        self.seen.get(key).map(|beat| &beat.value)
    }

    /// An entry is gone.
    pub(crate) fn remove(&mut self, key: &str) {
        self.seen.remove(key);
    }

    /// Removes all other entries.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.seen.retain(|key, _| keep(key));
    }

    /// Heartbeats cannot be read from now on.
    pub(crate) fn deaf(&mut self, now: Timestamp) {
        self.deaf_since.get_or_insert(now);
    }

    /// Heartbeats can be read again. The time in which they could not does not count as silence.
    pub(crate) fn hears(&mut self, now: Timestamp) {
        if let Some(since) = self.deaf_since.take() {
            for beat in self.seen.values_mut() {
                let missed = now.since(since.max(beat.heard));
                beat.heard = beat.heard.after(missed).min(now);
            }
        }
    }

    pub(crate) fn deaf_since(&self) -> Option<Timestamp> {
        self.deaf_since
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Beat<V>)> {
        self.seen.iter().map(|(key, beat)| (key.as_str(), beat))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_secs(seconds))
    }

    fn heard(beats: &Heartbeats<()>, key: &str) -> Timestamp {
        beats.iter().find(|(name, _)| *name == key).unwrap().1.heard
    }

    /// Whatever the clocks of others show: ahead, behind, or the same time twice.
    #[test]
    fn a_heartbeat_is_a_change_that_we_saw() {
        let mut beats = Heartbeats::default();
        beats.hears(at(0));
        beats.see("ahead", "2099-01-01T00:00:00Z", (), at(1));
        beats.see("behind", "1970-01-01T00:00:00Z", (), at(1));
        beats.see("ahead", "2098-12-31T23:00:00Z", (), at(6));
        beats.see("behind", "1970-01-01T00:00:00Z", (), at(6));
        beats.deaf(at(6));
        beats.hears(at(6));
        let renewed: Vec<bool> = beats.iter().map(|(_, beat)| beat.renewed).collect();
        assert_eq!(renewed, [true, false]);
        assert_eq!((heard(&beats, "ahead"), heard(&beats, "behind")), (at(6), at(1)));
    }

    #[test]
    fn an_unreadable_source_makes_nobody_silent() {
        let mut beats = Heartbeats::default();
        beats.hears(at(0));
        beats.see("alive", "1", (), at(10));
        beats.see("dead", "1", (), at(2));
        beats.deaf(at(12));
        beats.deaf(at(50));
        assert_eq!(beats.deaf_since(), Some(at(12)));
        beats.see("new", "1", (), at(100));
        beats.hears(at(112));
        // 2 s and 10 s of silence before the source became unreadable.
        assert_eq!(heard(&beats, "alive"), at(110));
        assert_eq!(heard(&beats, "dead"), at(102));
        assert_eq!(heard(&beats, "new"), at(112));
        assert_eq!(beats.deaf_since(), None);
    }
}
