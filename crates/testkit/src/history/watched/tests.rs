use super::*;

type Seen = Event<&'static str>;

fn event(version: Version, kind: Kind, object: &'static str, value: Value) -> Seen {
    Event { version, kind, object, value }
}

fn segment(version: Version, events: &[Seen]) -> Segment<&'static str> {
    Segment { version, listed: BTreeMap::new(), events: events.to_vec(), until: version }
}

fn write(object: &'static str, state: impl Into<State>, outcome: Outcome) -> Written<&'static str> {
    Written { object, state: state.into(), outcome }
}

fn done(version: Version) -> Outcome {
    Outcome::Done(Some(version))
}

/// x is created, changed and deleted, and y is created.
fn changes() -> Vec<Seen> {
    vec![
        event(5, Kind::Added, "x", 1),
        event(6, Kind::Modified, "x", 2),
        event(8, Kind::Added, "y", 3),
        event(9, Kind::Deleted, "x", 2),
    ]
}

fn writes() -> Vec<Written<&'static str>> {
    vec![
        write("x", 1, done(5)),
        write("x", 2, done(6)),
        write("y", 3, done(8)),
        write("x", None, Outcome::Done(None)),
    ]
}

/// The message about watchers, one of which saw everything.
fn fault_of(other: Watched<&'static str>) -> String {
    let watchers = [vec![segment(4, &changes())], other];
    check(&watchers, &writes(), 9).expect_err("a bad watch").to_string()
}

fn without(version: Version) -> Vec<Seen> {
    changes().into_iter().filter(|event| event.version != version).collect()
}

#[test]
fn all_changes_in_order_are_right() {
    let late = Segment { listed: BTreeMap::from([("x", 2)]), ..segment(6, &changes()[2..]) };
    let watchers = [vec![segment(4, &changes())], vec![late]];
    let checked = check(&watchers, &writes(), 9).expect("a good watch");
    assert_eq!(checked, Checked { changes: 4, events: 6, lists: 2, gaps: 0 });
}

#[test]
fn a_watcher_that_lists_again_misses_nothing_in_between() {
    let listed = BTreeMap::from([("x", 2), ("y", 3)]);
    let again = Segment { version: 8, listed, events: Vec::new(), until: 8 };
    let (before, after) = (changes()[..1].to_vec(), changes()[3..].to_vec());
    let good = vec![segment(4, &before), Segment { events: after.clone(), ..again.clone() }];
    assert!(check(&[vec![segment(4, &changes())], good], &writes(), 9).is_ok());
    let stale = BTreeMap::from([("x", 1), ("y", 3)]);
    let bad = vec![segment(4, &before), Segment { events: Vec::new(), listed: stale, ..again }];
    let message = fault_of(bad);
    assert!(message.contains("missed") || message.contains("by the events"), "{message}");
}

#[test]
fn a_missed_change() {
    let message = fault_of(vec![segment(4, &without(8))]);
    assert!(message.contains("watcher 1, list 0, missed Event { version: 8"), "{message}");
    // Of one object, each event still possible after the other.
    let message = fault_of(vec![segment(4, &without(9))]);
    assert!(message.contains("missed Event { version: 9"), "{message}");
    // The watcher's own events show it.
    let message = fault_of(vec![segment(4, &without(5))]);
    assert!(message.contains("the value was None before"), "{message}");
}

#[test]
fn a_change_that_comes_twice() {
    let twice = [&changes()[..1], &changes()[..]].concat();
    let message = fault_of(vec![segment(4, &twice)]);
    assert!(message.contains("after version 5"), "{message}");
}

#[test]
fn changes_out_of_order() {
    let [first, second, third, last] = changes().try_into().expect("four");
    let message = fault_of(vec![segment(4, &[first, third, second, last])]);
    assert!(message.contains("after version 8"), "{message}");
}

#[test]
fn a_change_from_before_the_list() {
    let listed = BTreeMap::from([("x", 1)]);
    let old = vec![Segment { version: 5, listed, events: changes(), until: 5 }];
    assert!(fault_of(old).contains("after version 5"));
}

#[test]
fn watchers_that_disagree() {
    let mut other = changes();
    other[2].value = 7;
    let message = fault_of(vec![segment(4, &other)]);
    assert!(message.contains("another saw"), "{message}");
}

