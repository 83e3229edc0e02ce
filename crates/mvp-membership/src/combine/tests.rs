//! Claims in, members out.

use mvp_core::member::MemberKind;

use super::*;
use crate::claim::Claim;

fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

fn claim(id: &str, address: &str, kind: MemberKind, heard: Option<u64>) -> Claim {
    Claim {
        id: (!id.is_empty()).then(|| id.into()),
        address: (!address.is_empty()).then(|| address.into()),
        kind,
        heard: heard.map(at),
        announced: kind == MemberKind::Mvp && heard.is_some(),
        since: at(0),
        seniority: "".into(),
    }
}

fn mvp(id: &str, address: &str, heard: u64) -> Claim {
    claim(id, address, MemberKind::Mvp, Some(heard))
}

fn said(claims: Vec<Claim>) -> Claims {
    Claims { claims, read: true, ..Claims::default() }
}

fn own() -> Own {
    Own { id: Some("own".into()), addresses: vec!["10.0.0.1:6443".into(), "127.0.0.1:7".into()] }
}

/// Who answers where: `ID INSTANCE` of a gateway, or nothing of a server.
type Answers<'a> = &'a [(&'a str, &'a str)];

fn merged(sources: &[Claims], answers: Answers<'_>, now: u64) -> Merged {
    let who = |said: &str| match said.split_once(' ') {
        Some((id, instance)) => Who::Gateway { id: id.into(), instance: instance.into() },
        None => Who::Server,
    };
    let answered = answers.iter().map(|(address, said)| ((*address).into(), who(said))).collect();
    let (own, forgotten, now) = (&own(), &BTreeMap::new(), at(now));
    merge(sources, &Known { own, answered: &answered, forgotten, now })
}

/// `ID address kind heard`, of each member.
fn answered(sources: &[Claims], answers: Answers<'_>, now: u64) -> Vec<String> {
    let shown = |candidate: &merge::Candidate| {
        let record = &candidate.record;
        let address = record.address.as_deref().unwrap_or("-");
        let heard = record.heard.map(|heard| heard.since(at(0)).as_secs());
        format!("{} {address} {:?} {heard:?}", record.id, record.kind)
    };
    let mut members: Vec<String> =
        merged(sources, answers, now).members.iter().map(shown).collect();
    members.sort();
    members
}

/// The same while nobody has answered yet.
fn shown(sources: &[Claims], now: u64) -> Vec<String> {
    answered(sources, &[], now)
}

fn conflicts(sources: &[Claims], now: u64) -> Vec<String> {
    let shown = |Conflict { id, has, claims }: &Conflict| {
        format!("{id} {} {claims}", has.as_deref().unwrap_or("own"))
    };
    merged(sources, &[], now).conflicts.iter().map(shown).collect()
}

/// A gateway and the server behind it, each told of by a source of its own.
fn gateway_and_server(heard: u64) -> [Claims; 2] {
    let identities = vec![
        claim("c", "10.0.0.3:6444", MemberKind::Bare, Some(9)),
        claim("d", "", MemberKind::Bare, Some(9)),
    ];
    [said(vec![mvp("c", "10.0.0.3:6443", heard)]), said(identities)]
}

#[test]
fn a_gateway_speaks_for_its_server() {
    let all = gateway_and_server(4);
    let expected = ["c 10.0.0.3:6443 Mvp Some(4)", "d - Bare Some(9)"];
    assert_eq!(shown(&all, 10), expected, "it is about to answer");
    let gateway = &[("10.0.0.3:6443", "c 1")];
    assert_eq!(answered(&all, gateway, 19), expected);
    assert_eq!(conflicts(&all, 10), [""; 0], "two sources that differ are no conflict");
    // It never answered, or is silent now: its server is asked, too.
    let both = "c@10.0.0.3:6444 10.0.0.3:6444 Bare Some(9)";
    assert_eq!(shown(&all, 19).get(1).unwrap(), both);
    assert_eq!(answered(&all, gateway, 20).get(1).unwrap(), both);
    // That answers, and goes on in its place.
    let server = &[("10.0.0.3:6443", "c 1"), ("10.0.0.3:6444", "")];
    let expected = ["c 10.0.0.3:6444 Bare Some(9)", "d - Bare Some(9)"];
    assert_eq!(answered(&all, server, 20), expected);
    // The gateway is back.
    let all = gateway_and_server(21);
    let expected = ["c 10.0.0.3:6443 Mvp Some(21)", "d - Bare Some(9)"];
    assert_eq!(answered(&all, server, 22), expected);
}

