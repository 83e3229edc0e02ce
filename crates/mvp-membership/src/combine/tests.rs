//! Claims in, a roster out.

mod steered;

use mvp_core::member::MemberKind;
use mvp_proxy::control::MemberRecord;

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

/// Who answers at which address: `ID INSTANCE` for a gateway, empty for a server.
type Answers<'a> = &'a [(&'a str, &'a str)];

fn merged(sources: &[Claims], answers: Answers<'_>, now: u64) -> Merged {
    let who = |said: &str| match said.split_once(' ') {
        Some((id, instance)) => Who::Gateway { id: id.into(), instance: instance.into() },
        None => Who::Server,
    };
    let (own, forgotten, now) = (&own(), &BTreeMap::new(), at(now));
    let answer = |said: &str| Answer { who: who(said), at: now, gateway: None };
    let answered =
        answers.iter().map(|(address, said)| ((*address).into(), answer(said))).collect();
    merge(sources, &Facts { own, answers: &answered, forgotten, now })
}

fn members(merged: &Merged) -> impl Iterator<Item = &MemberRecord> {
    merged.verified.iter().chain(merged.unverified.iter().map(|(_, record)| record))
}

/// `ID address kind heard`, of each member.
fn answered(sources: &[Claims], answers: Answers<'_>, now: u64) -> Vec<String> {
    let shown = |record: &MemberRecord| {
        let address = record.address.as_deref().unwrap_or("-");
        let heard = record.heard.map(|heard| heard.since(at(0)).as_secs());
        format!("{} {address} {:?} {heard:?}", record.name, record.kind)
    };
    let mut shown: Vec<String> = members(&merged(sources, answers, now)).map(shown).collect();
    shown.sort();
    shown
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

/// A gateway and the server behind it, each claimed by a source of its own.
fn gateway_and_server(heard: u64) -> [Claims; 3] {
    let identities = vec![
        claim("c", "10.0.0.3:6444", MemberKind::Bare, Some(9)),
        claim("d", "", MemberKind::Bare, Some(9)),
    ];
    [said(Vec::new()), said(vec![mvp("c", "10.0.0.3:6443", heard)]), said(identities)]
}

#[test]
fn a_gateway_that_answers_stands_for_its_server() {
    let all = gateway_and_server(4);
    let (gateway, server) = ("c 10.0.0.3:6443 Mvp Some(4)", "10.0.0.3:6444 Bare Some(9)");
    let other = "d - Bare Some(9)";
    let both = [gateway, &format!("c@10.0.0.3:6444 {server}"), other];
    assert_eq!(shown(&all, 10), both, "nobody has answered yet");
    assert_eq!(conflicts(&all, 10), [""; 0], "two sources that differ are no conflict");
    assert_eq!(answered(&all, &[("10.0.0.3:6443", "c 1")], 10), [gateway, other]);
    // The gateway no longer answers: its server takes its place.
    let instead = [&format!("c {server}"), "c@10.0.0.3:6443 10.0.0.3:6443 Mvp Some(4)", other];
    assert_eq!(answered(&all, &[], 20), instead);
    assert_eq!(answered(&all, &[("10.0.0.3:6444", "")], 20), [instead[0], other]);
    // The gateway is back.
    let two = &[("10.0.0.3:6443", "c 2"), ("10.0.0.3:6444", "")];
    let all = gateway_and_server(21);
    assert_eq!(answered(&all, two, 22), ["c 10.0.0.3:6443 Mvp Some(21)", other]);
}

#[test]
fn an_old_answer_proves_nothing() {
    let all = gateway_and_server(100);
    let answered = BTreeMap::from([(
        Arc::from("10.0.0.3:6443"),
        Answer {
            who: Who::Gateway { id: "c".into(), instance: "1".into() },
            at: at(80),
            gateway: Some("c".into()),
        },
    )]);
    let (own, forgotten) = (&own(), &BTreeMap::new());
    let count = |now: u64| {
        let facts = Facts { own, answers: &answered, forgotten, now: at(now) };
        members(&merge(&all, &facts)).count()
    };
    assert_eq!((count(95), count(96)), (2, 3), "the server behind it is a member again");
}

#[test]
fn a_gateway_must_confirm_the_id_that_it_claims() {
    // c is a server without a gateway, and somebody claims to be its gateway.
    let all = gateway_and_server(5);
    let server = ("10.0.0.3:6444", "");
    let expected = "c 10.0.0.3:6444 Bare Some(9)";
    let other = "c@10.0.0.3:6443 10.0.0.3:6443 Mvp Some(5)";
    let shown = |answers: Answers<'_>| {
        let mut shown = answered(&all, answers, 10);
        shown.truncate(2);
        shown
    };
    assert_eq!(shown(&[server]), [expected, other], "nobody answers there");
    // The gateway of another server, or a server.
    assert_eq!(shown(&[server, ("10.0.0.3:6443", "b 1")]), [expected, other]);
    let bare = "c@10.0.0.3:6443 10.0.0.3:6443 Bare Some(5)";
    assert_eq!(shown(&[server, ("10.0.0.3:6443", "")]), [expected, bare]);
}