#[test]
fn a_list_that_lacks_an_object_or_has_one_too_many() {
    for listed in [BTreeMap::new(), BTreeMap::from([("x", 2), ("y", 3)])] {
        let events = Vec::new();
        let message = fault_of(vec![Segment { version: 9, listed, events, until: 9 }]);
        assert!(message.contains("by the events it is"), "{message}");
    }
}

/// The message about writes whose watchers agree.
fn fault_of_writes(change: impl FnOnce(&mut Vec<Written<&'static str>>)) -> String {
    let mut writes = writes();
    change(&mut writes);
    check(&[vec![segment(4, &changes())]], &writes, 9).expect_err("bad writes").to_string()
}

#[test]
fn an_acknowledged_write_that_no_watch_saw() {
    let message = fault_of_writes(|writes| writes.push(write("y", 4, done(10))));
    assert!(message.contains("was seen as None"), "{message}");
    let message = fault_of_writes(|writes| writes.push(write("y", None, Outcome::Done(None))));
    assert!(message.contains("1 deletions were acknowledged and 1 sent, 0 were seen"), "{message}");
}

#[test]
fn a_write_at_another_version_or_of_another_object() {
    let message = fault_of_writes(|writes| writes[1].outcome = done(7));
    assert!(message.contains("was seen as Some"), "{message}");
    let message = fault_of_writes(|writes| writes[1].object = "y");
    assert!(message.contains("was seen as Some"), "{message}");
}

#[test]
fn a_change_that_nobody_wrote() {
    let message = fault_of_writes(|writes| {
        writes.remove(1);
    });
    assert!(message.contains("nobody wrote"), "{message}");
    let message = fault_of_writes(|writes| {
        writes.pop();
    });
    assert!(message.contains("0 deletions were acknowledged and 0 sent, 1 were seen"), "{message}");
}

#[test]
fn a_write_that_happened_twice() {
    let mut events = changes();
    events.push(event(12, Kind::Added, "x", 1));
    let fault = check(&[vec![segment(4, &events)]], &writes(), 12).expect_err("twice");
    assert!(fault.to_string().contains("happened twice"), "{fault}");
}

#[test]
fn an_unclear_write_happens_or_not() {
    let mut some = writes();
    some[1].outcome = Outcome::Unclear;
    some[3].outcome = Outcome::Unclear;
    some.push(write("y", 8, Outcome::Unclear));
    some.push(write("y", None, Outcome::Unclear));
    assert!(check(&[vec![segment(4, &changes())]], &some, 9).is_ok());
}

#[test]
fn a_bookmark_that_is_ahead_of_the_events() {
    let early = Segment { until: 6, ..segment(4, &changes()[..1]) };
    let again = Segment { listed: BTreeMap::from([("x", 2), ("y", 3)]), ..segment(8, &[]) };
    let again = Segment { events: changes()[3..].to_vec(), ..again };
    let message = fault_of(vec![early, again]);
    assert!(message.contains("watcher 1, list 0, missed Event { version: 6"), "{message}");
}

/// Both lost their watches at version 6 and listed again at version 8.
#[test]
fn in_a_gap_of_all_watchers_only_what_was_seen_counts() {
    let listed = BTreeMap::from([("x", 2), ("y", 3)]);
    let again = Segment { listed, events: changes()[3..].to_vec(), ..segment(8, &[]) };
    let watched = vec![segment(4, &changes()[..2]), again.clone()];
    let both = [watched.clone(), watched.clone()];
    let mut writes = writes();
    let checked = check(&both, &writes, 9).expect("y was created in the gap");
    assert_eq!((checked.gaps, checked.changes), (1, 3));
    // What is known beside the gap must still be right.
    writes[0].outcome = done(6);
    assert!(check(&both, &writes, 9).is_err());
    writes[0].outcome = done(5);
    writes.push(write("y", 4, done(9)));
    assert!(check(&both, &writes, 9).is_err(), "acknowledged after the gap, and not seen");
    let other = Segment { listed: BTreeMap::from([("x", 2)]), ..again };
    let disagree = [watched, vec![segment(4, &changes()[..2]), other]];
    assert!(check(&disagree, &writes, 9).is_err(), "lists of the same version");
}

#[test]
fn a_write_before_the_first_list_is_not_asked_for() {
    let mut more = writes();
    more.push(write("y", 4, done(3)));
    assert!(check(&[vec![segment(4, &changes())]], &more, 9).is_ok());
}
