//! What is known of how members do, from the requests that they got: shared by all workers, read and
//! written without a lock. Entry items: [`Health`] and [`MemberHealth`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use mvp_core::Timestamp;

use crate::control::Clock;
use crate::error::Stage;
use crate::metrics::Metrics;

/// So many exchanges in a row without an answer, and a member comes last.
const MAX_FAILURES: u32 = 3;
/// For so long the first time, twice that the next, and so on.
const FIRST_EJECTION: Duration = Duration::from_secs(1);
const MAX_EJECTION: Duration = Duration::from_secs(30);
/// A member that says that it would rather not comes last for so long.
const RELUCTANCE: Duration = Duration::from_secs(1);
/// How long a request that tries a member is waited for before another does: as long as it takes to
/// find out that it hangs.
const TRIAL: Duration = Duration::from_secs(3);
/// Over so long times to the head are averaged; what is older counts for less and less.
const LATENCY_WINDOW: Duration = Duration::from_secs(10);
/// More members than any cluster has: beyond it what is known is dropped, and found out anew.
const MAX_MEMBERS: usize = 1024;

/// How members do. Clones are the same.
#[derive(Debug, Clone)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    metrics: Arc<Metrics>,
    members: ArcSwap<HashMap<Arc<str>, Arc<MemberHealth>>>,
}

impl Health {
    /// Nothing is known yet.
    pub fn new(clock: Clock, metrics: Arc<Metrics>) -> Health {
        Health(Arc::new(Shared { clock, metrics, members: ArcSwap::default() }))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// How this member does.
    pub(crate) fn of(&self, id: &Arc<str>) -> Arc<MemberHealth> {
        if let Some(known) = self.0.members.load().get(id) {
            return Arc::clone(known);
        }
        let new = Arc::new(MemberHealth::default());
        let added = |members: &Arc<HashMap<_, _>>| {
            let mut members =
                if members.len() < MAX_MEMBERS { (**members).clone() } else { HashMap::new() };
            members.entry(Arc::clone(id)).or_insert_with(|| Arc::clone(&new));
            members
        };
        self.0.members.rcu(added);
        // Another worker may have been quicker.
        self.0.members.load().get(id).map_or(new, Arc::clone)
    }

    /// Nothing is known of this member any more.
    pub(crate) fn forget(&self, id: &str) {
        if self.0.members.load().contains_key(id) {
            self.0.members.rcu(|members| {
                let mut members = (**members).clone();
                members.remove(id);
                members
            });
        }
    }

    /// A member answered a request, or was asked by the control loop and answered.
    pub(crate) fn answered(&self, id: &str, member: &MemberHealth, how: Answered) {
        if member.answered(how) {
            self.0.metrics.ejected(id, false);
            tracing::info!(member = id, "a member is taken for well again");
        }
    }

    /// A member says that it is not ready.
    pub(crate) fn unready(&self, id: &Arc<str>) {
        self.of(id).is_reluctant(self.now());
    }

    /// A member gave no answer.
    pub(crate) fn failed(&self, id: &str, member: &MemberHealth, stage: Stage) {
        if let Some(wait) = member.failed(stage, self.now()) {
            self.0.metrics.ejected(id, true);
            let seconds = wait.as_secs();
            tracing::warn!(member = id, %stage, seconds, "a member comes last for a while");
        }
    }
}

/// What an answer was to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// A request of a client.
    Request,
    /// The control loop: it proves that the member can be reached, not that it does its work.
    Probe,
}

/// The place of a member among the others, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Somebody has to find out whether it is well again, and this request does.
    Trial,
    /// Nothing speaks against it.
    Well,
    /// It gave no answer.
    Last,
}

/// How one member does.
#[derive(Debug, Default)]
pub(crate) struct MemberHealth {
    requests: AtomicUsize,
    watches: AtomicUsize,
    /// Failures since the last answer.
    failures: AtomicU32,
    /// It comes last until then, in nanoseconds of the clock, and after that until it answers; 0: it
    /// does not.
    ejected_until: AtomicU64,
    /// Until then a request that tries it is waited for.
    tried_until: AtomicU64,
    /// Until then it comes last because its server is not ready. That is no failure: it answers, and
    /// where nobody else serves something, it does.
    reluctant_until: AtomicU64,
    /// How often it was ejected since it last answered a request.
    ejections: AtomicU32,
    /// Whether it was ejected because there was no way to it: then one that is there mends it.
    unreachable: AtomicBool,
    /// The average time to the head, in nanoseconds, and when it was last taken; 0: never.
    latency: AtomicU64,
    measured: AtomicU64,
}

