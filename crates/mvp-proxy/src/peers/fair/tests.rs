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

/// A user as it is slowed now.
fn slow(fair: &Fair<u64>, user: u64) -> Slow {
    Slow { user, ticket: fair.slowed.get(&user).map_or(0, |slowed| slowed.ticket) }
}

/// Everybody that waits, in turn.
fn all(fair: &mut Fair<u64>) -> Vec<u64> {
    std::iter::from_fn(|| fair.pop(Room::Anybody).map(|admitted| admitted.item)).collect()
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
    assert_eq!(fair.pop(Room::Nodes).unwrap().item, 2);
    assert_eq!(fair.pop(Room::Nodes), None);
    assert_eq!(fair.pop(Room::Anybody).unwrap().item, 1);
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
    let admitted: Vec<_> = std::iter::from_fn(|| fair.pop(Room::Anybody)).collect();
    let first = slow(&fair, 1);
    let of_first = admitted.iter().filter(|admitted| admitted.slowed == Some(first)).count();
    assert_eq!((of_first, admitted.len()), (2, 12), "an eighth of the bound, and all of the other");
    fair.left(first);
    assert_eq!(fair.pop(Room::Anybody), Some(Admitted { item: 2, slowed: Some(first) }));
    assert_eq!(fair.pop(Room::Anybody), None);
    // Half as many, once a second.
    assert!(fair.refused(1, at(1)));
    assert!(!fair.refused(1, at(1)));
    fair.left(first);
    assert_eq!(fair.pop(Room::Anybody), None);
    fair.left(first);
    assert!(fair.pop(Room::Anybody).is_some());
    // One is always possible.
    for seconds in 2..20 {
        assert!(!fair.refused(1, at(seconds)));
    }
    fair.left(first);
    assert!(fair.pop(Room::Anybody).is_some());
}

#[test]
fn successes_and_time_give_it_back() {
    let mut fair: Fair<u64> = Fair::new(1600, 100);
    fair.refused(1, at(0));
    let first = slow(&fair, 1);
    let successes = (1..).find(|_| {
        fair.served(first);
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
fn requests_from_before_a_user_recovered_do_not_count_when_it_is_slowed_again() {
    let mut fair = Fair::new(8, 100);
    fair.refused(1, at(0));
    let old = slow(&fair, 1);
    fair.push(user(1), 1).unwrap();
    assert_eq!(fair.pop(Room::Anybody).unwrap().slowed, Some(old));
    fair.sweep(at(30));
    fair.refused(1, at(31));
    assert_ne!(slow(&fair, 1), old);
    fair.push(user(1), 2).unwrap();
    fair.push(user(1), 3).unwrap();
    assert!(fair.pop(Room::Anybody).is_some());
    fair.left(old);
    fair.served(old);
    assert_eq!(fair.pop(Room::Anybody), None, "one is in flight");
    let new = slow(&fair, 1);
    fair.left(new);
    assert!(fair.pop(Room::Anybody).is_some());
}

/// Whatever happens, the lists agree with each other.
#[test]
fn the_lists_agree_after_any_sequence() {
    let mut fair = Fair::new(8, 16);
    let mut tickets = Vec::new();
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
            4 | 5 => drop(fair.pop(if state >> 40 & 1 == 0 { Room::Nodes } else { Room::Anybody })),
            6 => {
                if let Some((flow, ticket)) = tickets.pop() {
                    fair.remove(flow, ticket);
                }
            }
            _ => {
                fair.refused(hash, at(step / 100));
                let slow = slow(&fair, hash);
                fair.left(slow);
            }
        }
        for queue in [&fair.nodes, &fair.others] {
            assert_eq!(queue.length, queue.users.values().map(VecDeque::len).sum::<usize>());
            assert_eq!(queue.turns.len(), queue.users.len());
            assert!(queue.turns.iter().all(|user| queue.users.contains_key(user)));
        }
        assert!(fair.waiting() <= 16);
    }
}