#[test]
fn whoever_claims_to_stand_before_a_server_has_to_say_so_itself() {
    // c is a server without a gateway, and known. Somebody says to be its gateway.
    let mut all = gateway_and_server(5);
    let server = ("10.0.0.3:6444", "");
    let expected = "c 10.0.0.3:6444 Bare Some(9)";
    let stranger = "c@10.0.0.3:6443 10.0.0.3:6443 Mvp Some(5)";
    let shown = |all: &[Claims], answers: Answers<'_>| {
        let mut shown = answered(all, answers, 10);
        shown.truncate(2);
        shown
    };
    assert_eq!(shown(&all, &[server]), [expected, stranger], "nobody answers there");
    // A gateway of somebody else; or a server, which is none.
    let expected_too = [expected, stranger];
    assert_eq!(shown(&all, &[server, ("10.0.0.3:6443", "b 1")]), expected_too);
    let bare = "c@10.0.0.3:6443 10.0.0.3:6443 Bare Some(5)";
    assert_eq!(shown(&all, &[server, ("10.0.0.3:6443", "")]), [expected, bare]);
    // At the start, before anybody answered: whoever is there is asked when the other one is not.
    all[0].claims[0].heard = Some(at(16));
    let both = ["c 10.0.0.3:6443 Mvp Some(16)", "c@10.0.0.3:6444 10.0.0.3:6444 Bare Some(9)"];
    assert_eq!(answered(&all, &[], 16)[..2], both);
}

#[test]
fn whoever_answers_as_one_process_is_one_member() {
    let written = said(vec![claim("b", "node-b:6443", MemberKind::Mvp, None)]);
    let leases = said(vec![mvp("b", "10.0.0.2:6443", 3)]);
    let endpoints = said(vec![claim("", "10.0.0.9:6443", MemberKind::Bare, None)]);
    let all = [written, leases, endpoints];
    let expected = [
        "10.0.0.9:6443 10.0.0.9:6443 Bare None",
        "b node-b:6443 Mvp None",
        "b@10.0.0.2:6443 10.0.0.2:6443 Mvp Some(3)",
    ];
    assert_eq!(shown(&all, 5), expected);
    let one = ["node-b:6443", "10.0.0.2:6443", "10.0.0.9:6443"].map(|at| (at, "b 1"));
    assert_eq!(answered(&all, &one, 5), expected[1..2]);
    // What was written down is of a process that was there before it moved.
    let moved = &[("node-b:6443", "b 1"), ("10.0.0.2:6443", "b 2"), ("10.0.0.9:6443", "b 2")];
    assert_eq!(answered(&all, moved, 5), expected[1..]);
    assert_eq!(conflicts(&all, 5), [""; 0]);
}

#[test]
fn an_address_is_one_member_whatever_it_is_called() {
    let leases = said(vec![mvp("b", "10.0.0.2:6443", 3), mvp("a", "10.0.0.2:6443", 3)]);
    let endpoints = said(vec![
        claim("", "10.0.0.2:6443", MemberKind::Bare, None),
        claim("", "10.0.0.3:6443", MemberKind::Bare, None),
        claim("", "10.0.0.1:6443", MemberKind::Bare, None),
    ]);
    let nameless = "10.0.0.3:6443 10.0.0.3:6443 Bare None";
    let mut all = [leases, endpoints];
    assert_eq!(shown(&all, 5), [nameless, "b 10.0.0.2:6443 Mvp Some(3)"]);
    all[0].claims[1].seniority = "2026".into();
    all[0].claims[0].seniority = "2027".into();
    assert_eq!(shown(&all, 5), [nameless, "a 10.0.0.2:6443 Mvp Some(3)"], "by the senior");
    // By what it calls itself, if it does.
    let answers = &[("10.0.0.2:6443", "b 1")];
    assert_eq!(answered(&all, answers, 5), [nameless, "b 10.0.0.2:6443 Mvp Some(3)"]);
}

