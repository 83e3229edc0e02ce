//! The bounds of the table. What is recorded of a request is tested on the wire (`wire callers`).

use std::time::Duration;

use super::*;

const JOBS: (&str, &str, &str) = ("batch", "v1", "jobs");
const PODS: (&str, &str, &str) = ("", "v1", "pods");

fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

fn call(seconds: u64) -> Call {
    Call { at: at(seconds), address: Some([192, 0, 2, 1].into()), proves: false }
}

fn caller(user: &str, agent: &str) -> Described {
    let (user, agent) = (Some(user.into()), agent.into());
    Described { user, source: "authenticated", agent, provisional: false }
}

fn provisional(user: &str) -> Described {
    Described { source: "token-hash", provisional: true, ..caller(user, "kubectl") }
}

fn report(table: &Table, seconds: u64) -> CallersReport {
    let mut report = CallersReport::empty(RECORDED_FOR);
    table.report(at(seconds), false, &mut report);
    report.sort();
    report
}

/// The users of a resource with their requests, and the requests of callers without a place.
fn of(table: &Table, resource: (&str, &str, &str), seconds: u64) -> (Vec<(String, u64)>, u64) {
    let report = report(table, seconds);
    let found = report
        .resources
        .into_iter()
        .find(|r| (r.group.as_str(), r.version.as_str(), r.resource.as_str()) == resource);
    let Some(found) = found else { return (Vec::new(), 0) };
    let callers = found.callers.into_iter();
    (callers.map(|c| (c.user.unwrap_or_default(), c.requests)).collect(), found.more_requests)
}

#[test]
fn a_known_key_counts_for_its_caller() {
    let mut table = Table::default();
    assert!(!table.count_known(1, call(0)));
    table.count_new(JOBS, true, 1, caller("alice", "kubectl"), call(0));
    assert!(table.count_known(1, call(5)));
    // Another token of the same caller.
    table.count_new(JOBS, true, 2, caller("alice", "kubectl"), call(6));
    assert!(table.count_known(2, call(7)));
    assert_eq!(of(&table, JOBS, 10), (vec![("alice".to_owned(), 4)], 0));
    let seen = report(&table, 10).resources[0].callers[0].clone();
    assert_eq!((seen.last_seen_seconds_ago, seen.address), (3, None));
    let mut full = CallersReport::empty(RECORDED_FOR);
    table.report(at(10), true, &mut full);
    assert_eq!(full.resources[0].callers[0].address.as_deref(), Some("192.0.2.1"));
}

#[test]
fn a_resource_has_64_callers_and_takes_no_place_of_another() {
    let mut table = Table::default();
    table.count_new(JOBS, true, 0, caller("rare", "cron"), call(0));
    for key in 1..=1000 {
        table.count_new(PODS, true, key, caller(&format!("user-{key}"), "busy"), call(1));
    }
    let (pods, more) = of(&table, PODS, 2);
    assert_eq!((pods.len(), more), (64, 936));
    assert_eq!(of(&table, JOBS, 2), (vec![("rare".to_owned(), 1)], 0));
    assert!(table.count_known(0, call(3)) && table.count_known(64, call(3)));
    // Its name is not derived again at each request.
    assert!(table.count_known(65, call(3)));
    assert_eq!(of(&table, PODS, 3).1, 937);
    // When there is room again, it gets a place.
    table.sweep(at(3602));
    assert!(!table.count_known(65, call(3602)));
    table.count_new(PODS, true, 65, caller("user-65", "busy"), call(3602));
    assert!(of(&table, PODS, 3602).0.contains(&("user-65".to_owned(), 1)));
}

#[test]
fn the_first_request_after_all_callers_expired_is_recorded() {
    let mut table = Table::default();
    for key in 0..64 {
        table.count_new(PODS, true, key, caller(&format!("user-{key}"), "busy"), call(0));
    }
    table.count_new(PODS, true, 64, caller("alice", "kubectl"), call(4000));
    assert_eq!(of(&table, PODS, 4000), (vec![("alice".to_owned(), 1)], 0));
    assert!(table.count_known(64, call(4001)));
}

#[test]
fn accepted_tokens_without_a_name_take_a_quarter_of_the_places() {
    let mut table = Table::default();
    let opaque = |key: u64| Described { provisional: false, ..provisional(&format!("{key:08x}")) };
    for key in 0..100 {
        table.count_new(PODS, true, key, opaque(key), call(0));
    }
    let (callers, more) = of(&table, PODS, 0);
    assert_eq!((callers.len(), more), (16, 84));
    // Tokens that no server accepted take none of these places.
    table.count_new(JOBS, true, 200, provisional("x"), call(0));
    for key in 0..100 {
        table.count_new(JOBS, true, 300 + key, provisional(&format!("{key:08x}")), call(0));
    }
    table.count_new(JOBS, true, 400, opaque(400), call(0));
    assert_eq!(of(&table, JOBS, 0).0.len(), 17);
}

