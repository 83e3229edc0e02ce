//! Tests of ejection, readmission and cost.

use super::*;

fn at(milliseconds: u64) -> Timestamp {
    Timestamp::after_start(Duration::from_millis(milliseconds))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_unreachable_member_is_ejected_at_once_and_a_probe_readmits_it() {
    let member = MemberHealth::default();
    assert_eq!(member.standing(|| true, at(0)), Standing::Healthy);
    assert_eq!(member.failed(Stage::Connect, at(0)), Some(SECOND));
    assert_eq!(member.standing(|| true, at(999)), Standing::Last);
    assert!(member.answered(Answered::Probe));
    assert_eq!(member.standing(|| true, at(1)), Standing::Healthy);
    assert!(!member.answered(Answered::Probe), "reported once");
}

#[test]
fn one_request_at_a_time_tries_a_member_after_its_ejection() {
    let member = MemberHealth::default();
    member.failed(Stage::Connect, at(0));
    assert_eq!(member.standing(|| false, at(1000)), Standing::Last, "a write does not try");
    assert_eq!(member.standing(|| true, at(1000)), Standing::Trial);
    assert_eq!(member.standing(|| true, at(3999)), Standing::Last);
    assert_eq!(member.standing(|| true, at(4000)), Standing::Trial);
    // The trial fails, so the next ejection is longer.
    assert_eq!(member.failed(Stage::Exchange, at(5000)), Some(2 * SECOND));
    assert_eq!(member.standing(|| true, at(6999)), Standing::Last);
    assert_eq!(member.standing(|| true, at(7000)), Standing::Trial);
    assert!(member.answered(Answered::Request));
    assert_eq!(member.standing(|| false, at(7001)), Standing::Healthy);
}

#[test]
fn lost_requests_in_a_row_eject_and_only_a_response_readmits() {
    let member = MemberHealth::default();
    for stage in [Stage::Exchange, Stage::NotSent] {
        assert_eq!(member.failed(stage, at(0)), None);
    }
    assert!(!member.answered(Answered::Request));
    for _ in 1..MAX_FAILURES {
        assert_eq!(member.failed(Stage::Exchange, at(0)), None);
    }
    assert_eq!(member.failed(Stage::Exchange, at(0)), Some(SECOND));
    assert!(!member.answered(Answered::Probe), "it was reachable all along");
    assert_eq!(member.standing(|| true, at(999)), Standing::Last);
    assert!(member.answered(Answered::Request));
    assert_eq!(member.standing(|| true, at(1)), Standing::Healthy);
}

#[test]
fn ejection_backs_off_until_a_request_succeeds() {
    let member = MemberHealth::default();
    let mut now = 0;
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let backoff = Duration::from_secs(seconds);
        assert_eq!(member.failed(Stage::Connect, at(now)), Some(backoff));
        // Failures during an ejection do not extend it.
        assert_eq!(member.failed(Stage::Connect, at(now + 1)), None);
        now += 1000 * seconds;
    }
    member.answered(Answered::Probe);
    assert_eq!(member.failed(Stage::Connect, at(now)), Some(Duration::from_secs(30)));
    member.answered(Answered::Probe);
    member.answered(Answered::Request);
    assert_eq!(member.failed(Stage::Connect, at(now)), Some(SECOND));
}

#[test]
fn requests_in_flight_cost_and_watches_count_separately() {
    let member = Arc::new(MemberHealth::default());
    let idle = member.cost(false, at(0));
    let watch = member.gate(true).try_enter();
    assert_eq!(member.cost(false, at(0)), idle);
    assert_eq!(member.cost(true, at(0)), 2);
    let requests = [member.gate(false).try_enter(), member.gate(false).try_enter()];
    assert_eq!(member.cost(false, at(0)), 3 * idle);
    drop((watch, requests));
    assert_eq!((member.cost(true, at(0)), member.cost(false, at(0))), (1, idle));
}

#[test]
fn slow_members_cost_more_until_the_measurement_is_old() {
    let (slow, quick) = (MemberHealth::default(), MemberHealth::default());
    for round in 0..100 {
        slow.measure(Duration::from_millis(80), at(round * 10));
        quick.measure(Duration::from_millis(2), at(round * 10));
    }
    let ratio = slow.cost(false, at(1000)) / quick.cost(false, at(1000));
    assert!((16..=64).contains(&ratio), "{ratio}");
    // One slow response does not make a member slow.
    quick.measure(Duration::from_millis(20), at(1010));
    assert!(slow.cost(false, at(1010)) > quick.cost(false, at(1010)));
    // The slow member gets no requests. After a while it is tried again.
    quick.measure(Duration::from_millis(2), at(100_000));
    assert!(slow.cost(false, at(100_000)) <= quick.cost(false, at(100_000)));
}

#[test]
fn health_is_shared_and_bounded() {
    let clock = Clock::start();
    let health = Health::new(clock, Arc::new(Metrics::new(false)), PeerLimits::NONE);
    let (id, other) = ("a".into(), health.clone());
    assert!(Arc::ptr_eq(&health.of(&id), &other.of(&id)));
    for index in 0..2 * MAX_MEMBERS {
        health.of(&format!("member-{index}").into());
    }
    assert!(health.0.members.load().len() <= MAX_MEMBERS);
}

#[tokio::test(start_paused = true)]
async fn a_member_leaves_when_it_is_unready_or_ejected() {
    use tokio::time::timeout;
    let (unready, ejected): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let health = Health::new(Clock::start(), Arc::new(Metrics::new(false)), PeerLimits::NONE);
    for id in [&unready, &ejected] {
        let stays = timeout(Duration::from_secs(60), health.clone().leaves(Arc::clone(id))).await;
        assert!(stays.is_err(), "{id} is healthy");
    }
    health.unready(&unready);
    health.clone().leaves(unready).await;
    health.failed(&ejected, &health.of(&ejected), Stage::Connect);
    health.clone().leaves(ejected).await;
}
