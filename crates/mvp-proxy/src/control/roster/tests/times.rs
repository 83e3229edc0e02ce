//! When members are fetched from, blocked for and remembered.

use super::*;

fn millis(millis: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_millis(millis))
}

/// The tickets of the fetches that begin now, by member.
fn begin(state: &mut RosterState, now: Timestamp) -> BTreeMap<Arc<str>, Ticket> {
    let effects = state.step(Event::Tick, now);
    let begun = effects.into_iter().filter_map(|effect| match effect {
        Effect::Fetch(request) => Some((Arc::clone(&request.member.id), request.ticket)),
        _ => None,
    });
    begun.collect()
}

fn end(state: &mut RosterState, ticket: &Ticket, now: Timestamp) -> Vec<Effect> {
    let fetched = Box::new(documents(&Who::Server));
    state.step(Event::Fetched { ticket: ticket.clone(), fetched }, now)
}

#[test]
fn the_next_fetch_is_that_of_the_first_member_that_is_present_and_not_being_fetched_from() {
    let mut state = state();
    assert_eq!(state.next_due(), None);
    list(&mut state, &[record("a:1", None)], 0);
    assert_eq!(state.next_due(), Some(at(0)));
    let tickets = begin(&mut state, at(0));
    assert_eq!(state.next_due(), None, "both are being fetched from");
    end(&mut state, &tickets["own"], millis(700));
    assert_eq!(state.next_due(), Some(at(1)));
    end(&mut state, &tickets["b"], millis(800));
    let tickets = begin(&mut state, millis(1200));
    end(&mut state, &tickets["own"], millis(1300));
    assert_eq!(state.next_due(), Some(millis(2200)), "b is still being fetched from");
    let tickets = begin(&mut state, millis(2300));
    end(&mut state, &tickets["own"], millis(2400));
    list(&mut state, &[], 3);
    assert_eq!(state.next_due(), Some(millis(3300)), "b left");
}

/// At the start the local server is often not set up yet.
#[test]
fn an_unreachable_local_server_is_tried_again_sooner_than_a_peer() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    begin(&mut state, at(0));
    state.step(Event::Unreachable("b".into()), at(0));
    assert_eq!(state.next_due(), Some(at(1)));
    state.step(Event::Unreachable("own".into()), at(0));
    assert_eq!(state.next_due(), Some(millis(100)));
}

/// Its gateway cannot renew its Lease while its server, or etcd, is down.
#[test]
fn the_local_server_is_a_member_however_old_its_own_lease_is() {
    let mut state = state();
    for now in [0, 100, 700, 701] {
        list(&mut state, &[named("own", "a:0", Some(0))], now);
        assert_eq!(tracked(&state, "own").presence, Presence::Present, "{now}");
    }
}

/// It may have restarted while it was silent, and serve something new.
#[test]
fn a_member_rejoins_with_its_first_heartbeat_after_40_s_without_one() {
    for (between, heartbeat, joined) in
        [(None, 40, 0), (None, 41, 41), (Some(30), 41, 41), (Some(300), 361, 361), (None, 361, 361)]
    {
        let mut state = state();
        list(&mut state, &[record("a:1", Some(0))], 0);
        answers(&mut state, "b", &Who::Server, 0);
        // The sources may report something else meanwhile.
        if let Some(between) = between {
            list(&mut state, &[record("a:1", Some(0))], between);
        }
        list(&mut state, &[record("a:1", Some(heartbeat))], heartbeat);
        assert_eq!(tracked(&state, "b").joined, at(joined), "{between:?} {heartbeat}");
    }
}

#[test]
fn members_that_answered_do_not_spend_the_wait_budget_of_those_that_have_not() {
    let mut state = state();
    let known = |now| named("b", "a:1", Some(now));
    let without = |now| MemberRecord { address: None, ..named("c", "a:2", Some(now)) };
    for now in 0..300 {
        list(&mut state, &[known(now), without(now)], now);
        answers(&mut state, "own", &Who::Server, now);
        answers(&mut state, "b", &Who::Server, now);
    }
    // Now somebody joins who never answers.
    let mut blocked = Vec::new();
    for now in 300..700 {
        list(&mut state, &[known(now), without(now), named("d", "a:3", Some(now))], now);
        answers(&mut state, "own", &Who::Server, now);
        answers(&mut state, "b", &Who::Server, now);
        blocked.extend(blocks(&state, now).then_some(now));
    }
    // The second before the first of them may count.
    assert!(blocked.iter().copied().eq(300..599), "{blocked:?}");
}

