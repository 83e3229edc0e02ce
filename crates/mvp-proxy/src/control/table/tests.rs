//! Who comes, goes, moves and is renamed, second by second; and whom answers wait for.

use mvp_core::Snapshot;
use mvp_core::snapshot::{Inputs, Policy};

use super::*;

const FORGET_AFTER: Duration = Duration::from_secs(600);

fn at(seconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_secs(seconds))
}

fn record(address: &str, heard: Option<u64>) -> MemberRecord {
    let (id, address) = ("b".into(), Some(address.into()));
    MemberRecord { id, address, kind: MemberKind::Mvp, heard: heard.map(at) }
}

/// What the table says of the member, and whether that holds 404s up.
fn shown(table: &Table, now: u64) -> Option<(Presence, bool)> {
    let member = table.members().into_iter().find(|member| &*member.id == "b")?;
    Some((member.presence, blocks(table, now)))
}

/// Whether anybody holds 404s up.
fn blocks(table: &Table, now: u64) -> bool {
    let inputs = Inputs {
        members_known: true,
        members: table.members(),
        local: Some("own".into()),
        extension_versions: Arc::default(),
        started: at(0),
        now: at(now),
        policy: Policy::default(),
    };
    let snapshot = Snapshot::build(inputs, None);
    snapshot.blocking(Part::Apis).next().is_some()
}

fn update(table: &mut Table, records: &[MemberRecord], now: u64) -> usize {
    table.update(records, Some(&"own".into()), at(now), FORGET_AFTER).len()
}

/// It is claimed to be a member, and never once answers: it cannot wedge a cluster.
#[test]
fn who_cannot_be_asked_holds_404s_up_for_no_longer_than_it_is_heard_of_and_not_for_good() {
    let (mut silent, mut beating) = (Table::default(), Table::default());
    for now in 0..900 {
        update(&mut silent, &[record("a:1", Some(0))], now);
        update(&mut beating, &[record("a:1", Some(now))], now);
        if now < FORGET_AFTER.as_secs() {
            assert_eq!(shown(&silent, now), Some((Presence::Present, now <= 40)), "{now}");
        } else {
            assert_eq!(shown(&silent, now), None, "{now}: nobody has heard of it for so long");
        }
        assert_eq!(shown(&beating, now), Some((Presence::Present, now < 300)), "{now}");
    }
}

/// A source may name the dead for hours. What we reach ourselves is alive, whatever it says.
#[test]
fn who_is_silent_is_forgotten_unless_we_reach_it() {
    let mut table = Table::default();
    update(&mut table, &[record("a:1", Some(0))], 0);
    table.rows().for_each(|row| row.member.heard = at(300));
    assert_eq!(update(&mut table, &[record("a:1", Some(0))], 899), 0);
    assert_eq!(update(&mut table, &[record("a:1", Some(0))], 900), 1);
    assert_eq!(update(&mut table, &[record("a:1", Some(0))], 901), 0, "and stays so");
    assert_eq!(shown(&table, 901), None);
    update(&mut table, &[record("a:1", Some(902))], 902);
    assert_eq!(shown(&table, 902), Some((Presence::Present, true)), "until it is heard of");
}

#[test]
fn who_left_is_remembered_until_its_time_or_somebody_says_so() {
    let mut table = Table::default();
    update(&mut table, &[record("a:1", None)], 0);
    assert!(!table.forget("b"), "it is there");
    table.rows().for_each(|row| row.member.view = view());
    update(&mut table, &[], 10);
    assert_eq!(shown(&table, 10), Some((Presence::Left, false)));
    assert_eq!(update(&mut table, &[], 609), 0);
    // It comes back, at another address.
    update(&mut table, &[record("a:2", None)], 609);
    assert_eq!(table.members().first().and_then(|b| b.address.as_deref()), Some("a:2"));
    update(&mut table, &[], 620);
    assert!(table.forget("b") && !table.forget("b") && !table.forget("own"));
    update(&mut table, &[record("a:2", None)], 630);
    table.rows().for_each(|row| row.member.view = view());
    update(&mut table, &[], 640);
    assert_eq!(update(&mut table, &[], 1239), 0);
    assert_eq!(update(&mut table, &[], 1240), 1);
    // Where it was never seen, what is recorded of it is remembered.
    update(&mut table, &[record("a:2", None)], 1250);
    table.rows().for_each(|row| row.member.view.recorded = Some(Arc::default()));
    assert_eq!(update(&mut table, &[], 1260), 0);
    assert_eq!(update(&mut table, &[], 1859), 0);
    assert_eq!(update(&mut table, &[], 1860), 1);
    // Who never said anything left nothing to be remembered.
    update(&mut table, &[record("a:2", None)], 1870);
    assert_eq!(update(&mut table, &[], 1871), 1);
}

