use std::time::Duration;

use super::*;

fn at(called: u64, returned: u64, action: Action, reply: Reply) -> Operation {
    let [called, returned] =
        [called, returned].map(|at| Moment { at: Duration::from_millis(at), event: 0 });
    Operation { client: 0, action, reply, called, returned }
}

fn created(called: u64, returned: u64, value: Value) -> Operation {
    at(called, returned, Action::Create(value), Reply::Done)
}

fn written(called: u64, returned: u64, value: Value) -> Operation {
    at(called, returned, Action::Write(value), Reply::Done)
}

fn read(called: u64, returned: u64, state: State) -> Operation {
    at(called, returned, Action::Read, Reply::Saw(state))
}

fn updated(called: u64, returned: u64, from: Value, to: Value) -> Operation {
    at(called, returned, Action::Update { from, to }, Reply::Done)
}

fn is_good(history: &[Operation]) -> bool {
    check(history).is_ok()
}

#[test]
fn one_operation_after_the_other() {
    assert!(is_good(&[
        read(0, 1, None),
        created(2, 3, 1),
        read(4, 5, Some(1)),
        updated(6, 7, 1, 2),
        at(8, 9, Action::Update { from: 1, to: 3 }, Reply::Conflict),
        at(10, 11, Action::Delete, Reply::Done),
        at(12, 13, Action::Delete, Reply::Missing),
        at(14, 15, Action::Write(4), Reply::Missing),
        created(16, 17, 5),
        at(18, 19, Action::Create(6), Reply::Conflict),
        read(20, 21, Some(5)),
    ]));
}

#[test]
fn concurrent_operations_in_either_order() {
    let during = [created(0, 1, 1), written(2, 10, 2), read(3, 4, Some(1)), read(5, 6, Some(2))];
    assert!(is_good(&during));
    let back = [created(0, 1, 1), written(2, 10, 2), read(3, 4, Some(2)), read(5, 6, Some(1))];
    assert!(!is_good(&back), "a later read saw an older value");
}

#[test]
fn a_stale_read() {
    assert!(!is_good(&[created(0, 1, 1), written(2, 3, 2), read(4, 5, Some(1))]));
}

#[test]
fn a_read_from_the_future() {
    assert!(!is_good(&[created(0, 1, 1), read(2, 3, Some(2)), written(4, 5, 2)]));
    assert!(!is_good(&[created(0, 1, 1), read(2, 3, Some(9))]), "a value that nobody wrote");
}

#[test]
fn a_false_404() {
    assert!(!is_good(&[created(0, 1, 1), read(2, 3, None)]));
    assert!(!is_good(&[created(0, 1, 1), at(2, 3, Action::Delete, Reply::Missing)]));
    assert!(!is_good(&[created(0, 1, 1), at(2, 3, Action::Write(2), Reply::Missing)]));
}

#[test]
fn a_lost_update() {
    let both = [created(0, 1, 1), updated(2, 6, 1, 2), updated(3, 7, 1, 3)];
    assert!(!is_good(&both), "two updates of the same value");
    let back = [created(0, 1, 1), updated(2, 3, 1, 2), updated(4, 5, 1, 3)];
    assert!(!is_good(&back), "an update of a value that is gone");
    let forgotten = [created(0, 1, 1), written(2, 3, 2), updated(4, 5, 1, 3)];
    assert!(!is_good(&forgotten));
}

#[test]
fn a_double_create() {
    assert!(!is_good(&[created(0, 5, 1), created(1, 6, 2)]));
    assert!(is_good(&[created(0, 5, 1), at(1, 6, Action::Delete, Reply::Done), created(2, 7, 2)]));
}

#[test]
fn a_resurrected_delete() {
    let gone = at(2, 3, Action::Delete, Reply::Done);
    assert!(!is_good(&[created(0, 1, 1), gone, read(4, 5, Some(1))]));
    let seen_gone = [created(0, 1, 1), at(2, 3, gone.action, Reply::Unclear), read(4, 5, None)];
    assert!(is_good(&seen_gone));
    let back = [seen_gone.as_slice(), &[read(6, 7, Some(1))]].concat();
    assert!(!is_good(&back), "gone and back without a create");
}

