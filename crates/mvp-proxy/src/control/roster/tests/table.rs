//! What becomes of a member: each row of the table is a life of `b`.

use http::StatusCode;
use mvp_core::member::ViewState;

use super::*;

/// One thing that happens.
enum Do {
    /// The sources name `b` at this address.
    Lists(&'static str),
    /// The sources name nobody.
    ListsNobody,
    /// A fetch from `b` succeeds.
    Answers,
    /// A fetch from `b` fails.
    Fails,
    /// An operator forgets `b`.
    Forgets,
}

use Do::{Answers, Fails, Forgets, Lists, ListsNobody};

/// A name, the steps with their seconds, and what a snapshot shows after the last one.
type Row = (&'static str, &'static [(u64, Do)], &'static [&'static str]);

const TABLE: &[Row] = &[
    ("joins and is unseen", &[(1, Lists("a:1"))], &["b a:1 present unknown"]),
    ("answers", &[(1, Lists("a:1")), (2, Answers)], &["b a:1 present fresh"]),
    ("first fetch failed", &[(1, Lists("a:1")), (2, Fails)], &["b a:1 present unknown"]),
    (
        "fetch failed: the last view stays and gets stale",
        &[(1, Lists("a:1")), (2, Answers), (9, Fails)],
        &["b a:1 present stale 7"],
    ),
    (
        "recovered",
        &[(1, Lists("a:1")), (2, Answers), (9, Fails), (10, Answers)],
        &["b a:1 present fresh"],
    ),
    ("left", &[(1, Lists("a:1")), (2, Answers), (3, ListsNobody)], &["b a:1 left fresh"]),
    ("left unseen", &[(1, Lists("a:1")), (3, ListsNobody)], &[]),
    (
        "left and forgotten by an operator",
        &[(1, Lists("a:1")), (2, Answers), (3, ListsNobody), (4, Forgets)],
        &[],
    ),
    (
        "left and expired",
        &[(1, Lists("a:1")), (2, Answers), (3, ListsNobody), (603, ListsNobody)],
        &[],
    ),
    (
        "returned",
        &[(1, Lists("a:1")), (2, Answers), (3, ListsNobody), (13, Lists("a:1"))],
        &["b a:1 present stale 11"],
    ),
    (
        "present, so that an operator cannot forget it",
        &[(1, Lists("a:1")), (2, Answers), (3, Forgets)],
        &["b a:1 present fresh"],
    ),
    ("moved unseen", &[(1, Lists("a:1")), (2, Lists("a:2"))], &["b a:2 present unknown"]),
    (
        "moved",
        &[(1, Lists("a:1")), (2, Answers), (3, Lists("a:2"))],
        &["b a:2 present fresh", "b@a:1 a:1 left fresh"],
    ),
    (
        "moved and answers there",
        &[(1, Lists("a:1")), (2, Answers), (3, Lists("a:2")), (4, Answers), (5, Lists("a:2"))],
        &["b a:2 present fresh"],
    ),
    (
        "moved and back",
        &[(1, Lists("a:1")), (2, Answers), (3, Lists("a:2")), (4, Lists("a:1"))],
        &["b a:1 present fresh"],
    ),
];

fn shown(state: &RosterState, now: u64) -> Vec<String> {
    let snapshot = snapshot(state, now);
    let members = snapshot.members().filter(|member| &*member.id != "own");
    let shown = |member: &Member| {
        let presence = match member.presence {
            Presence::Present => "present",
            Presence::Left => "left",
        };
        let view = match snapshot.view_state(&member.id).unwrap() {
            ViewState::Fresh => "fresh".to_owned(),
            ViewState::Stale(age) => format!("stale {}", age.as_secs()),
            ViewState::Unknown => "unknown".to_owned(),
        };
        let address = member.address.as_deref().unwrap_or("-");
        format!("{} {address} {presence} {view}", member.id)
    };
    members.map(shown).collect()
}

#[test]
fn each_life_of_a_member_ends_as_the_table_says() {
    for (name, steps, expected) in TABLE {
        let mut state = state();
        let mut last = 0;
        for (second, step) in *steps {
            last = *second;
            match step {
                Lists(address) => drop(list(&mut state, &[record(address, None)], last)),
                ListsNobody => drop(list(&mut state, &[], last)),
                Answers => answers(&mut state, "b", &gateway("1"), last),
                Fails => drop(fetch(&mut state, "b", failure(None), last)),
                Forgets => drop(forget(&mut state, "b")),
            }
        }
        assert_eq!(shown(&state, last), *expected, "{name}");
    }
}

