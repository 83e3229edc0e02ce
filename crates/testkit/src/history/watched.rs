//! Whether watches delivered every change exactly once and in order, across reconnects. Entry item:
//! [`check`].
//!
//! A watcher lists, then watches from the version of the list. When a watch ends, the next one
//! resumes from the last version. When that version is too old, the watcher lists again, which
//! begins another [`Segment`]. All watchers of a collection together show each change at its
//! version, so each of them must show all changes between its own start and end. Between the end of
//! a segment and the list of the next one, only other watchers can tell. Where all of them had to
//! list again, as when the only server of an API returns, nobody can: that is a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};

use super::{State, Value};

/// A resource version. Greater ones are later.
pub type Version = u64;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The object was created.
    Added,
    /// The object has another value.
    Modified,
    /// The object was deleted. The event has its last value.
    Deleted,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<K> {
    /// The version of the change.
    pub version: Version,
    /// What happened.
    pub kind: Kind,
    /// The name of the object.
    pub object: K,
    /// The value of the object, for a deletion the last one.
    pub value: Value,
}

/// A list, and the events after it.
#[derive(Debug, Clone)]
pub struct Segment<K> {
    /// The version of the list.
    pub version: Version,
    /// The objects in the list.
    pub listed: BTreeMap<K, Value>,
    /// The events in the order in which they came, over as many watches as it took.
    pub events: Vec<Event<K>>,
    /// The version up to which the watches were complete, by an event, a bookmark, or the list.
    pub until: Version,
}

/// All that one watcher saw, the last segment up to the version that every watcher waits for.
pub type Watched<K> = Vec<Segment<K>>;

/// A write that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<K> {
    /// The name of the object.
    pub object: K,
    /// The new value; none for a deletion.
    pub state: State,
    /// What the client knows of it.
    pub outcome: Outcome,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged, with the version of the change where the response has it.
    Done(Option<Version>),
    /// It may have happened.
    Unclear,
}

/// The extent of a check that found nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Changes that the watchers saw together.
    pub changes: usize,
    /// Events that all watchers got.
    pub events: usize,
    /// Lists that watchers began with, or had to begin again with.
    pub lists: usize,
    /// Times when every watcher had to list again.
    pub gaps: usize,
}

/// What is wrong, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// Checks what the watchers of one collection saw up to the version `end`, and compares it with all
/// writes to that collection. No deletion may be older than the first list.
pub fn check<K: Ord + Clone + Debug>(
    watchers: &[Watched<K>],
    written: &[Written<K>],
    end: Version,
) -> Result<Checked, Fault> {
    let segments = || {
        let of = |(watcher, watched)| segments_of(watcher, watched, end);
        watchers.iter().enumerate().flat_map(of)
    };
    let mut changes = BTreeMap::new();
    for (name, segment, _) in segments() {
        follow(&name, segment)?;
        for event in &segment.events {
            let first: &Event<K> = changes.entry(event.version).or_insert_with(|| event.clone());
            if first != event {
                return Err(Fault(format!("{name} saw {event:?}, another saw {first:?}")));
            }
        }
    }
    for (name, segment, end) in segments() {
        let seen: BTreeSet<Version> = segment.events.iter().map(|event| event.version).collect();
        let missed = changes.values().find(|change| {
            change.version > segment.version
                && change.version <= end
                && !seen.contains(&change.version)
        });
        if let Some(missed) = missed {
            return Err(Fault(format!("{name} missed {missed:?}")));
        }
    }
    let mut covered = agree_on_lists(segments().collect(), &changes)?;
    if let Some((_, until)) = covered.last_mut() {
        // Nothing is written after `end`.
        *until = Version::MAX;
    }
    compare(&changes, written, &covered)?;
    let events = segments().map(|(_, segment, _)| segment.events.len()).sum();
    let gaps = covered.len().saturating_sub(1);
    Ok(Checked { changes: changes.len(), events, lists: segments().count(), gaps })
}

/// The segments of a watcher, each with a name for messages and the version up to which it must be
/// complete.
fn segments_of<K>(
    watcher: usize,
    watched: &Watched<K>,
    end: Version,
) -> impl Iterator<Item = (String, &Segment<K>, Version)> {
    let count = watched.len();
    watched.iter().enumerate().map(move |(index, segment)| {
        let last = segment.events.last().map_or(segment.version, |event| event.version);
        let last = last.max(segment.until);
        let end = if index + 1 == count { end.max(last) } else { last };
        (format!("watcher {watcher}, list {index},"), segment, end)
    })
}

/// Checks one segment by itself: versions ascend, and each event is possible after those before it.
fn follow<K: Ord + Clone + Debug>(name: &str, segment: &Segment<K>) -> Result<(), Fault> {
    let (mut version, mut objects) = (segment.version, segment.listed.clone());
    for event in &segment.events {
        if event.version <= version {
            return Err(Fault(format!("{name} saw {event:?} after version {version}")));
        }
        version = event.version;
        apply(&mut objects, event).map_err(|before| {
            Fault(format!("{name} saw {event:?}, but the value was {before:?} before"))
        })?;
    }
    Ok(())
}