/// A Lease is made to point at the address of another member.
#[test]
fn a_claim_at_the_address_of_another_member_hides_nobody() {
    let victim = claim("b", "10.0.0.2:6444", MemberKind::Bare, Some(9));
    let pointing = |id: &str| claim(id, "10.0.0.2:6444", MemberKind::Bare, Some(9));
    let answers = &[("10.0.0.3:6443", "c 1"), ("10.0.0.2:6444", "")];
    for id in ["c", "own"] {
        let gateways = said(vec![mvp("c", "10.0.0.3:6443", 9)]);
        let all = [gateways, said(vec![pointing(id), victim.clone()])];
        let members = answered(&all, answers, 10);
        assert!(members.iter().any(|m| m.contains(" 10.0.0.2:6444 Bare ")), "{id}: {members:?}");
    }
    // A server without an address does not become another member.
    let all = [
        said(Vec::new()),
        said(vec![mvp("d", "10.0.0.2:6444", 9)]),
        said(vec![victim.clone(), claim("d", "", MemberKind::Bare, Some(9))]),
    ];
    let expected = ["d - Bare Some(9)", "d@10.0.0.2:6444 10.0.0.2:6444 Bare Some(9)"];
    assert_eq!(answered(&all, answers, 10), expected);
    let its_gateway = &[("10.0.0.2:6444", "d 1")];
    assert_eq!(answered(&all, its_gateway, 10), ["d 10.0.0.2:6444 Mvp Some(9)"]);
    // A member that a source vouches for does not need heartbeats.
    let endpoints = said(vec![claim("", "10.0.0.2:6444", MemberKind::Bare, None)]);
    let all = [said(Vec::new()), said(vec![pointing("x")]), endpoints];
    assert_eq!(answered(&all, answers, 60), ["x 10.0.0.2:6444 Bare None"]);
    assert!(merged(&all, &[], 60).unverified.is_empty());
}

#[test]
fn one_process_at_several_addresses_is_one_member() {
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
    // The listed address belongs to an earlier process.
    let moved = &[("node-b:6443", "b 1"), ("10.0.0.2:6443", "b 2"), ("10.0.0.9:6443", "b 2")];
    assert_eq!(answered(&all, moved, 5), expected[1..]);
    let unlike = &[("node-b:6443", "b 1"), ("10.0.0.9:6443", "c 1")];
    let gateway = "10.0.0.9:6443 10.0.0.9:6443 Mvp None";
    assert_eq!(
        answered(&all, unlike, 5)[..2],
        [gateway, expected[1]],
        "another gateway with the same instance"
    );
    assert_eq!(conflicts(&all, 5), [""; 0]);
}

#[test]
fn an_address_is_one_member_whatever_its_ids() {
    let leases = said(vec![mvp("b", "10.0.0.2:6443", 3), mvp("a", "10.0.0.2:6443", 3)]);
    let endpoints = said(vec![
        claim("", "10.0.0.2:6443", MemberKind::Bare, None),
        claim("", "10.0.0.3:6443", MemberKind::Bare, None),
        claim("", "10.0.0.1:6443", MemberKind::Bare, None),
    ]);
    let nameless = "10.0.0.3:6443 10.0.0.3:6443 Bare None";
    let mut all = [leases, endpoints];
    // One of several sources vouches for it.
    assert_eq!(shown(&all, 5), [nameless, "b 10.0.0.2:6443 Mvp None"]);
    all[0].claims[1].seniority = "2026".into();
    all[0].claims[0].seniority = "2027".into();
    assert_eq!(shown(&all, 5), [nameless, "a 10.0.0.2:6443 Mvp None"], "by the senior");
    // By its own answer, if there is one.
    let answers = &[("10.0.0.2:6443", "b 1")];
    assert_eq!(answered(&all, answers, 5), [nameless, "b 10.0.0.2:6443 Mvp None"]);
}

