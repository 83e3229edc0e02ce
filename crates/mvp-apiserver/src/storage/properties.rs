//! Properties of the storage, against a model that keeps every revision.

use std::collections::BTreeMap;
use std::thread;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

/// What a writer does.
#[derive(Debug, Clone)]
enum Step {
    Put {
        key: u8,
        value: u8,
    },
    Delete {
        key: u8,
    },
    /// A change of another resource.
    Elsewhere,
    /// Forgets the changes before a part of the history, in percent.
    Compact {
        percent: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u8, 0..4_u8).prop_map(|(key, value)| Step::Put { key, value }),
        3 => (0..8_u8).prop_map(|key| Step::Delete { key }),
        1 => Just(Step::Elsewhere),
    ]
}

fn step_or_compaction() -> impl Strategy<Value = Step> {
    prop_oneof![12 => step(), 1 => (0..=100_u64).prop_map(|percent| Step::Compact { percent })]
}

fn widgets() -> CollectionKey {
    CollectionKey { group: "example.com".to_owned(), resource: "widgets".to_owned() }
}

fn key(number: u8) -> ObjectKey {
    ObjectKey { namespace: format!("n{}", number % 3), name: format!("w{number}") }
}

/// The objects by key, with the value and the revision of each.
type Contents = BTreeMap<ObjectKey, (u8, u64)>;

fn contents(objects: &[Arc<Object>]) -> Contents {
    let entry = |object: &Arc<Object>| (object.key.clone(), (value(object), revision(object)));
    objects.iter().map(entry).collect()
}

fn value(object: &Object) -> u8 {
    object.fields["value"].as_u64().unwrap().try_into().unwrap()
}

fn revision(object: &Object) -> u64 {
    object::metadata_text(&object.fields, "resourceVersion").parse().unwrap()
}

/// Every revision of the widgets, and the changes between them.
#[derive(Debug)]
struct Model {
    at: BTreeMap<u64, Contents>,
    /// Revision, key and whether the object was removed.
    changes: Vec<(u64, ObjectKey, bool)>,
    compacted: u64,
}

impl Model {
    fn new() -> Model {
        Model { at: BTreeMap::from([(1, Contents::new())]), changes: Vec::new(), compacted: 0 }
    }

    fn latest(&self) -> u64 {
        *self.at.last_key_value().unwrap().0
    }

    /// Does a step in the storage, and what it should mean in the model.
    fn apply(&mut self, storage: &Storage, step: &Step) {
        let next = self.latest() + 1;
        let mut now = self.at[&self.latest()].clone();
        match step {
            Step::Put { key: number, value } => {
                put(storage, *number, *value);
                if now.get(&key(*number)).is_some_and(|(old, _)| old == value) {
                    return;
                }
                now.insert(key(*number), (*value, next));
                self.changes.push((next, key(*number), false));
            }
            Step::Delete { key: number } => {
                let delete = |_: Option<&Object>| Ok::<_, ()>(Change::Delete);
                storage.transact(&widgets(), &key(*number), true, delete).unwrap();
                if now.remove(&key(*number)).is_none() {
                    return;
                }
                self.changes.push((next, key(*number), true));
            }
            Step::Elsewhere => {
                let gears = CollectionKey { resource: "gears".to_owned(), ..widgets() };
                let fields = Fields::from_iter([("at".to_owned(), next.into())]);
                let put = |_: Option<&Object>| Ok::<_, ()>(Change::Put(fields));
                storage.transact(&gears, &key(0), true, put).unwrap();
            }
            Step::Compact { percent } => {
                let revision = self.latest() * percent / 100;
                storage.compact(revision);
                self.compacted = self.compacted.max(revision);
                return;
            }
        }
        self.at.insert(next, now);
    }

    fn changes_after(&self, revision: u64) -> Vec<(u64, ObjectKey, bool)> {
        self.changes.iter().filter(|(at, _, _)| *at > revision).cloned().collect()
    }
}

fn put(storage: &Storage, number: u8, value: u8) {
    let fields = Fields::from_iter([("value".to_owned(), value.into())]);
    let put = |_: Option<&Object>| Ok::<_, ()>(Change::Put(fields));
    storage.transact(&widgets(), &key(number), true, put).unwrap();
}