#[test]
fn we_are_nobodys_peer() {
    let leases = said(vec![
        mvp("own", "10.0.0.1:6443", 3),
        // Under another name; and the server beside us.
        mvp("else", "10.0.0.1:6443", 3),
        claim("own", "10.0.0.1:6444", MemberKind::Bare, Some(3)),
        claim("apiserver-x", "127.0.0.1:7", MemberKind::Bare, Some(3)),
        claim("own", "", MemberKind::Bare, Some(3)),
    ]);
    assert_eq!(shown(std::slice::from_ref(&leases), 5), [""; 0]);
    assert_eq!(conflicts(&[leases], 5), [""; 0]);
}

#[test]
fn of_two_with_one_id_the_senior_has_it_and_neither_is_lost() {
    let (first, mut second) = (mvp("b", "10.0.0.9:6443", 20), mvp("b", "10.0.0.2:6443", 22));
    second.since = at(7);
    let both = [said(vec![second.clone(), first.clone()])];
    let expected = ["b 10.0.0.9:6443 Mvp Some(20)", "b@10.0.0.2:6443 10.0.0.2:6443 Mvp Some(22)"];
    assert_eq!(shown(&both, 25), expected);
    assert_eq!(conflicts(&both, 25), ["b 10.0.0.9:6443 10.0.0.2:6443"]);
    let two = &[("10.0.0.9:6443", "b 1"), ("10.0.0.2:6443", "b 2")];
    assert_eq!(answered(&both, two, 25), expected);

    // It came back at another address: when the old one was silent for three heartbeats, its ID is
    // the new one's.
    second.heard = Some(at(35));
    let both = [said(vec![first.clone(), second])];
    assert_eq!(answered(&both, two, 36), ["b 10.0.0.2:6443 Mvp Some(35)"]);
    assert_eq!(conflicts(&both, 36), [""; 0]);

    // Seen at once, as by one who just started: the earlier made, until one of them answers.
    let (mut one, mut other) = (mvp("b", "10.0.0.2:6443", 1), mvp("b", "10.0.0.9:6443", 1));
    (one.seniority, other.seniority) = ("2026-01-02".into(), "2026-01-01".into());
    let both = [said(vec![one, other])];
    assert_eq!(conflicts(&both, 1), ["b 10.0.0.9:6443 10.0.0.2:6443"]);
    let expected = ["b 10.0.0.2:6443 Mvp Some(1)", "b@10.0.0.9:6443 10.0.0.9:6443 Mvp Some(1)"];
    assert_eq!(answered(&both, &[("10.0.0.2:6443", "b 1")], 1), expected);
}

#[test]
fn another_by_our_own_id_is_told_and_kept_apart() {
    let leases = [said(vec![mvp("own", "10.0.0.7:6443", 3)])];
    assert_eq!(shown(&leases, 5), ["own@10.0.0.7:6443 10.0.0.7:6443 Mvp Some(3)"]);
    assert_eq!(conflicts(&leases, 5), ["own own 10.0.0.7:6443"]);
    assert_eq!(shown(&leases, 30), [""; 0], "it is silent");
    let mut left_behind = mvp("own", "10.0.0.7:6443", 3);
    left_behind.announced = false;
    let left_behind = [said(vec![left_behind])];
    assert_eq!(conflicts(&left_behind, 5), [""; 0], "ours, of an address that we had before");
    assert_eq!(shown(&left_behind, 5), [""; 0]);
}

#[test]
fn who_was_alive_when_its_source_went_deaf_is_so_still() {
    let mut leases = said(vec![mvp("b", "10.0.0.2:1", 9), mvp("c", "10.0.0.3:1", 2)]);
    leases.deaf_since = Some(at(12));
    let expected = ["b 10.0.0.2:1 Mvp Some(109)", "c 10.0.0.3:1 Mvp Some(102)"];
    assert_eq!(shown(&[leases], 112), expected);
}

