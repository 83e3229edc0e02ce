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
    let addresses = vec!["10.0.0.1:6443".into(), "127.0.0.1:7".into()];
    Own { id: Some("own".into()), addresses, interval: Duration::from_secs(1) }
}

/// Who answers where: `ID INSTANCE` of a gateway, or nothing of a server.
type Answers<'a> = &'a [(&'a str, &'a str)];

fn merged(sources: &[Claims], answers: Answers<'_>, now: u64) -> Merged {
    let who = |said: &str| match said.split_once(' ') {
        Some((id, instance)) => Who::Gateway { id: id.into(), instance: instance.into() },
        None => Who::Server,
    };
    let (own, forgotten, now) = (&own(), &BTreeMap::new(), at(now));
    let answer = |said: &str| Answer { who: who(said), at: now };
    let answered =
        answers.iter().map(|(address, said)| ((*address).into(), answer(said))).collect();
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
fn gateway_and_server(heard: u64) -> [Claims; 3] {
    let identities = vec![
        claim("c", "10.0.0.3:6444", MemberKind::Bare, Some(9)),
        claim("d", "", MemberKind::Bare, Some(9)),
    ];
    [said(Vec::new()), said(vec![mvp("c", "10.0.0.3:6443", heard)]), said(identities)]
}

#[test]
fn a_gateway_speaks_for_its_server() {
    let all = gateway_and_server(4);
    let (gateway, server) = ("c 10.0.0.3:6443 Mvp Some(4)", "10.0.0.3:6444 Bare Some(9)");
    let other = "d - Bare Some(9)";
    let both = [gateway, &format!("c@10.0.0.3:6444 {server}"), other];
    assert_eq!(shown(&all, 10), both, "nobody knows yet");
    assert_eq!(conflicts(&all, 10), [""; 0], "two sources that differ are no conflict");
    assert_eq!(answered(&all, &[("10.0.0.3:6443", "c 1")], 10), [gateway, other]);
    // It answers no more: its server is asked, and goes on in its place.
    let instead = [&format!("c {server}"), "c@10.0.0.3:6443 10.0.0.3:6443 Mvp Some(4)", other];
    assert_eq!(answered(&all, &[], 20), instead);
    assert_eq!(answered(&all, &[("10.0.0.3:6444", "")], 20), [instead[0], other]);
    // It is back.
    let two = &[("10.0.0.3:6443", "c 2"), ("10.0.0.3:6444", "")];
    let all = gateway_and_server(21);
    assert_eq!(answered(&all, two, 22), ["c 10.0.0.3:6443 Mvp Some(21)", other]);
}

#[test]
fn what_answered_long_ago_says_nothing_of_now() {
    let all = gateway_and_server(100);
    let answered = BTreeMap::from([(
        Arc::from("10.0.0.3:6443"),
        Answer { who: Who::Gateway { id: "c".into(), instance: "1".into() }, at: at(80) },
    )]);
    let (own, forgotten) = (&own(), &BTreeMap::new());
    let members = |now: u64| {
        let known = Known { own, answered: &answered, forgotten, now: at(now) };
        merge(&all, &known).members.len()
    };
    assert_eq!((members(95), members(96)), (2, 3), "the server behind it is asked again");
}

#[test]
fn whoever_claims_to_stand_before_a_server_has_to_say_so_itself() {
    // c is a server without a gateway. Somebody says to be its gateway.
    let all = gateway_and_server(5);
    let server = ("10.0.0.3:6444", "");
    let expected = "c 10.0.0.3:6444 Bare Some(9)";
    let stranger = "c@10.0.0.3:6443 10.0.0.3:6443 Mvp Some(5)";
    let shown = |answers: Answers<'_>| {
        let mut shown = answered(&all, answers, 10);
        shown.truncate(2);
        shown
    };
    assert_eq!(shown(&[server]), [expected, stranger], "nobody answers there");
    // A gateway of somebody else; or a server, which is none.
    assert_eq!(shown(&[server, ("10.0.0.3:6443", "b 1")]), [expected, stranger]);
    let bare = "c@10.0.0.3:6443 10.0.0.3:6443 Bare Some(5)";
    assert_eq!(shown(&[server, ("10.0.0.3:6443", "")]), [expected, bare]);
}

/// The Lease of a server, or of ours, is made to point at somebody else's address.
#[test]
fn an_id_at_the_address_of_another_hides_nobody() {
    let victim = claim("b", "10.0.0.2:6444", MemberKind::Bare, Some(9));
    let pointing = |id: &str| claim(id, "10.0.0.2:6444", MemberKind::Bare, Some(9));
    let answers = &[("10.0.0.3:6443", "c 1"), ("10.0.0.2:6444", "")];
    for id in ["c", "own"] {
        let gateways = said(vec![mvp("c", "10.0.0.3:6443", 9)]);
        let all = [gateways, said(vec![pointing(id), victim.clone()])];
        let members = answered(&all, answers, 10);
        assert!(members.iter().any(|m| m.contains(" 10.0.0.2:6444 Bare ")), "{id}: {members:?}");
    }
    // Nor does who says no address at all become somebody else.
    let all = [
        said(Vec::new()),
        said(vec![mvp("d", "10.0.0.2:6444", 9)]),
        said(vec![victim.clone(), claim("d", "", MemberKind::Bare, Some(9))]),
    ];
    let expected = ["d - Bare Some(9)", "d@10.0.0.2:6444 10.0.0.2:6444 Bare Some(9)"];
    assert_eq!(answered(&all, answers, 10), expected);
    let its_gateway = &[("10.0.0.2:6444", "d 1")];
    assert_eq!(answered(&all, its_gateway, 10), ["d 10.0.0.2:6444 Mvp Some(9)"]);
    // Nor does what a source vouches for become a matter of heartbeats.
    let endpoints = said(vec![claim("", "10.0.0.2:6444", MemberKind::Bare, None)]);
    let all = [said(Vec::new()), said(vec![pointing("x")]), endpoints];
    assert_eq!(answered(&all, answers, 60), ["x 10.0.0.2:6444 Bare None"]);
    assert!(merged(&all, &[], 60).members.iter().all(|candidate| !candidate.is_stranger));
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
    let unlike = &[("node-b:6443", "b 1"), ("10.0.0.9:6443", "c 1")];
    let gateway = "10.0.0.9:6443 10.0.0.9:6443 Mvp None";
    assert_eq!(answered(&all, unlike, 5)[..2], [gateway, expected[1]], "another of that number");
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
    // Of several that say something of it, one vouches.
    assert_eq!(shown(&all, 5), [nameless, "b 10.0.0.2:6443 Mvp None"]);
    all[0].claims[1].seniority = "2026".into();
    all[0].claims[0].seniority = "2027".into();
    assert_eq!(shown(&all, 5), [nameless, "a 10.0.0.2:6443 Mvp None"], "by the senior");
    // By what it calls itself, if it does.
    let answers = &[("10.0.0.2:6443", "b 1")];
    assert_eq!(answered(&all, answers, 5), [nameless, "b 10.0.0.2:6443 Mvp None"]);
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
    assert_eq!(answered(&both, &two[1..], 36), ["b 10.0.0.2:6443 Mvp Some(35)"]);
    // As long as it answers it is there, whatever its Lease says.
    assert_eq!(answered(&both, two, 36).len(), 2);
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