#[test]
fn a_delete_that_happened_twice() {
    let gone = |called, returned| at(called, returned, Action::Delete, Reply::Done);
    assert!(!is_good(&[created(0, 1, 1), gone(2, 5), gone(3, 6)]));
    // Sent again after a create by somebody else: that object is gone, too.
    let again = [created(0, 1, 1), gone(2, 3), created(4, 5, 2), read(6, 7, None)];
    assert!(!is_good(&again));
}

#[test]
fn a_delete_on_condition() {
    let of = |reply| at(4, 5, Action::DeleteIf(1), reply);
    let first = [created(0, 1, 1)];
    assert!(is_good(&[first.as_slice(), &[of(Reply::Done)]].concat()));
    assert!(!is_good(&[first.as_slice(), &[of(Reply::Conflict)]].concat()));
    let second = [created(0, 1, 1), written(2, 3, 2)];
    assert!(!is_good(&[second.as_slice(), &[of(Reply::Done)]].concat()), "of an old value");
    assert!(is_good(&[second.as_slice(), &[of(Reply::Conflict)]].concat()));
    assert!(!is_good(&[second.as_slice(), &[of(Reply::Missing)]].concat()));
}

#[test]
fn a_write_that_is_processed_twice() {
    // Sent again after another's write: the value that was overwritten is back.
    let again = [
        created(0, 1, 1),
        written(2, 20, 2),
        read(3, 4, Some(2)),
        written(5, 6, 3),
        read(7, 8, Some(3)),
        read(9, 10, Some(2)),
    ];
    assert!(!is_good(&again));
    // Its own first attempt answers the second one.
    assert!(!is_good(&[at(0, 5, Action::Create(1), Reply::Conflict), read(6, 7, Some(1))]));
    let update = Action::Update { from: 1, to: 2 };
    let own = [created(0, 1, 1), at(2, 5, update, Reply::Conflict), read(6, 7, Some(2))];
    assert!(!is_good(&own));
}

#[test]
fn an_unclear_write_happens_once_later_or_never() {
    let unclear = at(2, 3, Action::Write(2), Reply::Unclear);
    assert!(is_good(&[created(0, 1, 1), unclear, read(4, 5, Some(1))]), "never");
    assert!(is_good(&[created(0, 1, 1), unclear, read(4, 5, Some(1)), read(6, 7, Some(2))]));
    let twice =
        [created(0, 1, 1), unclear, read(4, 5, Some(2)), written(6, 7, 3), read(8, 9, Some(2))];
    assert!(!is_good(&twice));
    let before = [created(0, 1, 1), read(2, 3, Some(2)), at(4, 5, unclear.action, Reply::Unclear)];
    assert!(!is_good(&before), "seen before it was sent");
}

#[test]
fn the_message_has_the_operations_that_contradict() {
    let verdict = check(&[created(0, 1, 1), read(2, 3, Some(7))]).expect_err("a read of nothing");
    let message = verdict.to_string();
    assert!(message.contains("after 1 operations the object is 1"), "{message}");
    assert!(message.contains("[0: Read → Saw(Some(7)), 0.0020 s–0.0030 s]"), "{message}");
}

#[test]
fn what_unclear_operations_may_explain() {
    // A conflict by a write that nobody saw.
    let update = Action::Update { from: 1, to: 2 };
    let unseen = at(2, 3, Action::Write(9), Reply::Unclear);
    let conflict = [created(0, 1, 1), unseen, at(4, 5, update, Reply::Conflict)];
    assert!(is_good(&conflict));
    assert!(!is_good(&[conflict.as_slice(), &[read(6, 7, Some(1))]].concat()));
    // Two in a row: a delete and a create.
    let delete = at(2, 3, Action::Delete, Reply::Unclear);
    let create = at(4, 5, Action::Create(2), Reply::Unclear);
    assert!(is_good(&[created(0, 1, 1), delete, create, read(6, 7, Some(2))]));
    assert!(!is_good(&[created(0, 1, 1), create, read(6, 7, Some(2))]), "no delete before");
    // An update of a value that is gone never happens.
    let gone = [created(0, 1, 1), written(2, 3, 3), at(4, 5, update, Reply::Unclear)];
    assert!(!is_good(&[gone.as_slice(), &[read(6, 7, Some(2))]].concat()));
}

