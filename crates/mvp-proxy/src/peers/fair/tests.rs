//! Turns, places and slowed users.

use super::*;

fn user(hash: u64) -> Flow {
    Flow { hash, class: Class::Other }
}

fn node(hash: u64) -> Flow {
    Flow { hash, class: Class::Node }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

/// More places than anybody asks for.
const MANY: usize = 1000;

/// The request that is next.
fn next(fair: &mut Fair<u64>) -> Option<u64> {
    fair.pop(Room::Anybody, MANY).map(|(_, item)| item)
}

/// Everybody that waits, in turn.
fn all(fair: &mut Fair<u64>) -> Vec<u64> {
    std::iter::from_fn(|| next(fair)).collect()
}

#[test]
fn users_take_turns_whatever_the_number_of_their_requests() {
    let mut fair = Fair::new(100, 100);
    for item in 0..20 {
        fair.push(user(1), item).unwrap();
    }
    fair.push(user(2), 100).unwrap();
    fair.push(user(3), 200).unwrap();
    fair.push(user(2), 101).unwrap();
    assert_eq!(all(&mut fair)[..6], [0, 100, 200, 1, 101, 2]);
    assert!(!fair.is_busy() && fair.others.users.is_empty() && fair.others.turns.is_empty());
}

#[test]
fn nodes_come_first_and_have_room_of_their_own() {
    let mut fair = Fair::new(100, 100);
    fair.push(user(1), 1).unwrap();
    fair.push(node(2), 2).unwrap();
    assert_eq!(fair.pop(Room::Nodes, MANY), Some((2, 2)));
    assert_eq!(fair.pop(Room::Nodes, MANY), None);
    assert_eq!(fair.pop(Room::Anybody, MANY), Some((1, 1)));
}

#[test]
fn a_user_takes_a_place_only_while_it_holds_fewer_than_are_free() {
    let mut fair = Fair::new(100, 100);
    for item in 0..5 {
        fair.push(user(1), item).unwrap();
    }
    fair.push(user(2), 100).unwrap();
    assert_eq!(fair.pop(Room::Anybody, 4), Some((1, 0)));
    assert_eq!(fair.pop(Room::Anybody, 3), Some((2, 100)));
    assert_eq!(fair.pop(Room::Anybody, 2), Some((1, 1)));
    assert_eq!(fair.pop(Room::Anybody, 2), None, "it holds two");
    fair.push(user(3), 200).unwrap();
    assert_eq!(
        fair.pop(Room::Anybody, 1),
        Some((3, 200)),
        "one that holds none has the last place"
    );
    fair.left(2);
    fair.left(3);
    assert_eq!(fair.pop(Room::Anybody, 3), Some((1, 2)));
    assert_eq!(all(&mut fair), [3, 4]);
    for _ in 0..5 {
        assert!(!fair.is_at_rest());
        fair.left(1);
    }
    assert!(fair.is_at_rest());
}

#[test]
fn nodes_and_others_alternate_in_the_places_of_everybody() {
    let mut fair = Fair::new(100, 100);
    for item in 0..3 {
        fair.push(node(1), item).unwrap();
        fair.push(user(2), 100 + item).unwrap();
    }
    assert_eq!(all(&mut fair), [0, 100, 1, 101, 2, 102]);
    // A user whose turn it is, but that has enough in flight, keeps no node waiting.
    (0..3).for_each(|_| fair.left(2));
    fair.refused(2, at(0));
    for item in 0..20 {
        fair.push(user(2), 100 + item).unwrap();
    }
    assert_eq!(all(&mut fair).len(), 12);
    fair.push(node(1), 3).unwrap();
    fair.push(node(1), 4).unwrap();
    assert_eq!(all(&mut fair), [3, 4]);
}

#[test]
fn one_user_has_a_quarter_of_the_places() {
    let mut fair = Fair::new(100, 8);
    assert!(fair.push(user(1), 0).is_some() && fair.push(user(1), 1).is_some());
    assert!(fair.push(user(1), 2).is_none());
    assert!(fair.push(user(2), 3).is_some());
}

#[test]
fn a_user_with_more_waiting_requests_loses_a_place() {
    let mut fair = Fair::new(100, 8);
    for hash in 0..4 {
        for item in 0..2 {
            assert_eq!(fair.push(user(hash), hash * 10 + item).unwrap().1, None);
        }
    }
    let (_, lost) = fair.push(user(9), 90).unwrap();
    assert_eq!(lost.map(|lost| lost % 10), Some(1), "the last one of a user with two");
    assert!(fair.push(user(9), 91).is_none(), "nobody has more than one more");
    assert_eq!(fair.push(node(7), 70).unwrap().1.map(|lost| lost % 10), Some(1));
    assert_eq!(fair.waiting(), 8);
    assert_eq!(all(&mut fair).len(), 8);
}

#[test]
fn a_node_takes_the_place_of_another_user_even_if_that_has_one_request() {
    let mut fair = Fair::new(100, 8);
    for hash in 0..8 {
        fair.push(user(hash), hash).unwrap();
    }
    assert!(fair.push(user(8), 8).is_none());
    assert!(fair.push(node(9), 9).unwrap().1.is_some_and(|lost| lost < 8));
    assert!(fair.push(node(9), 10).unwrap().1.is_some_and(|lost| lost < 8));
    assert!(fair.push(node(9), 11).is_none(), "a node has a quarter at most, too");
    assert_eq!((fair.nodes.length, fair.others.length), (2, 6));
}

#[test]
fn a_request_that_waits_no_longer_is_removed() {
    let mut fair = Fair::new(100, 8);
    let (ticket, _) = fair.push(user(1), 1).unwrap();
    fair.push(user(2), 2).unwrap();
    fair.remove(user(1), ticket);
    fair.remove(user(1), ticket);
    assert_eq!(all(&mut fair), [2]);
    assert!(!fair.is_busy());
}

#[test]
fn a_user_that_the_member_refuses_has_fewer_in_flight_and_others_do_not() {
    let mut fair = Fair::new(16, 100);
    fair.refused(1, at(0));
    for item in 0..10 {
        fair.push(user(1), item).unwrap();
        fair.push(user(2), 100 + item).unwrap();
    }
    let admitted = all(&mut fair);
    let of_first = admitted.iter().filter(|item| **item < 100).count();
    assert_eq!((of_first, admitted.len()), (2, 12), "an eighth of the bound, and all of the other");
    fair.left(1);
    assert_eq!(next(&mut fair), Some(2));
    assert_eq!(next(&mut fair), None);
    // Half as many, once a second.
    assert!(fair.refused(1, at(1)));
    assert!(!fair.refused(1, at(1)));
    fair.left(1);
    assert_eq!(next(&mut fair), None);
    fair.left(1);
    assert!(next(&mut fair).is_some());
    // One is always possible.
    for seconds in 2..20 {
        assert!(!fair.refused(1, at(seconds)));
    }
    fair.left(1);
    assert!(next(&mut fair).is_some());
}

#[test]
fn successes_and_time_give_it_back() {
    let mut fair: Fair<u64> = Fair::new(1600, 100);
    fair.refused(1, at(0));
    let successes = (1..).find(|_| {
        fair.served(1);
        !fair.is_busy()
    });
    assert!((200..5_000).contains(&successes.unwrap()), "{successes:?}");
    fair.refused(1, at(1));
    fair.sweep(at(30));
    assert!(fair.is_busy());
    fair.sweep(at(31));
    assert!(!fair.is_busy());
    for user in 0..10_000 {
        fair.refused(user, at(40));
    }
    assert_eq!(fair.slowed.len(), MAX_SLOWED);
}

#[test]
fn requests_from_before_a_user_is_slowed_count_against_its_limit() {
    let mut fair = Fair::new(8, 100);
    for item in 0..3 {
        fair.push(user(1), item).unwrap();
    }
    assert_eq!((next(&mut fair), next(&mut fair)), (Some(0), Some(1)));
    fair.refused(1, at(0));
    fair.left(1);
    assert_eq!(next(&mut fair), None, "one is in flight");
    fair.left(1);
    assert_eq!(next(&mut fair), Some(2));
}

/// Whatever happens, the lists agree with each other.
#[test]
fn the_lists_agree_after_any_sequence() {
    let mut fair = Fair::new(8, 16);
    let (mut tickets, mut held) = (Vec::new(), Vec::new());
    let mut state = 1_u64;
    for step in 0..20_000_u64 {
        // A generator of Marsaglia's.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let hash = state % 7;
        let flow = if hash == 0 { node(hash) } else { user(hash) };
        match state >> 32 & 7 {
            0..=3 => tickets.extend(fair.push(flow, step).map(|(ticket, _)| (flow, ticket))),
            4 | 5 => {
                let room = if state >> 40 & 1 == 0 { Room::Nodes } else { Room::Anybody };
                let free = (state >> 48) as usize % 8;
                if let Some((user, _)) = fair.pop(room, free) {
                    assert!(holds(&fair.held, user) <= free);
                    held.push(user);
                }
            }
            6 => {
                if let Some((flow, ticket)) = tickets.pop() {
                    fair.remove(flow, ticket);
                }
            }
            _ => {
                fair.refused(hash, at(step / 100));
                if let Some(user) = held.pop() {
                    fair.left(user);
                }
            }
        }
        assert_eq!(fair.held.values().sum::<usize>(), held.len());
        assert!(fair.held.values().all(|places| *places > 0));
        for queue in [&fair.nodes, &fair.others] {
            assert_eq!(queue.length, queue.users.values().map(VecDeque::len).sum::<usize>());
            assert_eq!(queue.turns.len(), queue.users.len());
            assert!(queue.turns.iter().all(|user| queue.users.contains_key(user)));
        }
        assert!(fair.waiting() <= 16);
    }
}