/// Before anybody was asked, more are claimed than any cluster has: there may be members among them.
#[tokio::test(start_paused = true)]
async fn a_flood_of_claims_costs_nobody_its_place() {
    let mut claims: Vec<Claim> = (0..1000)
        .map(|number| mvp(&format!("a{number}"), &format!("10.0.0.66:{number}"), 0))
        .collect();
    let mut late = mvp("zz", "10.0.0.2:1", 0);
    late.seniority = "later than all".into();
    claims.push(late);
    let (sender, source) = Source::new("leases");
    sender.send_replace(said(claims));
    let mut combined = Combined::new(own(), Clock::start(), vec![source]);
    let mut seconds = 0;
    while !combined.members().iter().any(|member| &*member.id == "zz") {
        assert!(!combined.complete(), "{seconds}: some were never asked");
        tokio::time::advance(Duration::from_secs(1)).await;
        seconds += 1;
        assert!(seconds < 60, "it never comes to its turn");
    }
    combined
        .answered(&"10.0.0.2:1".into(), &Who::Gateway { id: "zz".into(), instance: "1".into() });
    for second in 0..100 {
        let members = combined.members();
        assert!(members.iter().any(|member| &*member.id == "zz"), "{second}");
        assert!(members.len() <= 129, "{second}: {}", members.len());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(combined.complete(), "each had its turn");
}

#[tokio::test(start_paused = true)]
async fn who_was_forgotten_is_back_when_it_is_heard_of() {
    let (sender, source) = Source::new("leases");
    let (written, names) = Source::new("--peer");
    let clock = Clock::start();
    let mut combined = Combined::new(own(), clock, vec![names, source]);
    written.send_replace(said(vec![claim("c", "10.0.0.3:1", MemberKind::Mvp, None)]));
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 0)]));
    tokio::time::advance(Duration::from_secs(9)).await;
    let ids = |combined: &Combined| {
        let mut ids: Vec<_> = combined.members().iter().map(|m| m.id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&combined), ["b", "c"]);
    combined.handle().forget("b").unwrap();
    assert_eq!(ids(&combined), ["c"]);
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 10)]));
    tokio::time::advance(LOOK_INTERVAL).await;
    assert_eq!(ids(&combined), ["b", "c"]);
    tokio::time::advance(Duration::from_secs(2)).await;
    combined.handle().forget("b@10.0.0.2:1").unwrap();
    assert_eq!(ids(&combined), ["c"], "by whatever name");
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 12)]));
    combined.changed().await;
    assert_eq!(ids(&combined), ["b", "c"]);
    combined.answered(&"10.0.0.2:1".into(), &Who::Ourselves);
    assert_eq!(ids(&combined), ["c"], "it is ourselves, by whatever way");
    let refused = combined.handle().forget("c").unwrap_err();
    assert_eq!(refused, "c is named by --peer; take it out there");
}

#[tokio::test(start_paused = true)]
async fn any_source_wakes_the_reader_but_no_heartbeat_does() {
    let (sender, source) = Source::new("leases");
    let (quiet, other) = Source::new("endpoints");
    let mut combined = Combined::new(own(), Clock::start(), vec![other, source]);
    assert!(!combined.complete(), "nobody has said anything yet");
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.2:1", 0)]));
    combined.changed().await;
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.2:1", 5)]));
    let woken = tokio::time::timeout(Duration::from_secs(60), combined.changed()).await;
    assert!(woken.is_err(), "a heartbeat changes nobody");
    tokio::time::advance(LOOK_INTERVAL).await;
    assert_eq!(combined.members().first().unwrap().heard, Some(at(5)), "but it is known");
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.4:1", 6)]));
    combined.changed().await;
    assert_eq!((combined.complete(), combined.handle().unread()), (false, Some("endpoints")));
    crate::claim::publish(&quiet, said(Vec::new()));
    combined.changed().await;
    assert!(combined.complete(), "it says that there is nobody");
    drop(sender);
    let woken = tokio::time::timeout(Duration::from_secs(60), combined.changed()).await;
    assert!(woken.is_err(), "a source that ended changes nothing any more");
}