#[test]
fn a_gateway_is_no_peer_of_itself() {
    let leases = said(vec![
        mvp("own", "10.0.0.1:6443", 3),
        // With another ID, and the local server.
        mvp("else", "10.0.0.1:6443", 3),
        claim("own", "10.0.0.1:6444", MemberKind::Bare, Some(3)),
        claim("apiserver-x", "127.0.0.1:7", MemberKind::Bare, Some(3)),
        claim("own", "", MemberKind::Bare, Some(3)),
    ]);
    assert_eq!(shown(std::slice::from_ref(&leases), 5), [""; 0]);
    assert_eq!(conflicts(&[leases], 5), [""; 0]);
}

#[test]
fn the_senior_of_two_members_holds_their_id_and_both_stay_members() {
    let (first, mut second) = (mvp("b", "10.0.0.9:6443", 20), mvp("b", "10.0.0.2:6443", 22));
    second.since = at(7);
    let both = [said(vec![second.clone(), first.clone()])];
    let expected = ["b 10.0.0.9:6443 Mvp Some(20)", "b@10.0.0.2:6443 10.0.0.2:6443 Mvp Some(22)"];
    assert_eq!(shown(&both, 25), expected);
    assert_eq!(conflicts(&both, 25), ["b 10.0.0.9:6443 10.0.0.2:6443"]);
    let two = &[("10.0.0.9:6443", "b 1"), ("10.0.0.2:6443", "b 2")];
    assert_eq!(answered(&both, two, 25), expected);

    // It came back at another address, which holds the ID once the old one missed three heartbeats.
    second.heard = Some(at(35));
    let both = [said(vec![first.clone(), second])];
    assert_eq!(answered(&both, &two[1..], 36), ["b 10.0.0.2:6443 Mvp Some(35)"]);
    // It is a member as long as it answers, whatever its Lease says.
    assert_eq!(answered(&both, two, 36).len(), 2);
    assert_eq!(conflicts(&both, 36), [""; 0]);

    // Both first seen at the same time, as after a restart: the older Lease, until one answers.
    let (mut one, mut other) = (mvp("b", "10.0.0.2:6443", 1), mvp("b", "10.0.0.9:6443", 1));
    (one.seniority, other.seniority) = ("2026-01-02".into(), "2026-01-01".into());
    let both = [said(vec![one, other])];
    assert_eq!(conflicts(&both, 1), ["b 10.0.0.9:6443 10.0.0.2:6443"]);
    let expected = ["b 10.0.0.2:6443 Mvp Some(1)", "b@10.0.0.9:6443 10.0.0.9:6443 Mvp Some(1)"];
    assert_eq!(answered(&both, &[("10.0.0.2:6443", "b 1")], 1), expected);
}

#[test]
fn another_member_with_our_own_id_is_a_conflict() {
    let leases = [said(vec![mvp("own", "10.0.0.7:6443", 3)])];
    assert_eq!(shown(&leases, 5), ["own@10.0.0.7:6443 10.0.0.7:6443 Mvp Some(3)"]);
    assert_eq!(conflicts(&leases, 5), ["own own 10.0.0.7:6443"]);
    assert_eq!(shown(&leases, 30), [""; 0], "it is silent");
    let mut left_behind = mvp("own", "10.0.0.7:6443", 3);
    left_behind.announced = false;
    let left_behind = [said(vec![left_behind])];
    assert_eq!(conflicts(&left_behind, 5), [""; 0], "it is ours, from an earlier address");
    assert_eq!(shown(&left_behind, 5), [""; 0]);
}

#[test]
fn a_member_stays_alive_while_its_source_is_unreadable() {
    let mut leases = said(vec![mvp("b", "10.0.0.2:1", 9), mvp("c", "10.0.0.3:1", 2)]);
    leases.deaf_since = Some(at(12));
    let expected = ["b 10.0.0.2:1 Mvp Some(109)", "c 10.0.0.3:1 Mvp Some(102)"];
    assert_eq!(shown(&[leases], 112), expected);
}

