//! Every combination of outcomes, without a socket.

use http::StatusCode;
use mvp_core::decide::ActionKind;

use super::*;

const READ: (&str, &str) = ("GET", "/api/v1/pods");
const WRITE: (&str, &str) = ("POST", "/api/v1/namespaces/x/pods");

/// Runs `check` with the progress of a request.
fn with<T>((method, path): (&str, &str), check: impl FnOnce(&mut Progress<'_>) -> T) -> T {
    let info = RequestInfo::parse(method, path, None);
    let parts = http::Request::new(()).into_parts().0;
    check(&mut Progress::new(&info, &parts))
}

fn decision(reason: Reason, on_not_found: OnNotFound) -> Summary {
    Summary { action: ActionKind::Local, on_not_found, reason, listed: true }
}

fn response(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn lost(stage: Stage) -> Attempt {
    Attempt::Lost { by: ServedBy::Local, member: Some("a".into()), stage, response: response(503) }
}

fn not_found(member: &str, unrouted: bool) -> Attempt {
    Attempt::NotFound { member: Some(member.into()), response: response(404), unrouted }
}

/// Absorbs an attempt of an ordinary decision, with retries in the budget.
fn absorb(progress: &mut Progress<'_>, attempt: Attempt) -> Next {
    let decision = decision(Reason::ServedLocally, OnNotFound::RefreshUnlessObject);
    progress.absorb(decision, attempt, Timestamp::default(), || true)
}

#[track_caller]
fn done(next: Next) -> Served {
    match next {
        Next::Done(served) => served,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(next: Next) -> (Reason, Vec<String>, Option<Mark>) {
    let Served { by: ServedBy::Nobody, reason, outcome: Outcome::Refusal(named), mark, .. } =
        done(next)
    else {
        panic!("not a refusal");
    };
    (reason, named, mark)
}

#[test]
fn a_response_is_passed_through_with_its_decision() {
    for by in [ServedBy::Local, ServedBy::Peer, ServedBy::AnyMember, ServedBy::Snapshot] {
        with(READ, |progress| {
            let member = Some("b".into());
            let attempt = Attempt::Answered { by, member, response: response(200) };
            let served = done(absorb(progress, attempt));
            assert_eq!((served.by, served.reason), (by, Reason::ServedLocally));
            assert_eq!((served.member.as_deref(), served.mark), (Some("b"), None));
            assert!(matches!(served.outcome, Outcome::Response(r) if r.status() == 200));
        });
    }
}

/// Whether a peer takes the place of the local server, by request, stage and budget.
#[test]
fn a_lost_request_is_retried_only_where_that_is_safe_and_paid_for() {
    let stages = [
        Stage::Connect,
        Stage::NotSent,
        Stage::Refused,
        Stage::Busy,
        Stage::Identity,
        Stage::Exchange,
    ];
    for request in [READ, WRITE] {
        for (stage, budget) in stages.into_iter().flat_map(|s| [(s, true), (s, false)]) {
            let case = format!("{request:?} {stage:?} budget {budget}");
            let (next, again) = with(request, |progress| {
                let decision = decision(Reason::ServedLocally, OnNotFound::PassThrough);
                let now = Timestamp::default();
                let next = progress.absorb(decision, lost(stage), now, || budget);
                // A second loss is never retried.
                let again = progress.absorb(decision, lost(stage), now, || true);
                (next, again)
            });
            let safe = stage.is_unprocessed() || request == READ;
            let paid = stage.is_unprocessed() || budget;
            assert_eq!(matches!(next, Next::Again), safe && paid, "{case}");
            for served in [next, again].map(|next| match next {
                Next::Done(served) => Some(served),
                _ => None,
            }) {
                let Some(served) = served else { continue };
                assert_eq!(served.by, ServedBy::Local, "{case}");
                let mark = (stage != Stage::Refused).then_some(Mark::Lost);
                assert_eq!(served.mark, mark, "{case}");
            }
        }
    }
}

#[test]
fn a_lost_local_server_counts_as_unreachable_for_this_request() {
    with(READ, |progress| {
        assert_eq!(progress.local_health(LocalHealth::Ready), LocalHealth::Ready);
        assert!(matches!(absorb(progress, lost(Stage::Connect)), Next::Again));
        assert_eq!(progress.local_health(LocalHealth::Ready), LocalHealth::Unreachable);
        assert_eq!(progress.local_lost, Some(Stage::Connect));
    });
}

#[test]
fn a_withheld_404_is_refreshed_once_and_passed_through_when_confirmed() {
    with(READ, |progress| {
        assert!(matches!(absorb(progress, not_found("a", true)), Next::Refresh));
        assert!(matches!(absorb(progress, not_found("b", true)), Next::Again));
        assert_eq!(progress.denied.names(), ["a", "b"]);
        let served = done(absorb(progress, Attempt::Confirmed));
        assert_eq!((served.by, served.member), (ServedBy::Confirmed, None));
        assert!(matches!(served.outcome, Outcome::Response(r) if r.status() == 404));
    });
    with(READ, |progress| {
        let decision = decision(Reason::ServedByPeer, OnNotFound::NextUnlessObject);
        let next = progress.absorb(decision, not_found("b", true), Timestamp::default(), || true);
        assert!(matches!(next, Next::Again), "the next peer is asked first");
        assert!(matches!(absorb(progress, not_found("a", true)), Next::Refresh));
    });
}

#[test]
fn a_404_of_an_unknown_member_is_refused() {
    with(READ, |progress| {
        let attempt = Attempt::NotFound { member: None, response: response(404), unrouted: true };
        let (reason, ..) = refused(absorb(progress, attempt));
        assert_eq!(reason, Reason::ViewSuspect);
    });
}

#[test]
fn nobody_takes_the_place_of_the_local_server_for_its_own_paths() {
    for reason in [Reason::NonResource, Reason::DiscoveryLocal] {
        let served = with(("GET", "/healthz"), |progress| {
            let decision = decision(reason, OnNotFound::PassThrough);
            let budget = || panic!("no retry is paid for");
            done(progress.absorb(decision, lost(Stage::Exchange), Timestamp::default(), budget))
        });
        assert_eq!((served.by, served.reason), (ServedBy::Local, reason));
    }
}

/// What a refusal tells a peer, by what happened before.
#[test]
fn a_refusal_is_marked_by_what_may_have_been_processed() {
    type Request = (&'static str, &'static str);
    type Case = (&'static str, Request, Option<fn() -> Attempt>, Option<Mark>);
    let cases: [Case; 6] = [
        ("nothing", WRITE, None, Some(Mark::Refused)),
        ("no connection", WRITE, Some(|| lost(Stage::Connect)), Some(Mark::Refused)),
        ("unrouted 404", WRITE, Some(|| not_found("a", true)), Some(Mark::Refused)),
        ("object 404 of a write", WRITE, Some(|| not_found("a", false)), None),
        ("object 404 of a read", READ, Some(|| not_found("a", false)), None),
        ("a lost read", READ, Some(|| lost(Stage::Exchange)), Some(Mark::Lost)),
    ];
    for (case, request, before, expected) in cases {
        with(request, |progress| {
            if let Some(before) = before {
                assert!(!matches!(absorb(progress, before()), Next::Done(_)), "{case}");
            }
            let next = absorb(progress, Attempt::Refused { named: Some(vec!["c".to_owned()]) });
            let (reason, named, mark) = refused(next);
            assert_eq!((reason, mark), (Reason::ServedLocally, expected), "{case}");
            assert_eq!(named, ["c"], "{case}");
        });
    }
}

#[test]
fn other_ends_have_a_reason_of_their_own() {
    with(WRITE, |progress| {
        absorb(progress, not_found("a", false));
        assert!(!progress.delivery.may_send(), "a server may have processed it");
        let (reason, named, mark) = refused(absorb(progress, Attempt::MustNotSend));
        assert_eq!((reason, mark), (Reason::ViewSuspect, None));
        assert_eq!(named, ["a"], "the members that denied it");
    });
    with(READ, |progress| {
        let next = absorb(progress, Attempt::Unanswered { tried: vec!["b".to_owned()] });
        assert_eq!(refused(next), (Reason::NobodyReachable, vec!["b".to_owned()], None));
    });
    with(WRITE, |progress| {
        let served = done(absorb(progress, Attempt::BodyGone));
        assert_eq!((served.by, served.reason), (ServedBy::Nobody, Reason::BodyGone));
        assert!(matches!(served.outcome, Outcome::Response(r) if r.status() == 503));
    });
}

/// Whatever happens in whatever order: once a server may have processed a write, it is not sent.
#[test]
fn no_sequence_of_outcomes_sends_a_write_twice() {
    let attempts: [(bool, fn() -> Attempt); 6] = [
        (false, || lost(Stage::Connect)),
        (false, || lost(Stage::Refused)),
        (true, || lost(Stage::Exchange)),
        (false, || not_found("a", true)),
        (true, || not_found("b", false)),
        (false, || not_found("c", true)),
    ];
    const LENGTH: u32 = 5;
    for number in 0..attempts.len().pow(LENGTH) {
        let sent_twice = with(WRITE, |progress| {
            let mut processed = 0;
            for place in 0..LENGTH {
                let digit = number / attempts.len().pow(place) % attempts.len();
                // The exchange sends nothing that the delivery forbids.
                if !progress.delivery.may_send() {
                    break;
                }
                let (may_be_processed, attempt) = attempts[digit];
                processed += u32::from(may_be_processed);
                if let Next::Done(_) = absorb(progress, attempt()) {
                    break;
                }
            }
            processed > 1
        });
        assert!(!sent_twice, "sequence {number}");
    }
}

#[test]
fn a_request_that_is_given_up_names_the_deniers() {
    with(WRITE, |progress| {
        absorb(progress, not_found("a", true));
        let end = refused(Next::Done(progress.give_up()));
        let nothing_processed = Some(Mark::Refused);
        assert_eq!(end, (Reason::ViewSuspect, vec!["a".to_owned()], nothing_processed));
        absorb(progress, not_found("b", false));
        assert_eq!(refused(Next::Done(progress.give_up())).2, None, "b may have processed it");
    });
}

/// Row 3: health checks are the server's own to fail. A peer insists where nobody else can serve.
#[test]
fn the_known_health_counts_but_for_own_paths_and_peers_that_insist() {
    use LocalHealth::{Ready, Unreachable, Unready};
    let resource = RequestInfo::parse("GET", "/api/v1/pods", None);
    let own = RequestInfo::parse("GET", "/healthz", None);
    let discovery = RequestInfo::parse("GET", "/apis", None);
    for (info, known, insists, expected) in [
        (&resource, Ready, false, Ready),
        (&resource, Unready, false, Unready),
        (&resource, Unready, true, Ready),
        (&resource, Unreachable, false, Unreachable),
        (&resource, Unreachable, true, Unreachable),
        (&own, Ready, false, Ready),
        (&own, Unready, false, Unready),
        (&own, Unreachable, false, Unready),
        (&discovery, Unready, false, Unready),
        (&discovery, Unreachable, false, Unreachable),
    ] {
        assert_eq!(health_for(info, known, || insists), expected, "{info} {known:?} {insists}");
    }
}

/// A 404 that names an object proves itself. HEAD has no body, so the view decides.
#[test]
fn a_doubted_404_is_believed_by_its_body_or_for_head_by_the_view() {
    let found = [NotFound::Object, NotFound::Unrouted, NotFound::Unclear];
    for (found, is_head, listed) in found
        .into_iter()
        .flat_map(|found| [(found, false, false), (found, false, true)])
        .chain([(NotFound::Unclear, true, false), (NotFound::Unclear, true, true)])
    {
        let case = format!("{found:?}, HEAD: {is_head}, listed: {listed}");
        let believed = |on_not_found| {
            let decision = decision(Reason::ServedLocally, on_not_found);
            is_believed(Summary { listed, ..decision }, is_head, found)
        };
        assert!(believed(OnNotFound::PassThrough), "{case}");
        assert!(!believed(OnNotFound::Refresh), "{case}");
        let expected = if is_head { listed } else { found == NotFound::Object };
        for on_not_found in [OnNotFound::NextUnlessObject, OnNotFound::RefreshUnlessObject] {
            assert_eq!(believed(on_not_found), expected, "{case}");
        }
    }
}
