//! Claims in, members out.

use mvp_core::member::MemberKind;

use super::*;

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

/// `ID address kind heard`, of each member.
fn shown(sources: &[Claims], now: u64) -> Vec<String> {
    let merged = merge(&own(), sources, &BTreeMap::new(), at(now));
    let shown = |record: &MemberRecord| {
        let address = record.address.as_deref().unwrap_or("-");
        let heard = record.heard.map(|heard| heard.since(at(0)).as_secs());
        format!("{} {address} {:?} {heard:?}", record.id, record.kind)
    };
    let mut members: Vec<String> = merged.members.iter().map(shown).collect();
    members.sort();
    members
}

fn conflicts(sources: &[Claims], now: u64) -> Vec<String> {
    let merged = merge(&own(), sources, &BTreeMap::new(), at(now));
    let shown = |Conflict { id, has, claims }: &Conflict| {
        format!("{id} {} {claims}", has.as_deref().unwrap_or("own"))
    };
    merged.conflicts.iter().map(shown).collect()
}

#[test]
fn claims_of_one_id_are_one_member() {
    let written = said(vec![claim("b", "10.0.0.2:1", MemberKind::Bare, None)]);
    let leases = said(vec![mvp("b", "10.0.0.2:6443", 3), mvp("c", "10.0.0.3:6443", 4)]);
    let identities = said(vec![
        claim("c", "10.0.0.3:6444", MemberKind::Bare, Some(9)),
        claim("d", "", MemberKind::Bare, Some(9)),
    ]);
    let all = [written, leases, identities];
    // The source that is believed more has the word on where and what, and it vouches.
    let expected = ["b 10.0.0.2:1 Bare None", "c 10.0.0.3:6443 Mvp Some(4)", "d - Bare Some(9)"];
    assert_eq!(shown(&all, 10), expected);
    assert_eq!(conflicts(&all, 10), [""; 0], "two sources that differ are no conflict");
    // The gateway of c is silent; its server goes on.
    assert_eq!(shown(&all, 20).get(1).unwrap(), "c 10.0.0.3:6444 Bare Some(9)");
}

#[test]
fn claims_without_an_id_are_of_who_is_there() {
    let leases = said(vec![mvp("b", "10.0.0.2:6443", 3)]);
    let endpoints = said(vec![
        claim("", "10.0.0.2:6443", MemberKind::Bare, None),
        claim("", "10.0.0.3:6443", MemberKind::Bare, None),
        claim("", "10.0.0.1:6443", MemberKind::Bare, None),
    ]);
    let expected = ["10.0.0.3:6443 10.0.0.3:6443 Bare None", "b 10.0.0.2:6443 Mvp Some(3)"];
    assert_eq!(shown(&[leases, endpoints], 5), expected);
}

#[test]
fn we_are_nobodys_peer() {
    let leases = said(vec![
        mvp("own", "10.0.0.1:6443", 3),
        // Under another name; and the server beside us.
        mvp("else", "10.0.0.1:6443", 3),
        claim("own", "10.0.0.1:6444", MemberKind::Bare, Some(3)),
        claim("apiserver-x", "127.0.0.1:7", MemberKind::Bare, Some(3)),
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

    // It came back at another address: when the old one was silent for three heartbeats, its ID is
    // the new one's.
    second.heard = Some(at(35));
    let both = [said(vec![first.clone(), second])];
    assert_eq!(shown(&both, 36), ["b 10.0.0.2:6443 Mvp Some(35)"]);
    assert_eq!(conflicts(&both, 36), [""; 0]);

    // Seen at once, as by one who just started: the earlier made.
    let (mut one, mut other) = (mvp("b", "10.0.0.2:6443", 1), mvp("b", "10.0.0.9:6443", 1));
    (one.seniority, other.seniority) = ("2026-01-02".into(), "2026-01-01".into());
    let both = [said(vec![one, other])];
    assert_eq!(conflicts(&both, 1), ["b 10.0.0.9:6443 10.0.0.2:6443"]);
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

#[test]
fn a_flood_of_claims_moves_nobody_who_was_there_before() {
    let mut claims = vec![mvp("zz", "10.0.0.2:1", 9)];
    for number in 0..2 * MAX_MEMBERS {
        let mut forged = mvp(&format!("a{number}"), &format!("10.0.0.66:{number}"), 9);
        forged.since = at(5);
        claims.push(forged);
    }
    let members = shown(&[said(claims)], 10);
    assert_eq!(members.len(), MAX_MEMBERS);
    assert!(members.iter().any(|member| member.starts_with("zz ")));
}

#[tokio::test(start_paused = true)]
async fn who_was_forgotten_is_back_when_it_is_heard_of() {
    let (sender, source) = Source::new("leases");
    let (written, names) = Source::new("--peer");
    let clock = Clock::start();
    let combined = Combined::new(own(), clock, vec![names, source]);
    written.send_replace(said(vec![claim("c", "10.0.0.3:1", MemberKind::Mvp, None)]));
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 0)]));
    tokio::time::advance(Duration::from_secs(9)).await;
    let ids = || combined.members().iter().map(|m| m.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(), ["b", "c"]);
    combined.handle().forget("b").unwrap();
    assert_eq!(ids(), ["c"]);
    sender.send_replace(said(vec![mvp("b", "10.0.0.2:1", 10)]));
    assert_eq!(ids(), ["b", "c"]);
    combined.handle().leads_to_us(&"10.0.0.2:1".into());
    assert_eq!(ids(), ["c"], "it is ourselves, by whatever way");
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