#[test]
fn steps_are_pure() {
    let (mut one, mut other) = (state(), state());
    for now in 0..50 {
        let records = [record(if now < 20 { "a:1" } else { "a:2" }, Some(now))];
        let event = Event::Listed(Roster::complete(records.to_vec()));
        let before = one.clone();
        assert_eq!(one.step(event.clone(), at(now)), other.step(event.clone(), at(now)));
        assert_eq!(one, other, "{now}");
        let mut again = before;
        again.step(event, at(now));
        assert_eq!(again, one, "{now}: the same step from the same state");
        if now % 3 == 0 {
            let result = if now % 2 == 0 { documents(&gateway("1")) } else { failure(None) };
            let effects = fetch(&mut one, "b", result.clone(), now);
            assert_eq!(effects, fetch(&mut other, "b", result, now));
        }
    }
}

/// The log lines of a fetch, without those about changed views.
fn reports(effects: Vec<Effect>) -> Vec<Report> {
    let report = |effect| match effect {
        Effect::Report(Report::ViewChanged { .. }) => None,
        Effect::Report(report) => Some(report),
        _ => None,
    };
    effects.into_iter().filter_map(report).collect()
}

#[test]
fn a_failure_is_reported_once_and_again_after_a_recovery() {
    let mut state = state();
    list(&mut state, &[record("a:1", Some(0))], 0);
    let id: Arc<str> = "b".into();
    let failed = |may_not_exist| {
        let error = "refused; refused".to_owned();
        vec![Report::DiscoveryFailed { id: Arc::clone(&id), may_not_exist, error }]
    };
    let recovered = vec![Report::DiscoveryRecovered { id: Arc::clone(&id) }];
    for (second, result, expected) in [
        (1, failure(None), failed(true)),
        (2, failure(None), vec![]),
        (3, documents(&Who::Server), recovered.clone()),
        (4, documents(&Who::Server), vec![]),
        (5, failure(None), failed(false)),
        (6, failure(None), vec![]),
        (7, documents(&Who::Server), recovered),
    ] {
        assert_eq!(reports(fetch(&mut state, "b", result, second)), expected, "{second}");
    }
    // The OpenAPI index alone.
    let without_index = || {
        let openapi = OpenApiOutcome::Failed("timed out".to_owned());
        Fetched { openapi, ..documents(&Who::Server) }
    };
    let effects = fetch(&mut state, "b", without_index(), 8);
    assert!(effects.contains(&Effect::CountFailures(1)));
    let error = "timed out".to_owned();
    assert_eq!(reports(effects), [Report::OpenApiFailed { id: Arc::clone(&id), error }]);
    assert_eq!(reports(fetch(&mut state, "b", without_index(), 9)), []);
    assert_eq!(
        reports(fetch(&mut state, "b", documents(&Who::Server), 10)),
        [Report::OpenApiRecovered { id }]
    );
}

#[test]
fn a_new_cause_of_failure_is_reported_once_until_a_fetch_succeeds() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let refused = |status| Fetched {
        refused: Some(StatusCode::from_u16(status).unwrap()),
        ..failure(Some(&Who::Server))
    };
    let id: Arc<str> = "b".into();
    let failed = || {
        let error = "refused; refused".to_owned();
        vec![Report::DiscoveryFailed { id: Arc::clone(&id), may_not_exist: false, error }]
    };
    let rejected = |by_its_server| {
        vec![Report::ProxyCertificateRejected { id: Arc::clone(&id), by_its_server }]
    };
    let gateway = gateway("1");
    let refused_behind = || Fetched { who: Some(gateway.clone()), ..refused(401) };
    for (second, result, expected) in [
        (1, failure(None), failed()),
        (2, refused(401), rejected(false)),
        // The server closed the connection after the 401.
        (3, failure(None), vec![]),
        (4, refused(401), vec![]),
        (5, refused(403), failed()),
        (6, refused(401), vec![]),
        (7, documents(&gateway), vec![Report::DiscoveryRecovered { id: Arc::clone(&id) }]),
        (8, refused_behind(), rejected(true)),
    ] {
        assert_eq!(reports(fetch(&mut state, "b", result, second)), expected, "{second}");
    }
}