impl MemberHealth {
    /// A request is under way until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>, watch: bool) -> InFlight {
        self.counter(watch).fetch_add(1, Ordering::Relaxed);
        InFlight { member: Arc::clone(self), watch }
    }

    /// Its place among the others. When its time is over, one request at a time tries it, if that
    /// may go on to another; it comes last for all else until it answers.
    pub(crate) fn standing(&self, may_try: impl FnOnce() -> bool, now: Timestamp) -> Standing {
        let until = self.ejected_until.load(Ordering::Relaxed);
        if until == 0 {
            let reluctant = self.reluctant_until.load(Ordering::Relaxed) > nanos(now);
            return if reluctant { Standing::Last } else { Standing::Well };
        }
        let tried_until = self.tried_until.load(Ordering::Relaxed);
        if until > nanos(now) || tried_until > nanos(now) || !may_try() {
            return Standing::Last;
        }
        let next = nanos(now.after(TRIAL));
        let won = self.tried_until.compare_exchange(
            tried_until,
            next,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if won.is_ok() { Standing::Trial } else { Standing::Last }
    }

    /// It refused a request because its server is not ready.
    pub(crate) fn is_reluctant(&self, now: Timestamp) {
        self.reluctant_until.store(nanos(now.after(RELUCTANCE)), Ordering::Relaxed);
    }

    /// What a request more would cost it: watches go where there are few, all else where few
    /// requests are under way and answers come soon. Times that are about the same count as the same.
    pub(crate) fn cost(&self, watch: bool, now: Timestamp) -> u64 {
        let under_way = 1 + self.counter(watch).load(Ordering::Relaxed) as u64;
        if watch {
            return under_way;
        }
        let latency = self.latency(now).max(1 << 10).checked_next_power_of_two();
        under_way.saturating_mul(latency.unwrap_or(u64::MAX))
    }

    /// The average time to the head, the less the longer nobody looked: a member that was slow once
    /// is tried again.
    fn latency(&self, now: Timestamp) -> u64 {
        let measured = self.measured.load(Ordering::Relaxed);
        let weight = weight(nanos(now).saturating_sub(measured));
        (self.latency.load(Ordering::Relaxed) as f64 * weight) as u64
    }

    /// Notes the time to the head of an ordinary read. Two at once may lose one of them.
    pub(crate) fn measure(&self, took: Duration, now: Timestamp) {
        let (took, now) = (as_nanos(took), nanos(now));
        let last = self.measured.swap(now, Ordering::Relaxed);
        let old = self.latency.load(Ordering::Relaxed);
        let weight = if last == 0 { 0.0 } else { weight(now.saturating_sub(last)) };
        // However many there are in the window, each counts for something.
        let weight = weight.min(0.9);
        let average = old as f64 * weight + took as f64 * (1.0 - weight);
        self.latency.store(average as u64, Ordering::Relaxed);
    }

    /// Whether that ended an ejection.
    fn answered(&self, how: Answered) -> bool {
        // Mostly nothing is to be done, and nothing is written.
        if self.failures.load(Ordering::Relaxed) == 0 && self.ejections.load(Ordering::Relaxed) == 0
        {
            return false;
        }
        match how {
            Answered::Request => self.ejections.store(0, Ordering::Relaxed),
            Answered::Probe if !self.unreachable.load(Ordering::Relaxed) => return false,
            Answered::Probe => {}
        }
        self.failures.store(0, Ordering::Relaxed);
        self.unreachable.store(false, Ordering::Relaxed);
        self.ejected_until.swap(0, Ordering::Relaxed) != 0
    }

    /// How long it comes last from now on, if that begins now.
    fn failed(&self, stage: Stage, now: Timestamp) -> Option<Duration> {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // A peer that says that its server is down says when it is back, as one does to which there
        // is a way again.
        let unreachable = matches!(stage, Stage::Connect | Stage::Refused);
        if unreachable {
            self.unreachable.store(true, Ordering::Relaxed);
        }
        let until = self.ejected_until.load(Ordering::Relaxed);
        let tried = until != 0;
        if until > nanos(now) || !(unreachable || tried || failures >= MAX_FAILURES) {
            return None;
        }
        let before = self.ejections.load(Ordering::Relaxed);
        let wait = FIRST_EJECTION.saturating_mul(1 << before.min(10)).min(MAX_EJECTION);
        let new = nanos(now.after(wait));
        // Of all that fail at once, one ejects.
        let won =
            self.ejected_until.compare_exchange(until, new, Ordering::Relaxed, Ordering::Relaxed);
        won.ok()?;
        self.ejections.store(before.saturating_add(1), Ordering::Relaxed);
        Some(wait)
    }

    fn counter(&self, watch: bool) -> &AtomicUsize {
        if watch { &self.watches } else { &self.requests }
    }
}

