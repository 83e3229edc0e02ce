//! Judgements of members, without a server.

use std::time::Duration;

use super::*;
use crate::operator::doctor::probe::Ready;

fn member(id: &str, kind: MemberKind) -> Candidate {
    Candidate {
        id: Some(id.to_owned()),
        url: ServerUrl { host: id.to_owned(), port: 6443 },
        kind: Some(kind),
        source: "--peer",
        left: false,
    }
}

fn gateway(id: &str) -> Seen {
    Seen {
        link: Link::Open { http2: true },
        release: Ok("v1.34.1".to_owned()),
        mvp: Some("0.1.0".to_owned()),
        ready: Ready::Yes,
        review: Review::Accepted { groups: true, uid: true, extra: true },
        who: Who::Gateway(Some(id.into())),
        latency: Some(Duration::from_millis(3)),
        skew: Some(0),
    }
}

/// The names of checks with their outcome.
fn found(checks: Vec<Check>) -> Vec<(String, Outcome)> {
    checks.into_iter().map(|check| (check.name, check.result)).collect()
}

#[test]
fn each_fault_of_a_member_is_its_own_check() {
    let b = member("b", MemberKind::Mvp);
    let sound = found(judged(&b, &gateway("b")));
    assert_eq!(sound, [("b".to_owned(), Outcome::Ok)], "a sound member is one line");
    for (seen, name) in [
        (Seen { link: Link::Unreachable("no".into()), ..gateway("b") }, "b reachable"),
        (Seen { link: Link::Untrusted("no; do".into()), ..gateway("b") }, "b certificate"),
        (Seen { link: Link::Open { http2: false }, ..gateway("b") }, "b HTTP/2"),
        (Seen { who: Who::Server, ..gateway("b") }, "b kind"),
        (gateway("c"), "b ID"),
        (
            Seen { review: Review::Refused(http::StatusCode::UNAUTHORIZED), ..gateway("b") },
            "b trusts us",
        ),
        (Seen { ready: Ready::No("etcd".into()), ..gateway("b") }, "b ready"),
        (Seen { skew: Some(-3600), ..gateway("b") }, "b clock"),
    ] {
        assert_eq!(found(judged(&b, &seen)), [(name.to_owned(), Outcome::Fail)]);
    }
    let left = Candidate { left: true, ..b };
    let down = Seen { link: Link::Unreachable("no".into()), ..gateway("b") };
    assert_eq!(found(judged(&left, &down)), [("b reachable".to_owned(), Outcome::Skip)]);
    // A server without a gateway does not tell its ID.
    let bare = Seen { who: Who::Server, ..gateway("b") };
    let bare = found(judged(&member("b", MemberKind::Bare), &bare));
    assert_eq!(bare, [("b".to_owned(), Outcome::Ok)]);
}

#[test]
fn ids_and_loops() {
    let own = Ourselves { id: Some("a".to_owned()), release: None };
    let at = |host: &str, id: &str| (member(host, MemberKind::Mvp), gateway(id));
    assert_eq!(found(compare::ids(&[at("b", "b"), at("c", "c")], &own)), []);
    assert_eq!(
        found(compare::ids(&[at("x", "a")], &own)),
        [("x is not ourselves".to_owned(), Outcome::Fail)]
    );
    let twice = compare::ids(&[at("b", "b"), at("c", "b")], &own);
    assert!(twice[0].detail.contains("b:6443 and c:6443"), "{}", twice[0].detail);
    assert_eq!(found(twice), [("IDs are distinct".to_owned(), Outcome::Fail)]);
}

#[test]
fn releases_may_differ_by_one() {
    let of = |release: &str| {
        (member("b", MemberKind::Mvp), Seen { release: Ok(release.to_owned()), ..gateway("b") })
    };
    let own = |release: &str| Ourselves { id: None, release: Some(release.to_owned()) };
    let outcome =
        |own: &Ourselves, release| compare::releases(&[of(release)], own).map(|c| c.result);
    assert_eq!(outcome(&own("v1.34.0"), "v1.34.7"), Some(Outcome::Ok));
    assert_eq!(outcome(&own("v1.34.0"), "v1.35.0-rc.1"), Some(Outcome::Ok));
    assert_eq!(outcome(&own("v1.36.0"), "v1.34.7"), Some(Outcome::Warn));
    assert_eq!(outcome(&own("what"), "v1.34.7"), Some(Outcome::Ok));
    assert_eq!(outcome(&own("what"), "v2.0.0"), None);
}

#[test]
fn gateways_should_run_one_release_of_mvp() {
    let of = |mvp: Option<&str>| {
        (member("b", MemberKind::Mvp), Seen { mvp: mvp.map(str::to_owned), ..gateway("b") })
    };
    let outcome = |members: &[_]| compare::mvp_releases(members, "0.1.0").map(|check| check.result);
    assert_eq!(outcome(&[of(Some("0.1.0")), of(None)]), Some(Outcome::Ok));
    assert_eq!(outcome(&[of(Some("0.1.0")), of(Some("0.2.0"))]), Some(Outcome::Warn));
    assert_eq!(outcome(&[of(None)]), None, "nobody tells");
}