#[test]
fn a_configured_peer_that_is_another_is_reported_once() {
    let mut state = state();
    let (id, address): (Arc<str>, Arc<str>) = ("b".into(), "a:1".into());
    list(&mut state, &[record("a:1", None)], 0);
    let told: Arc<str> = "c".into();
    let other = Who::Gateway { id: Arc::clone(&told), instance: "1".into() };
    let other_id =
        Report::OtherId { id: Arc::clone(&id), address: Some(Arc::clone(&address)), told };
    let no_gateway = Report::NoGateway { id, address: Some(address) };
    for (second, result, expected) in [
        // A server that refuses us may not tell its ID.
        (1, failure(Some(&Who::Server)), 1),
        (2, documents(&gateway("1")), 1),
        (3, documents(&other), 0),
        (4, documents(&other), 0),
        (5, documents(&Who::Server), 0),
        (6, documents(&Who::Server), 0),
        (7, documents(&gateway("1")), 0),
        (8, documents(&other), 0),
    ] {
        let mut found = reports(fetch(&mut state, "b", result, second));
        let mismatches: Vec<Report> =
            found.extract_if(.., |report| *report == other_id || *report == no_gateway).collect();
        assert_eq!(found.len(), expected, "{second}: {found:?}");
        let wanted: &[Report] = match second {
            3 | 8 => slice::from_ref(&other_id),
            5 => slice::from_ref(&no_gateway),
            _ => &[],
        };
        assert_eq!(mismatches, wanted, "{second}");
    }
}

#[test]
fn a_result_that_is_no_longer_current_changes_nothing() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let begin = |state: &mut RosterState, now| {
        let effects = state.step(Event::Tick, at(now));
        let ticket = effects.into_iter().find_map(|effect| match effect {
            Effect::Fetch(request) if &*request.member.id == "b" => Some(request.ticket),
            _ => None,
        });
        ticket.unwrap()
    };
    let end = |state: &mut RosterState, ticket: &Ticket, now| {
        let fetched = Box::new(documents(&gateway("1")));
        state.step(Event::Fetched { ticket: ticket.clone(), fetched }, at(now))
    };
    let ticket = begin(&mut state, 0);
    list(&mut state, &[record("a:2", None)], 1);
    let effects = end(&mut state, &ticket, 2);
    let answered =
        |effect: &Effect| matches!(effect, Effect::Answered { address, .. } if &**address == "a:1");
    assert!(effects.iter().any(answered), "the sources still learn who is at a:1");
    assert!(tracked(&state, "b").view.apis.is_none(), "it is no longer at a:1");
    let ticket = begin(&mut state, 3);
    list(&mut state, &[], 4);
    let effects = end(&mut state, &ticket, 5);
    assert!(effects.contains(&Effect::Forget("b".into())), "it was forgotten meanwhile");
}

#[test]
fn time_limits_are_reported_once() {
    let mut state = state();
    let mut reports = Vec::new();
    for now in 0..1000 {
        let roster = Roster { members: vec![record("a:1", Some(now))], complete: false };
        for event in [Event::Listed(roster), Event::Tick] {
            let effects = state.step(event, at(now));
            let new = effects.into_iter().filter_map(|effect| match effect {
                Effect::Report(report) => Some((now, report)),
                _ => None,
            });
            reports.extend(new);
        }
    }
    let after = Policy::BLOCKS_FOR;
    let expected = [
        (300, Report::UnverifiedTimedOut { after }),
        (301, Report::MembersUnknown { after }),
        (301, Report::MemberTimedOut { id: "b".into(), after }),
    ];
    assert_eq!(reports, expected);
}

/// Nobody can ask it, and nothing waits for it.
#[test]
fn a_member_without_an_address_does_not_time_out() {
    let mut state = state();
    for now in 0..1000 {
        let record = MemberRecord { address: None, ..record("a:1", Some(now)) };
        let roster = Roster { members: vec![record], complete: true };
        state.step(Event::Listed(roster), at(now));
        let effects = state.step(Event::Tick, at(now));
        let report = effects.iter().find(|effect| matches!(effect, Effect::Report(_)));
        assert_eq!(report, None, "{now}");
    }
}