fn view() -> View {
    View { apis: Some(Seen { list: Arc::default(), confirmed: at(0) }), ..View::default() }
}

fn answers(table: &mut Table, id: &str, who: &Who) {
    for row in table.rows().filter(|row| &*row.member.id == id) {
        row.member.view = view();
        row.answered = row.member.address.clone().map(|address| (address, who.clone()));
    }
}

/// Its name, its address, or both may change. It is remembered only as long as it is not there.
#[test]
fn who_goes_by_another_name_now_did_not_leave() {
    let gateway = |instance: &str| Who::Gateway { id: "b".into(), instance: instance.into() };
    let named = |id: &str, address: &str| MemberRecord { id: id.into(), ..record(address, None) };
    for (before, after, who, known_again) in [
        // At the same address.
        (gateway("1"), named("b", "a:1"), None, true),
        (Who::Server, named("b", "a:1"), None, true),
        // The same process, at another address.
        (gateway("1"), named("b", "a:2"), Some(gateway("1")), true),
        (gateway("1"), named("b", "a:2"), Some(gateway("2")), false),
        (gateway("1"), named("b", "a:2"), Some(Who::Server), false),
        // The gateway before it.
        (Who::Server, named("b", "a:2"), Some(gateway("1")), true),
        (Who::Server, named("b", "a:2"), Some(Who::Server), false),
        (Who::Server, named("b", "a:2"), None, false),
        (Who::Server, named("c", "a:2"), Some(gateway("1")), false),
    ] {
        let mut table = Table::default();
        update(&mut table, &[named("b@a:1", "a:1")], 0);
        answers(&mut table, "b@a:1", &before);
        let forgotten = update(&mut table, std::slice::from_ref(&after), 1);
        if who.is_none() && known_again {
            assert_eq!(forgotten, 1, "what is known of it is taken over: {after:?}");
            let row = table.rows().find(|row| &*row.member.id == "b").unwrap();
            assert!(row.member.view.apis.is_some() && row.answered.is_some());
            continue;
        }
        assert_eq!(forgotten, 0, "nobody knows yet");
        if let Some(who) = &who {
            answers(&mut table, &after.id, who);
        }
        let forgotten = update(&mut table, std::slice::from_ref(&after), 2);
        assert_eq!(forgotten, usize::from(known_again), "{after:?} {who:?}");
    }
}

/// It was away for longer than anybody is waited for, and may serve something new.
#[test]
fn who_is_back_is_waited_for_again_but_not_again_and_again() {
    let mut table = Table::default();
    let mut held_up = 0;
    for now in 0..4000 {
        // Its Lease is made anew again and again, and it never answers any more.
        let is_there = now < 10 || now % 600 >= 400;
        let records = [record("a:1", Some(now))];
        update(&mut table, if is_there { &records } else { &[] }, now);
        for row in table.rows() {
            if now < 10 || &*row.member.id == "own" {
                let seen = Some(Seen { list: Arc::default(), confirmed: at(now) });
                (row.member.view.api, row.member.view.apis) = (seen.clone(), seen);
                row.has_answered = true;
            }
        }
        let blocks = blocks(&table, now);
        assert_eq!(blocks && now < 600, (400..600).contains(&now), "{now}");
        held_up += u64::from(blocks);
    }
    assert!((200..=450).contains(&held_up), "{held_up} s");
}

