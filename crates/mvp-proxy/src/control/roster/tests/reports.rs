//! What is reported of a member's documents, and what a fetch of some of them changes.

use mvp_core::discovery::{DocumentError, GroupList, Limits, Problem, Source};

use super::*;

/// The result of a fetch of `/apis` with this entity tag and, if so, a group with too many faults.
fn faulty(tag: &str, index: usize, is_faulty: bool) -> Fetched {
    let mut list = GroupList::default();
    list.etag = Some(tag.into());
    let fault = DocumentError {
        server: "b".into(),
        document: "/apis".into(),
        location: format!("items[{index}]").into(),
        problem: Problem::TooManyFaults { group: "bad.io".into(), limit: 20 },
    };
    let complaints = if is_faulty { vec![fault] } else { Vec::new() };
    let whole = documents(&gateway("1"));
    let Fetched { parts: [api, _], .. } = whole.clone();
    let apis = Outcome::Changed { list: Arc::new(list), etag: None, complaints };
    Fetched { parts: [api, apis], ..whole }
}

#[test]
fn a_fault_of_a_document_is_reported_once_however_often_the_document_changes() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let mut problems = |tag: &str, index, is_faulty, now| {
        let effects = fetch(&mut state, "b", faulty(tag, index, is_faulty), now);
        let is_problem =
            |effect: &&Effect| matches!(effect, Effect::Report(Report::DocumentProblem { .. }));
        effects.iter().filter(is_problem).count()
    };
    assert_eq!(problems("1", 3, true, 1), 1);
    assert_eq!(problems("2", 3, true, 2), 0);
    assert_eq!(problems("3", 4, true, 3), 0, "a group was added before it");
    assert_eq!(problems("4", 4, false, 4), 0, "it is repaired");
    assert_eq!(problems("5", 4, true, 5), 1);
}

#[test]
fn a_server_that_answers_with_a_bad_document_is_not_taken_for_absent() {
    for (who, expected) in [(Some(Who::Server), false), (None, true)] {
        let mut state = state();
        list(&mut state, &[], 0);
        // The local server, which no source vouches for.
        let effects = fetch(&mut state, "own", failure(who.as_ref()), 1);
        let reported = effects.iter().find_map(|effect| match effect {
            Effect::Report(Report::DiscoveryFailed { may_not_exist, .. }) => Some(*may_not_exist),
            _ => None,
        });
        assert_eq!(reported, Some(expected));
    }
}

#[test]
fn a_fetch_of_one_document_changes_nothing_else() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    fetch(&mut state, "b", failure(Some(&gateway("1"))), 1);
    answers(&mut state, "b", &gateway("1"), 2);
    fetch(&mut state, "b", failure(Some(&gateway("1"))), 3);
    let (document, of) = (ViewDocument::Apis, Some("b".into()));
    // The next fetch of everything is due at 4 s.
    let now = at(3).after(Duration::from_millis(500));
    state.step(Event::DocumentWanted { document, of }, now);
    let mut requests = Vec::new();
    for effect in state.step(Event::Tick, now) {
        match effect {
            Effect::Fetch(request) if &*request.member.id == "b" => requests.push(request),
            _ => {}
        }
    }
    let request = requests.pop().unwrap();
    assert!(request.scope.has(document) && !request.scope.has(ViewDocument::Api));
    let apis = Outcome::Unchanged;
    let (parts, openapi) = ([Outcome::NotAsked, apis], OpenApiOutcome::NotAsked);
    let (extensions, who) = (Found::Nothing, Some(gateway("1")));
    let fetched =
        Box::new(Fetched { parts, openapi, release: None, extensions, who, refused: None });
    let effects = state.step(Event::Fetched { ticket: request.ticket, fetched }, now);
    let told = effects.iter().any(|effect| {
        matches!(effect, Effect::Report(_) | Effect::LastError { .. } | Effect::CountFailures(_))
    });
    assert!(!told, "whether the failure is over is not known: {effects:?}");
    let view = &tracked(&state, "b").view;
    assert_eq!(
        (view.api.as_ref().unwrap().confirmed, *view.asked.of(ViewDocument::Api)),
        (at(2), at(3))
    );
    assert_eq!((view.apis.as_ref().unwrap().confirmed, *view.asked.of(document)), (now, now));
}

#[test]
fn a_part_that_fails_is_no_sign_of_life() {
    let mut state = state();
    list(&mut state, &[record("a:1", Some(0))], 0);
    fetch(&mut state, "b", documents(&gateway("1")), 1);
    let heard = |state: &RosterState| {
        state.members().find(|member| &*member.id == "b").map(|member| member.heard)
    };
    assert_eq!(heard(&state), Some(at(1)));
    for (second, part, openapi) in [
        (5, Outcome::Failed("gone".to_owned()), OpenApiOutcome::NotAsked),
        (9, Outcome::NotAsked, OpenApiOutcome::Failed("gone".to_owned())),
    ] {
        let parts = [Outcome::NotAsked, part];
        let (extensions, who) = (Found::Nothing, None);
        let failed = Fetched { parts, openapi, release: None, extensions, who, refused: None };
        fetch(&mut state, "b", failed, second);
        assert_eq!(heard(&state), Some(at(1)));
    }
}