/// Without the memory that counts unclear operations, each of these would double the search.
#[test]
fn many_unclear_operations_leave_the_search_small() {
    let mut history = vec![created(0, 1, 1)];
    for number in 0..60 {
        let start = 10 * number + 2;
        let action = match number % 3 {
            0 => Action::Write(100 + number),
            1 => Action::Delete,
            _ => Action::Create(100 + number),
        };
        history.push(at(start, start + 1, action, Reply::Unclear));
        history.push(written(start + 2, start + 3, 1_000 + number));
    }
    let good = check(&history).expect("each write is of an object that exists");
    assert!(good < 1_000, "{good}");
    history.push(read(10_000, 10_001, Some(7)));
    let verdict = check(&history).expect_err("nobody wrote it");
    assert!(matches!(verdict, Verdict::Broken { explained: 61, .. }), "{verdict}");
}

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// A history of a register, whose operations happen at random moments inside their times.
fn of_a_register(numbers: &mut Numbers, length: u64) -> Vec<Operation> {
    let mut moments: Vec<(u64, u64)> =
        (1..=length).map(|value| (numbers.below(10 * length), value)).collect();
    moments.sort_unstable();
    let mut state = None;
    let mut history = Vec::new();
    for (moment, value) in moments {
        let older = state.map(|from| numbers.below(4).min(from));
        let action = match (numbers.below(6), older.or(state)) {
            (0, Some(from)) => Action::Update { from, to: value },
            (5, Some(from)) => Action::DeleteIf(from),
            (1, _) => Action::Write(value),
            (2, _) => Action::Delete,
            (3, _) => Action::Create(value),
            _ => Action::Read,
        };
        let replies = [Reply::Saw(state), Reply::Done, Reply::Conflict, Reply::Missing];
        let (called, returned) = (moment.saturating_sub(numbers.below(40)), moment);
        let returned = returned + numbers.below(40);
        let possible = replies.map(|reply| at(called, returned, action, reply));
        let mut right = possible.into_iter().filter_map(|one| Some((one, one.apply(state)?)));
        let (mut operation, after) = right.next().expect("each action has a reply in each state");
        state = after;
        if action != Action::Read && numbers.below(6) == 0 {
            operation.reply = Reply::Unclear;
        }
        history.push(operation);
    }
    history
}

/// Tries every order of every subset that has all clear operations.
fn by_force(history: &[Operation]) -> bool {
    fn from(history: &[Operation], left: &[usize], state: State) -> bool {
        let of = |index: &usize| history.get(*index).expect("in range");
        if left.iter().all(|index| !of(index).is_clear()) {
            return true;
        }
        left.iter().any(|next| {
            let others: Vec<usize> = left.iter().filter(|index| *index != next).copied().collect();
            let is_late = others
                .iter()
                .any(|other| of(other).is_clear() && of(other).returned < of(next).called);
            let after = of(next).apply(state);
            !is_late && after.is_some_and(|after| from(history, &others, after))
        })
    }
    from(history, &(0..history.len()).collect::<Vec<_>>(), None)
}

#[test]
fn histories_of_a_register_are_good() {
    let mut numbers = Numbers(1);
    for _ in 0..40 {
        let history = of_a_register(&mut numbers, 400);
        let verdict = check(&history);
        assert!(verdict.is_ok(), "{}", verdict.expect_err("bad"));
    }
}

#[test]
fn short_histories_are_judged_as_by_force() {
    let mut numbers = Numbers(7);
    let mut bad = 0;
    for _ in 0..2_000 {
        let mut history = of_a_register(&mut numbers, 7);
        let one = usize::try_from(numbers.below(7)).expect("small");
        if let Some(operation) = history.get_mut(one) {
            operation.reply = match operation.reply {
                Reply::Saw(None) => Reply::Saw(Some(numbers.below(7))),
                Reply::Saw(_) => Reply::Saw(None),
                Reply::Done | Reply::Unclear => Reply::Conflict,
                Reply::Conflict | Reply::Missing => Reply::Done,
            };
        }
        let expected = by_force(&history);
        assert_eq!(is_good(&history), expected, "{history:?}");
        bad += usize::from(!expected);
    }
    assert!((250..1_750).contains(&bad), "{bad} of 2,000 were bad");
}