/// All changes that a watch can read now.
fn drain(cursor: &mut Cursor) -> Result<Vec<(u64, ObjectKey, bool)>, Expired> {
    let mut changes = Vec::new();
    while let Some(events) = cursor.next().now_or_never() {
        let events = events?;
        changes.extend(
            events.iter().map(|event| (event.revision, event.object.key.clone(), event.deleted)),
        );
    }
    Ok(changes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_revision_after_the_compaction_can_be_read(
        steps in prop::collection::vec(step_or_compaction(), 0..80),
    ) {
        let (storage, mut model) = (Storage::new(), Model::new());
        for step in &steps {
            model.apply(&storage, step);
        }
        prop_assert_eq!(storage.resource_version(), model.latest());
        for (revision, expected) in &model.at {
            let range = Range { after: None, revision: Some(*revision) };
            let read = storage.range(&widgets(), &range);
            if *revision < model.compacted {
                prop_assert_eq!(read, Err(Unreadable::Compacted));
            } else {
                let (at, objects) = read.unwrap();
                prop_assert_eq!(at, *revision);
                prop_assert_eq!(&contents(&objects), expected);
                prop_assert!(objects.is_sorted_by(|one, next| one.key < next.key));
            }
        }
        let future = Range { after: None, revision: Some(model.latest() + 1) };
        let error = Unreadable::Future(model.latest());
        prop_assert_eq!(storage.range(&widgets(), &future), Err(error));
    }

    #[test]
    fn pages_are_of_one_revision_while_writes_go_on(
        before in prop::collection::vec(step(), 0..40),
        during in prop::collection::vec(step(), 0..40),
        size in 1..4_usize,
        writes in 0..5_usize,
    ) {
        let (storage, mut model) = (Storage::new(), Model::new());
        for step in &before {
            model.apply(&storage, step);
        }
        let mut during = during.iter();
        let (revision, mut range) = (model.latest(), Range::default());
        let mut listed = Vec::new();
        loop {
            let (at, objects) = storage.range(&widgets(), &range).unwrap();
            prop_assert_eq!(at, revision);
            let page: Vec<_> = objects.into_iter().take(size).collect();
            let Some(last) = page.last() else {
                break;
            };
            range = Range { after: Some(last.key.clone()), revision: Some(at) };
            listed.extend(page);
            for step in during.by_ref().take(writes) {
                model.apply(&storage, step);
            }
        }
        prop_assert_eq!(&contents(&listed), &model.at[&revision]);
        prop_assert_eq!(listed.len(), model.at[&revision].len());
    }

    #[test]
    fn a_watch_from_any_revision_has_every_change_once_or_is_expired(
        steps in prop::collection::vec(step_or_compaction(), 0..60),
        later in prop::collection::vec(step_or_compaction(), 0..60),
        capacity in prop_oneof![Just(4096_usize), 1..20_usize],
    ) {
        let (storage, mut model) = (Storage::with_log_capacity(capacity), Model::new());
        for step in &steps {
            model.apply(&storage, step);
        }
        let middle = model.latest();
        let mut watches: Vec<_> = (0..=middle)
            .map(|from| (from, storage.follow(&widgets(), Start::After(from)).1))
            .collect();
        let mut results: Vec<_> = watches.iter_mut().map(|(_, watch)| drain(watch)).collect();
        let compacted = model.compacted;
        for step in &later {
            model.apply(&storage, step);
            for ((_, watch), result) in watches.iter_mut().zip(&mut results) {
                if let Ok(changes) = result {
                    match drain(watch) {
                        Ok(more) => changes.extend(more),
                        // It had read everything: neither a compaction nor the limit concerns it.
                        Err(expired) => prop_assert!(false, "{expired:?}"),
                    }
                }
            }
        }
        for ((from, _), result) in watches.iter().zip(results) {
            match result {
                Ok(changes) => prop_assert_eq!(changes, model.changes_after(*from)),
                Err(expired) => {
                    prop_assert_eq!(expired.asked, *from);
                    let missed = model.changes_after(*from);
                    prop_assert!(*from < compacted || missed.len() > capacity);
                }
            }
        }
    }

    #[test]
    fn a_slow_watch_is_expired_and_never_has_a_gap(
        steps in prop::collection::vec(step_or_compaction(), 0..200),
        reads in prop::collection::vec(any::<bool>(), 200),
        capacity in 1..10_usize,
    ) {
        let (storage, mut model) = (Storage::with_log_capacity(capacity), Model::new());
        let (_, mut watch) = storage.follow(&widgets(), Start::After(1));
        let mut seen = Vec::new();
        for (step, reads) in steps.iter().zip(reads) {
            model.apply(&storage, step);
            if reads {
                match drain(&mut watch) {
                    Ok(changes) => seen.extend(changes),
                    Err(_) => {
                        prop_assert!(model.changes_after(1).starts_with(&seen));
                        return Ok(());
                    }
                }
                prop_assert_eq!(&seen, &model.changes_after(1));
            }
        }
    }

    #[test]
    fn the_history_is_limited_by_its_size(
        steps in prop::collection::vec(step(), 0..100),
        bytes in 0..2_000_usize,
    ) {
        let (storage, mut model) = (Storage::with_limits(4096, bytes, usize::MAX), Model::new());
        for step in &steps {
            model.apply(&storage, step);
            prop_assert!(storage.0.lock().history_bytes <= bytes);
        }
        let now = storage.range(&widgets(), &Range::default()).unwrap();
        prop_assert_eq!(&contents(&now.1), &model.at[&model.latest()]);
        // What is left of the history is complete.
        for from in 1..=model.latest() {
            let (_, mut watch) = storage.follow(&widgets(), Start::After(from));
            if let Ok(changes) = drain(&mut watch) {
                prop_assert_eq!(changes, model.changes_after(from));
            }
        }
    }
}

/// Many writers at once. Each watch starts with the objects of some moment, and leads from there to the
/// last state without a change lost, doubled or reordered.
#[test]
fn concurrent_writers_lose_nothing() {
    const WRITERS: u8 = 4;
    const EACH: usize = 300;
    let storage = Storage::new();
    let (_, mut whole) = storage.follow(&widgets(), Start::After(1));
    let watches = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let storage = &storage;
            scope.spawn(move || {
                for index in 0..EACH {
                    let number = u8::try_from(index % 7).unwrap();
                    match (index + usize::from(writer)) % 5 {
                        0 => {
                            let delete = |_: Option<&Object>| Ok::<_, ()>(Change::Delete);
                            storage.transact(&widgets(), &key(number), true, delete).unwrap();
                        }
                        _ => put(storage, number, u8::try_from(index % 256).unwrap()),
                    }
                }
            });
        }
        let follow = |_| {
            thread::yield_now();
            storage.follow(&widgets(), Start::Objects)
        };
        (0..50).map(follow).collect::<Vec<_>>()
    });

    let all = drain(&mut whole).unwrap();
    assert!(all.is_sorted_by(|one, next| one.0 < next.0));
    assert_eq!(all.last().map(|(at, _, _)| *at), Some(storage.resource_version()));
    for (objects, mut watch) in watches {
        let from = watch.position();
        let mut state = contents(&objects);
        let mut changes = Vec::new();
        while let Some(events) = watch.next().now_or_never() {
            for event in events.unwrap() {
                match event.deleted {
                    true => drop(state.remove(&event.object.key)),
                    false => state.extend(contents(&[Arc::clone(&event.object)])),
                }
                changes.push((event.revision, event.object.key.clone(), event.deleted));
            }
        }
        let expected: Vec<_> = all.iter().filter(|(at, _, _)| *at > from).cloned().collect();
        assert_eq!(changes, expected);
        assert_eq!(state, contents(&storage.range(&widgets(), &Range::default()).unwrap().1));
    }
}

#[test]
fn a_full_storage_refuses_growth_and_nothing_else() {
    let storage = Storage::with_limits(10, 1 << 20, 10_000);
    let write = |number: u8, bytes: usize| {
        let fields = Fields::from_iter([("data".to_owned(), "x".repeat(bytes).into())]);
        let put = |_: Option<&Object>| Ok::<_, NoSpace>(Change::Put(fields));
        storage.transact(&widgets(), &key(number), true, put).map(drop)
    };
    assert_eq!((write(0, 4000), write(1, 4000)), (Ok(()), Ok(())));
    let revision = storage.resource_version();
    assert_eq!((write(2, 4000), write(0, 9000)), (Err(NoSpace), Err(NoSpace)));
    assert_eq!(storage.resource_version(), revision);
    // Whatever shrinks or goes makes room.
    assert_eq!((write(0, 1000), write(2, 4000)), (Ok(()), Ok(())));
    for number in 0..3 {
        let delete = |_: Option<&Object>| Ok::<_, NoSpace>(Change::Delete);
        storage.transact(&widgets(), &key(number), true, delete).unwrap();
    }
    assert_eq!(storage.0.lock().object_bytes, 0);
    assert_eq!(write(3, 9000), Ok(()));
}