#[test]
fn expired_callers_make_room_and_are_not_shown() {
    let mut table = Table::default();
    for key in 0..64 {
        table.count_new(PODS, true, key, caller(&format!("user-{key}"), "busy"), call(0));
    }
    table.count_new(JOBS, true, 64, caller("alice", "kubectl"), call(100));
    assert!(table.count_known(7, call(2000)));
    assert_eq!(of(&table, PODS, 3600).0.len(), 64);
    assert_eq!(of(&table, PODS, 3601).0, vec![("user-7".to_owned(), 2)]);
    table.count_new(PODS, true, 65, caller("new", "kubectl"), call(3650));
    let users: Vec<_> = of(&table, PODS, 3650).0.into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, ["user-7", "new"]);
    // Keys of moved callers must not count for others.
    assert!(!table.count_known(64, call(3651)) && !table.count_known(7, call(3651)));
    assert_eq!(of(&table, JOBS, 3651), (vec![("alice".to_owned(), 1)], 0));
    table.sweep(at(10_000));
    assert!(report(&table, 10_000).resources.is_empty());
    let mut left = 0;
    table.count_callers(at(10_000), &mut |_, _, _, _| left += 1);
    assert_eq!(left, 0, "it is dropped, not only hidden");
}

#[test]
fn further_user_agents_of_a_user_share_a_place() {
    let mut table = Table::default();
    for key in 0..100 {
        table.count_new(PODS, true, key, caller("alice", &format!("agent-{key}")), call(0));
    }
    let report = report(&table, 0);
    let agents: Vec<_> =
        report.resources[0].callers.iter().map(|c| (c.user_agent.as_str(), c.requests)).collect();
    assert_eq!(agents.len(), 9);
    assert_eq!(agents[0], ("(other user agents)", 92));
    assert!(table.count_known(99, call(1)), "its key leads to the shared place");
    table.count_new(PODS, true, 1000, caller("bob", "kubectl"), call(0));
    assert_eq!(of(&table, PODS, 0).1, 0);
}

#[test]
fn tokens_that_no_server_accepted_take_a_quarter_of_the_places() {
    let mut table = Table::default();
    for key in 0..100 {
        table.count_new(PODS, true, key, provisional(&format!("{key:08x}")), call(0));
    }
    let (callers, more) = of(&table, PODS, 0);
    assert_eq!((callers.len(), more), (16, 84));
    // The first response that proves the token asks for its name, also without a place.
    assert!(table.count_known(50, call(1)));
    assert!(!table.count_known(50, Call { proves: true, ..call(1) }));
    assert!(table.count_known(3, call(1)));
    let proves = Call { proves: true, ..call(2) };
    assert!(!table.count_known(3, proves));
    table.count_new(PODS, true, 3, caller("system:serviceaccount:a:b", "kubectl"), proves);
    assert!(table.count_known(3, proves));
    let named = ("system:serviceaccount:a:b".to_owned(), 2);
    assert!(of(&table, PODS, 2).0.contains(&named));
}

#[test]
fn only_resources_that_were_listed_are_recorded() {
    let mut table = Table::default();
    table.count_new(("made.up", "v1", "things"), false, 1, caller("eve", "x"), call(0));
    assert!(report(&table, 0).resources.is_empty());
    table.count_new(JOBS, true, 2, caller("alice", "kubectl"), call(0));
    table.count_new(JOBS, false, 3, caller("bob", "kubectl"), call(1));
    assert_eq!(of(&table, JOBS, 1).0.len(), 2, "it was listed a moment ago");
}

#[test]
fn resources_and_keys_are_bounded() {
    let mut table = Table::default();
    for key in 0..200_u64 {
        let name = format!("kind-{key}");
        table.count_new(("g", "v1", &name), true, key, caller("alice", "x"), call(0));
    }
    let full = report(&table, 0);
    assert_eq!((full.resources.len(), full.more_requests), (128, 72));
    // A resource without a place costs no sweep, and the keys of others stay.
    assert!(table.count_known(0, call(300)) && table.count_known(199, call(300)));
    table.count_new(("g", "v1", "late"), true, 200, caller("alice", "x"), call(301));
    table.sweep(at(302));
    assert!(table.count_known(0, call(302)));
    assert_eq!(report(&table, 302).more_requests, 74);
    for key in 1000..100_000_u64 {
        table.count_new(("g", "v1", "kind-0"), true, key, caller("alice", "x"), call(0));
    }
    assert!(table.keys() <= 4096);
    assert_eq!(of(&table, ("g", "v1", "kind-0"), 0).0, vec![("alice".to_owned(), 99_003)]);
    // After an hour there is room again.
    table.count_new(("g", "v1", "late"), true, 1, caller("alice", "x"), call(4000));
    assert_eq!(of(&table, ("g", "v1", "late"), 4000).0.len(), 1);
}

#[test]
fn names_are_cut_at_a_whole_character() {
    let long = "ä".repeat(MAX_TEXT);
    assert_eq!(truncated(&long), "ä".repeat(MAX_TEXT / 2));
    assert_eq!(truncated("alice"), "alice");
    let odd = format!("x{long}");
    assert_eq!(truncated(&odd).len(), MAX_TEXT - 1);
}