/// Before anybody answered, more members are claimed than any cluster has.
#[tokio::test(start_paused = true)]
async fn a_flood_of_claims_hides_no_member() {
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
    while !combined.roster().members.iter().any(|member| &*member.name.label() == "zz") {
        assert!(!combined.roster().complete, "{seconds}: some have had no turn");
        tokio::time::advance(Duration::from_secs(1)).await;
        seconds += 1;
        assert!(seconds < 60, "it never gets a turn");
    }
    combined
        .answered(&"10.0.0.2:1".into(), &Who::Gateway { id: "zz".into(), instance: "1".into() });
    for second in 0..100 {
        let members = combined.roster().members;
        assert!(members.iter().any(|member| &*member.name.label() == "zz"), "{second}");
        assert!(members.len() <= 129, "{second}: {}", members.len());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(combined.roster().complete, "each had its turn");
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_member_returns_with_its_next_heartbeat() {
    let (sender, source) = Source::new("leases");
    let (written, names) = Source::new("--peer");
    let clock = Clock::start();
    let mut combined = Combined::new(own(), clock, vec![names, source]);
    written.send_replace(said(vec![claim("c", "10.0.0.3:1", MemberKind::Mvp, None)]));
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 0)]));
    tokio::time::advance(Duration::from_secs(9)).await;
    let ids = |combined: &Combined| {
        let mut ids: Vec<_> =
            combined.roster().members.iter().map(|m| m.name.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&combined), ["b", "c"]);
    combined.handle().forget("b").unwrap();
    assert_eq!(ids(&combined), ["c"]);
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 10)]));
    tokio::time::advance(ROSTER_MAX_AGE).await;
    assert_eq!(ids(&combined), ["b", "c"]);
    tokio::time::advance(Duration::from_secs(2)).await;
    combined.handle().forget("b@10.0.0.2:1").unwrap();
    assert_eq!(ids(&combined), ["c"], "by any of its names");
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 12)]));
    combined.changed().await;
    assert_eq!(ids(&combined), ["b", "c"]);
    combined.answered(&"10.0.0.2:1".into(), &Who::Ourselves);
    assert_eq!(ids(&combined), ["c"], "it leads back to this gateway");
    let refused = combined.handle().forget("c").unwrap_err();
    assert_eq!(refused.to_string(), "c is listed by --peer; remove it there");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_any_source_wakes_the_reader_and_a_heartbeat_does_not() {
    let (sender, source) = Source::new("leases");
    let (quiet, other) = Source::new("endpoints");
    let mut combined = Combined::new(own(), Clock::start(), vec![other, source]);
    assert!(!combined.roster().complete, "no source was read yet");
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.2:1", 0)]));
    combined.changed().await;
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.2:1", 5)]));
    let woken = tokio::time::timeout(Duration::from_secs(60), combined.changed()).await;
    assert!(woken.is_err(), "a heartbeat changes no member");
    tokio::time::advance(ROSTER_MAX_AGE).await;
    assert_eq!(combined.roster().members.first().unwrap().heard, Some(at(5)), "but it counts");
    crate::claim::publish(&sender, said(vec![mvp("b", "10.0.0.4:1", 6)]));
    combined.changed().await;
    assert_eq!(
        (combined.roster().complete, combined.handle().unread()),
        (false, Some("endpoints"))
    );
    crate::claim::publish(&quiet, said(Vec::new()));
    combined.changed().await;
    assert!(combined.roster().complete, "it names nobody");
    drop(sender);
    let woken = tokio::time::timeout(Duration::from_secs(60), combined.changed()).await;
    assert!(woken.is_err(), "a source that ended changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_member_stays_forgotten_while_its_source_is_unreadable() {
    let (sender, source) = Source::new("leases");
    let combined = Combined::new(own(), Clock::start(), vec![source]);
    let deaf_since = Some(at(1));
    sender.send_replace(Claims { deaf_since, ..said(vec![mvp("b", "10.0.0.2:1", 0)]) });
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(combined.roster().members.len(), 1);
    combined.handle().forget("b").unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(combined.roster().members, [], "an unreadable source has no heartbeats");
}