/// A request that is under way at a member.
#[derive(Debug)]
pub(crate) struct InFlight {
    member: Arc<MemberHealth>,
    watch: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.member.counter(self.watch).fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is left of a measurement after so long.
fn weight(nanos: u64) -> f64 {
    (-(nanos as f64) / as_nanos(LATENCY_WINDOW) as f64).exp()
}

/// Never 0, which stands for never.
fn nanos(time: Timestamp) -> u64 {
    as_nanos(time.since(Timestamp::default())).max(1)
}

fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_millis(milliseconds))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_member_without_a_way_to_it_comes_last_at_once_and_a_probe_mends_it() {
        let member = MemberHealth::default();
        assert_eq!(member.standing(|| true, at(0)), Standing::Well);
        assert_eq!(member.failed(Stage::Connect, at(0)), Some(SECOND));
        assert_eq!(member.standing(|| true, at(999)), Standing::Last);
        assert!(member.answered(Answered::Probe));
        assert_eq!(member.standing(|| true, at(1)), Standing::Well);
        assert!(!member.answered(Answered::Probe), "it is told once");
    }

    #[test]
    fn one_request_at_a_time_tries_a_member_whose_time_is_over() {
        let member = MemberHealth::default();
        member.failed(Stage::Connect, at(0));
        assert_eq!(member.standing(|| false, at(1000)), Standing::Last, "no write does");
        assert_eq!(member.standing(|| true, at(1000)), Standing::Trial);
        assert_eq!(member.standing(|| true, at(3999)), Standing::Last);
        assert_eq!(member.standing(|| true, at(4000)), Standing::Trial);
        // It fails, and its time is longer.
        assert_eq!(member.failed(Stage::Exchange, at(5000)), Some(2 * SECOND));
        assert_eq!(member.standing(|| true, at(6999)), Standing::Last);
        assert_eq!(member.standing(|| true, at(7000)), Standing::Trial);
        assert!(member.answered(Answered::Request));
        assert_eq!(member.standing(|| false, at(7001)), Standing::Well);
    }

    #[test]
    fn lost_exchanges_count_when_they_come_in_a_row_and_only_an_answer_mends_them() {
        let member = MemberHealth::default();
        for stage in [Stage::Exchange, Stage::NotSent] {
            assert_eq!(member.failed(stage, at(0)), None);
        }
        assert!(!member.answered(Answered::Request));
        for _ in 1..MAX_FAILURES {
            assert_eq!(member.failed(Stage::Exchange, at(0)), None);
        }
        assert_eq!(member.failed(Stage::Exchange, at(0)), Some(SECOND));
        assert!(!member.answered(Answered::Probe), "that it can be reached was not in doubt");
        assert_eq!(member.standing(|| true, at(999)), Standing::Last);
        assert!(member.answered(Answered::Request));
        assert_eq!(member.standing(|| true, at(1)), Standing::Well);
    }

    #[test]
    fn it_comes_last_for_longer_each_time_up_to_a_bound_until_it_answers_a_request() {
        let member = MemberHealth::default();
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(member.failed(Stage::Connect, at(now)), Some(wait));
            // Those that fail meanwhile change nothing.
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
    fn what_is_under_way_costs_and_watches_are_counted_by_themselves() {
        let member = Arc::new(MemberHealth::default());
        let idle = member.cost(false, at(0));
        let watch = member.begin(true);
        assert_eq!(member.cost(false, at(0)), idle);
        assert_eq!(member.cost(true, at(0)), 2);
        let requests = [member.begin(false), member.begin(false)];
        assert_eq!(member.cost(false, at(0)), 3 * idle);
        drop((watch, requests));
        assert_eq!((member.cost(true, at(0)), member.cost(false, at(0))), (1, idle));
    }

    #[test]
    fn slow_members_cost_more_until_nobody_looked_for_long() {
        let (slow, quick) = (MemberHealth::default(), MemberHealth::default());
        for round in 0..100 {
            slow.measure(Duration::from_millis(80), at(round * 10));
            quick.measure(Duration::from_millis(2), at(round * 10));
        }
        let ratio = slow.cost(false, at(1000)) / quick.cost(false, at(1000));
        assert!((16..=64).contains(&ratio), "{ratio}");
        // One that is slow once is not slow.
        quick.measure(Duration::from_millis(20), at(1010));
        assert!(slow.cost(false, at(1010)) > quick.cost(false, at(1010)));
        // The slow one rests, the quick one goes on: after a while the slow one is tried again.
        quick.measure(Duration::from_millis(2), at(100_000));
        assert!(slow.cost(false, at(100_000)) <= quick.cost(false, at(100_000)));
    }

    #[test]
    fn what_is_known_is_shared_and_bounded() {
        let clock = Clock::start();
        let health = Health::new(clock, Arc::new(Metrics::new(false)));
        let (id, other) = ("a".into(), health.clone());
        assert!(Arc::ptr_eq(&health.of(&id), &other.of(&id)));
        for index in 0..2 * MAX_MEMBERS {
            health.of(&format!("member-{index}").into());
        }
        assert!(health.0.members.load().len() <= MAX_MEMBERS);
    }
}