/// Applies an event, or returns the state that contradicts it.
fn apply<K: Ord + Clone>(objects: &mut BTreeMap<K, Value>, event: &Event<K>) -> Result<(), State> {
    let before = match event.kind {
        Kind::Added | Kind::Modified => objects.insert(event.object.clone(), event.value),
        Kind::Deleted => objects.remove(&event.object),
    };
    let is_possible = match event.kind {
        Kind::Added => before.is_none(),
        Kind::Modified => before.is_some_and(|before| before != event.value),
        Kind::Deleted => before == Some(event.value),
    };
    if is_possible { Ok(()) } else { Err(before) }
}

/// Versions that some watcher covers: after the first, up to the second.
type Covered = Vec<(Version, Version)>;

/// Checks that each list has what an earlier one and the changes up to its version give. Returns
/// the versions that watchers cover, with the gaps between.
fn agree_on_lists<K: Ord + Clone + Debug>(
    mut segments: Vec<(String, &Segment<K>, Version)>,
    changes: &BTreeMap<Version, Event<K>>,
) -> Result<Covered, Fault> {
    segments.sort_by_key(|(_, segment, _)| segment.version);
    let (mut objects, mut covered) = (BTreeMap::new(), Covered::new());
    let mut changes = changes.values().peekable();
    for (name, segment, end) in segments {
        while let Some(change) = changes.next_if(|change| change.version <= segment.version) {
            // Watchers whose events contradict each other were found before.
            let _ = apply(&mut objects, change);
        }
        match covered.last_mut().filter(|(_, until)| segment.version <= *until) {
            Some((_, until)) => *until = (*until).max(end),
            None => {
                covered.push((segment.version, end));
                objects = segment.listed.clone();
            }
        }
        if objects != segment.listed {
            let of = |one: &BTreeMap<K, Value>, other: &BTreeMap<K, Value>| -> Vec<(K, Value)> {
                let differs = |(object, value): &(&K, &Value)| other.get(*object) != Some(*value);
                let different = one.iter().filter(differs).take(4);
                different.map(|(object, value)| (object.clone(), *value)).collect()
            };
            return Err(Fault(format!(
                "{name} at version {} has {:?}, but by the events it is {:?}",
                segment.version,
                of(&segment.listed, &objects),
                of(&objects, &segment.listed),
            )));
        }
    }
    Ok(covered)
}

/// Compares the changes that watchers saw with the writes: each acknowledged one happened once, at
/// its version, and nothing happened that nobody wrote. What happened before the first list or in a
/// gap was not seen. The version of a deletion is not known: with a gap, each may have been there.
fn compare<K: Ord + Clone + Debug>(
    changes: &BTreeMap<Version, Event<K>>,
    written: &[Written<K>],
    covered: &Covered,
) -> Result<(), Fault> {
    let is_covered =
        |version| covered.iter().any(|(from, until)| version > *from && version <= *until);
    let mut values = BTreeMap::new();
    let mut deletions: BTreeMap<&K, (usize, usize)> = BTreeMap::new();
    for event in changes.values() {
        if event.kind == Kind::Deleted {
            deletions.entry(&event.object).or_default().0 += 1;
        } else if let Some(first) = values.insert(event.value, event) {
            return Err(Fault(format!("one write happened twice: {first:?}, {event:?}")));
        }
    }
    let mut acknowledged: BTreeMap<&K, usize> = BTreeMap::new();
    for write in written {
        let Some(value) = write.state else {
            deletions.entry(&write.object).or_default().1 += 1;
            if write.outcome != Outcome::Unclear {
                *acknowledged.entry(&write.object).or_default() += 1;
            }
            continue;
        };
        let event = values.remove(&value);
        let is_right = match (write.outcome, event) {
            (Outcome::Unclear, None) => true,
            (Outcome::Done(None), None) => false,
            (Outcome::Done(Some(version)), None) => !is_covered(version),
            (outcome, Some(event)) => {
                let is_version = match outcome {
                    Outcome::Done(Some(version)) => version == event.version,
                    _ => true,
                };
                is_version && event.object == write.object
            }
        };
        if !is_right {
            return Err(Fault(format!("{write:?} was seen as {event:?}")));
        }
    }
    if let Some(nobodys) = values.values().next() {
        return Err(Fault(format!("nobody wrote what was seen: {nobodys:?}")));
    }
    for (object, (seen, sent)) in deletions {
        let least = acknowledged.get(object).copied().unwrap_or_default();
        let least = if covered.len() == 1 { least } else { 0 };
        if !(least..=sent).contains(&seen) {
            return Err(Fault(format!(
                "{object:?}: {least} deletions were acknowledged and {sent} sent, {seen} were seen"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