#[test]
fn the_view_of_a_member_without_an_address_expires_some_time_after_its_last_answer() {
    let mut state = state();
    let without = |now| MemberRecord { address: None, ..record("a:1", Some(now)) };
    list(&mut state, &[record("a:1", Some(100))], 100);
    let whole = documents(&Who::Server);
    let Fetched { parts: [_, apis], .. } = whole.clone();
    let half = Fetched { parts: [Outcome::Failed("gone".to_owned()), apis], ..whole };
    fetch(&mut state, "b", half, 100);
    let recorded = BTreeMap::from([("b".to_owned(), Arc::default())]);
    state.step(Event::Recorded(Arc::new(recorded)), at(100));
    list(&mut state, &[without(699)], 699);
    assert!(tracked(&state, "b").view.apis.is_some());
    list(&mut state, &[without(700)], 700);
    let view = &tracked(&state, "b").view;
    assert!(view.apis.is_none());
    assert!(view.recorded.is_some(), "that is not its own word, and does not expire with it");
}

#[test]
fn a_member_that_left_is_remembered_if_only_half_of_what_it_serves_was_seen() {
    for place in 0..2 {
        let mut state = state();
        list(&mut state, &[record("a:1", None)], 0);
        let mut half = documents(&Who::Server);
        half.parts[place] = Outcome::Failed("gone".to_owned());
        fetch(&mut state, "b", half, 1);
        assert_eq!(list(&mut state, &[], 2), 0);
        assert_eq!(tracked(&state, "b").presence, Presence::Left);
    }
}

/// Two sources named the same server, one after the other.
#[test]
fn a_new_name_takes_over_the_latest_view_of_its_address() {
    for order in [["b", "c"], ["c", "b"]] {
        let mut state = state();
        list(&mut state, &[named("b", "a:1", None), named("c", "a:1", None)], 0);
        for (second, id) in (1..).zip(order) {
            answers(&mut state, id, &Who::Server, second);
        }
        list(&mut state, &[named("d", "a:1", None)], 3);
        let seen = tracked(&state, "d").view.apis.clone().unwrap();
        assert_eq!(seen.confirmed, at(2), "{order:?}");
    }
}

/// It was away while a fetch was running: what it served before proves nothing now.
#[test]
fn a_result_from_before_a_member_was_forgotten_is_ignored_after_its_return() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let before = begin(&mut state, at(0)).remove("b").unwrap();
    assert_eq!(list(&mut state, &[], 1), 1, "it was never seen");
    list(&mut state, &[record("a:1", None)], 2);
    let now = begin(&mut state, at(2)).remove("b").unwrap();
    end(&mut state, &before, at(3));
    assert!(tracked(&state, "b").view.apis.is_none());
    end(&mut state, &now, at(3));
    assert_eq!(tracked(&state, "b").view.apis.as_ref().unwrap().confirmed, at(2));
}

#[test]
fn the_sources_are_complete_as_they_last_said() {
    let mut state = state();
    let list = |state: &mut RosterState, complete, now| {
        let effects = state.step(Event::Listed(Roster { members: vec![], complete }), at(now));
        effects
            .into_iter()
            .any(|effect| matches!(effect, Effect::Report(Report::MembersUnknown { .. })))
    };
    assert!(!state.is_complete());
    for (now, complete) in [(0, false), (1, true), (2, false), (400, false), (500, true)] {
        let is_reported = list(&mut state, complete, now);
        assert_eq!(state.is_complete(), complete, "{now}");
        assert!(!is_reported, "{now}: they named all members in time");
    }
}

#[test]
fn a_refresh_is_counted_once_if_any_member_has_to_wait() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    assert_eq!(state.step(Event::RefreshWanted, at(0)), [], "nobody was asked before");
    for ticket in begin(&mut state, at(0)).values() {
        end(&mut state, ticket, at(0));
    }
    assert_eq!(state.step(Event::RefreshWanted, millis(1)), [Effect::CountDelayed], "both wait");
    list(&mut state, &[record("a:1", None), named("c", "a:2", None)], 0);
    assert_eq!(state.step(Event::RefreshWanted, millis(2)), [Effect::CountDelayed], "c does not");
    assert_eq!(state.step(Event::RefreshWanted, at(1)), [], "long after");
}