#[test]
fn members_share_equal_groups_and_keep_those_that_did_not_change() {
    let text = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
        {"metadata":{"name":"batch"},"versions":[{"version":"v1","resources":[]}]}]}"#;
    let serving = || {
        let (source, text) = (Source { server: "b", document: "/apis" }, text.as_bytes().into());
        let list = GroupList::parse(source, Part::Apis, text, &Limits::default()).unwrap().value;
        let whole = documents(&Who::Server);
        let Fetched { parts: [api, _], .. } = whole.clone();
        let apis = Outcome::Changed { list: Arc::new(list), etag: None, complaints: Vec::new() };
        Fetched { parts: [api, apis], ..whole }
    };
    let mut state = state();
    list(&mut state, &[named("b", "a:1", None), named("c", "a:2", None)], 0);
    for (id, now) in [("b", 1), ("c", 2)] {
        fetch(&mut state, id, serving(), now);
    }
    let group = |id| {
        let seen = tracked(&state, id).view.apis.as_ref().unwrap();
        Arc::clone(seen.list.group("batch").unwrap())
    };
    assert!(Arc::ptr_eq(&group("b"), &group("c")));

    // The next fetch knows the document.
    state.step(Event::RefreshWanted, at(3));
    for effect in state.step(Event::Tick, at(3)) {
        let Effect::Fetch(request) = effect else { continue };
        let [_, apis] = &request.known.lists;
        assert_eq!(apis.is_some(), &*request.member.id != "own");
    }
}

#[test]
fn a_document_that_is_sent_again_did_not_change() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    for (second, expected) in [(1, 2), (2, 0), (3, 0)] {
        let effects = fetch(&mut state, "b", documents(&gateway("1")), second);
        let is_change =
            |effect: &&Effect| matches!(effect, Effect::Report(Report::ViewChanged { .. }));
        assert_eq!(effects.iter().filter(is_change).count(), expected, "{second}");
        let view = &tracked(&state, "b").view;
        assert_eq!(view.apis.as_ref().unwrap().confirmed, at(second));
        assert_eq!(*view.asked.of(ViewDocument::OpenApi), at(second));
        assert!(view.openapi.is_some(), "it is known that there is none");
    }
}

#[test]
fn a_second_fault_of_a_document_is_reported() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    fetch(&mut state, "b", faulty("1", 3, true), 1);
    let mut both = faulty("2", 3, true);
    let [_, Outcome::Changed { complaints, .. }] = &mut both.parts else { panic!("{both:?}") };
    let known = complaints[0].clone();
    let group = "worse.io".into();
    let new = DocumentError { problem: Problem::TooManyFaults { group, limit: 20 }, ..known };
    complaints.push(new.clone());
    let effects = fetch(&mut state, "b", both, 2);
    let reported: Vec<_> = effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Report(Report::DocumentProblem { problem, .. }) => Some(problem),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [new]);
}

#[test]
fn the_last_error_is_that_of_the_last_fetch_that_tells() {
    let mut state = state();
    list(&mut state, &[record("a:1", None)], 0);
    let failed = || Outcome::Failed("gone".to_owned());
    let openapi = || OpenApiOutcome::NotAsked;
    let part = |parts| Fetched { parts, openapi: openapi(), ..documents(&Who::Server) };
    for (second, result, expected) in [
        (1, failure(None), Some(Some("refused"))),
        (2, documents(&Who::Server), Some(None)),
        (3, part([Outcome::NotAsked, failed()]), Some(Some("gone"))),
        (4, part([Outcome::NotAsked, Outcome::Unchanged]), None),
    ] {
        let effects = fetch(&mut state, "b", result, second);
        let told = effects.into_iter().find_map(|effect| match effect {
            Effect::LastError { error, .. } => Some(error),
            _ => None,
        });
        assert_eq!(told, expected.map(|error| error.map(str::to_owned)), "{second}");
    }
}

#[test]
fn a_member_times_out_300_s_after_its_last_answer() {
    let mut state = state();
    let mut timed_out = Vec::new();
    for now in 0..1000 {
        list(&mut state, &[record("a:1", None)], now);
        if now <= 500 {
            answers(&mut state, "b", &Who::Server, now);
        }
        let effects = state.step(Event::Tick, at(now));
        let is_report =
            |effect: &Effect| matches!(effect, Effect::Report(Report::MemberTimedOut { .. }));
        timed_out.extend(effects.iter().any(is_report).then_some(now));
    }
    assert_eq!(timed_out, [801]);
}

/// Others than configured peers are named by what they answer, or move.
#[test]
fn only_a_configured_peer_can_have_another_id() {
    let other = Who::Gateway { id: "c".into(), instance: "1".into() };
    let nameless = Who::Gateway { id: "".into(), instance: "1".into() };
    for (name, heard, who, expected) in [
        ("b", None, &other, true),
        ("b", Some(1), &other, false),
        ("b", None, &nameless, false),
        // Configured without an ID.
        ("a:1", None, &other, false),
    ] {
        let mut state = state();
        list(&mut state, &[named(name, "a:1", heard)], 0);
        let effects = fetch(&mut state, name, documents(who), 1);
        let is_told =
            effects.iter().any(|effect| matches!(effect, Effect::Report(Report::OtherId { .. })));
        assert_eq!(is_told, expected, "{name} {heard:?} {who:?}");
    }
}
