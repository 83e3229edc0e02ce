//! Tests of the screen and of the findings on it.

use super::*;
use crate::report::{Certificate, CheckState, Connections, Count, SteeringState};

fn check(name: &str, problem: Option<&str>) -> CheckState {
    CheckState { name: name.to_owned(), problem: problem.map(str::to_owned), remark: None }
}

/// A gateway in trouble of every kind.
fn troubled() -> Status {
    let member = |id: &str, present, view, ejected| MemberState {
        id: id.to_owned(),
        present,
        view,
        ejected,
        confirmed_seconds_ago: (view != ViewOf::Unknown).then_some(33.0),
        address: Some("10.0.0.2:6443".to_owned()),
        ..MemberState::default()
    };
    let certificate = |flag: &str, days_left| Certificate {
        flag: flag.to_owned(),
        days_left,
        ..Certificate::default()
    };
    let count = |name: &str, count| Count { name: name.to_owned(), count };
    Status {
        id: Some("a".to_owned()),
        version: "1.2.3".to_owned(),
        commit: "0123456789abcdef".to_owned(),
        readiness: vec![check("shutdown", None), check("local-server", Some("it is gone"))],
        liveness: vec![check("worker-1", Some("no progress"))],
        members: vec![
            member("b", true, ViewOf::Stale, false),
            member("c", true, ViewOf::Unknown, false),
            member("d", false, ViewOf::Stale, false),
            member("e", true, ViewOf::Fresh, true),
            member("f", true, ViewOf::Fresh, false),
        ],
        conflicts: vec!["g is used twice".to_owned()],
        refusals: vec![count("local-down", 2), count("of-tomorrow", 1)],
        certificates: vec![
            certificate("--one", -1.0),
            certificate("--two", 6.9),
            certificate("--three", 29.0),
            certificate("--four", 31.0),
        ],
        reloads_failing: vec!["--two".to_owned()],
        connections: Connections { refused: 1, ended: 3, overloaded: 4, ..Connections::default() },
        task_restarts: 5,
        log_lines_dropped: 6,
        ..Status::default()
    }
}

#[test]
fn what_is_wrong_now_comes_before_what_happened() {
    let found = findings(&troubled());
    let texts = |urgent: bool| -> Vec<&str> {
        let chosen = found.iter().filter(|finding| finding.urgent == urgent);
        chosen.map(|finding| &*finding.what).collect()
    };
    assert_eq!(
        texts(true),
        [
            "readyz local-server: it is gone",
            "livez worker-1: no progress",
            "b has not confirmed its APIs for 33 s",
            "c was never seen",
            "e is ejected: it is chosen last",
            "g is used twice",
            "the file of --two cannot be used",
            "a certificate of --one has expired",
            "a certificate of --two expires in 6 days",
        ]
    );
    assert_eq!(
        texts(false),
        [
            "d left; requests for APIs that only it serves get 503",
            "a certificate of --three expires in 29 days",
            "2 requests were refused with 503, local-down: the local server is down",
            "1 request was refused with 503, of-tomorrow",
            "1 client connection was refused because of a limit",
            "3 client connections were ended: they reset too many requests",
            "4 requests were refused with 429: no connection to a server was free",
            "5 background tasks were restarted after a panic",
            "6 log lines were dropped",
        ]
    );
    let urgent_first = found.iter().skip_while(|finding| finding.urgent);
    assert!(urgent_first.clone().count() == 9 && urgent_first.into_iter().all(|f| !f.urgent));
    assert_eq!(findings(&Status::default()), []);
}

#[test]
fn colours_are_only_for_terminals_and_lines_fit_100_columns() {
    let plain = draw(&troubled(), Paint::PLAIN);
    assert!(plain.starts_with("a   stuck   mvp 1.2.3 (0123456789ab)\n"), "{plain}");
    assert!(!plain.contains('\x1b'));
    let widest = plain.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(WIDTH), "{plain}");
    let advice = crate::report::advice::advice(mvp_core::decide::Reason::LocalDown).unwrap();
    let one_line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains(advice), "{plain}");
    let coloured = draw(&troubled(), Paint::COLOURED);
    assert!(coloured.contains("\x1b[31m  readyz local-server: it is gone\x1b[0m\n"), "{coloured}");
}

/// Such as a kube-apiserver of kubeadm without mvp.
#[test]
fn a_member_that_nobody_can_ask_is_not_called_unseen() {
    let member = MemberState { id: "b".to_owned(), present: true, ..MemberState::default() };
    let found = findings(&Status { ready: true, members: vec![member], ..Status::default() });
    let what = "the address of b is not known, so nobody asks it for its APIs";
    assert_eq!(found.iter().map(|finding| &*finding.what).collect::<Vec<_>>(), [what]);
}

#[test]
fn connections_from_before_the_steering_need_action() {
    let found = |active, unsteered_connections| {
        let steering =
            SteeringState { port: 6443, active, unsteered_connections, ..SteeringState::default() };
        let status = Status { ready: true, steering: Some(steering), ..Status::default() };
        listed(&findings(&status), "", Paint::PLAIN)
    };
    let expected = "\nNeeds action\n  not protected yet: 12 connections to port 6443 from before the \
                    steering\n      run mvp adopt on the host of this gateway\n";
    assert_eq!(found(true, Some(12)), expected);
    assert_eq!(found(true, Some(0)), "");
    assert!(found(true, None).contains("Needs action"));
    assert_eq!(found(false, Some(12)), "", "the check of readiness says more");
}

#[test]
fn a_report_with_too_much_is_cut() {
    let members = (0..1000).map(|number| MemberState {
        id: format!("m{number}"),
        present: true,
        ..MemberState::default()
    });
    let status = Status { members: members.collect(), ..Status::default() };
    let text = listed(&findings(&status), "", Paint::PLAIN);
    assert!(text.contains("and 980 more"), "{text}");
}

#[test]
fn durations_have_their_largest_units() {
    for (seconds, text) in [
        (-3.0, ("0.0 s", "0.0s")),
        (0.44, ("0.4 s", "0.4s")),
        (59.9, ("59 s", "59s")),
        (60.0, ("1 min", "1m")),
        (3_661.0, ("1 h 1 min", "1h1m")),
        (172_800.0, ("2 days", "2d")),
        (1e300, ("over 10 years", ">10y")),
    ] {
        assert_eq!((&*duration(seconds), &*age(seconds)), text, "{seconds}");
    }
}