/// Its gateway is gone and its server lives on: what it served is remembered, but not for ever.
#[test]
fn who_cannot_be_asked_any_more_is_remembered_as_who_left() {
    let mut table = Table::default();
    let homeless = |now| MemberRecord { address: None, ..record("a:1", Some(now)) };
    update(&mut table, &[record("a:1", Some(0))], 0);
    table.rows().for_each(|row| row.member.view = view());
    let seen = |table: &Table| {
        table.members().iter().any(|member| member.view.apis.is_some() && &*member.id == "b")
    };
    update(&mut table, &[homeless(599)], 599);
    assert!(seen(&table));
    update(&mut table, &[homeless(600)], 600);
    assert!(!seen(&table) && shown(&table, 600).is_some());
}

/// A new one every minute, each of which beats and never answers.
#[test]
fn strangers_together_hold_404s_up_for_no_longer_than_one_alone() {
    let mut table = Table::default();
    let mut held_up = Vec::new();
    for now in 0..3600 {
        let forged = format!("forged-{}", now / 60);
        let stranger = MemberRecord { id: forged.into(), ..record("a:6", Some(now)) };
        let known = MemberRecord { id: "known".into(), ..record("a:2", Some(now)) };
        update(&mut table, &[stranger, known], now);
        let answered = Seen { list: Arc::default(), confirmed: at(now) };
        for row in table.rows().filter(|row| ["own", "known"].contains(&&*row.member.id)) {
            row.has_answered = true;
            (row.member.view.api, row.member.view.apis) =
                (Some(answered.clone()), Some(answered.clone()));
        }
        if blocks(&table, now) {
            held_up.push(now);
        }
    }
    assert_eq!(held_up, (0..300).collect::<Vec<_>>());
    // One that somebody wrote down is waited for all the same; one that answered, too.
    update(&mut table, &[record("a:3", None)], 3600);
    assert!(blocks(&table, 3600));
    update(&mut table, &[], 3601);
    assert!(!blocks(&table, 3601));
    update(&mut table, &[record("a:3", Some(3602))], 3602);
    assert!(!blocks(&table, 3602), "nobody knows it");
    for row in table.rows().filter(|row| &*row.member.id == "b") {
        row.has_answered = true;
    }
    update(&mut table, &[record("a:3", Some(3603))], 3603);
    assert!(blocks(&table, 3603), "it answers, and does not say what it serves");
}

/// However short the memory: a heartbeat that is a little late is nobody's end.
#[test]
fn without_a_memory_who_beats_is_there() {
    let mut table = Table::default();
    for now in 0..100 {
        table.update(&[record("a:1", Some(now / 5 * 5))], None, at(now), Duration::ZERO);
        assert_eq!(shown(&table, now).map(|shown| shown.0), Some(Presence::Present), "{now}");
    }
}

/// Its Lease is made to point at another server while it is down: what only it has is not gone.
#[test]
fn who_moves_leaves_behind_what_it_served_until_it_says_that_it_is_there() {
    let gateway = |instance: &str| Who::Gateway { id: "b".into(), instance: instance.into() };
    let left = |table: &Table| {
        let members = table.members();
        members
            .iter()
            .any(|m| &*m.id == "b@a:1" && m.presence == Presence::Left && m.view.apis.is_some())
    };
    for (who, is_it) in [(gateway("2"), true), (Who::Server, false)] {
        let mut table = Table::default();
        update(&mut table, &[record("a:1", None)], 0);
        answers(&mut table, "b", &gateway("1"));
        assert_eq!(update(&mut table, &[record("a:2", None)], 1), 0);
        assert!(left(&table), "nobody knows yet who is there");
        answers(&mut table, "b", &who);
        assert_eq!(update(&mut table, &[record("a:2", None)], 2), usize::from(is_it), "{who:?}");
        assert_eq!(left(&table), !is_it, "{who:?}");
        update(&mut table, &[record("a:2", None)], 700);
        assert!(!left(&table), "its time is over");
    }
}
