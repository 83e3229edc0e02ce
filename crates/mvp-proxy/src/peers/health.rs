//! The health of members, learned from the requests sent to them. All workers share it and use it
//! without a lock. Entry items: [`Health`] and [`MemberHealth`].
//!
//! A member that fails is ejected: it is chosen only if no healthy member is left. When the
//! ejection expires, one request at a time tries it, and a response readmits it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use mvp_core::Timestamp;

use super::PeerLimits;
use super::flow::Flows;
use super::gate::Gate;
use crate::clock::Clock;
use crate::error::Stage;
use crate::metrics::Metrics;

/// The number of lost requests in a row after which a member is ejected.
const MAX_FAILURES: u32 = 3;
/// The length of the first ejection. Each further one is twice as long.
const FIRST_EJECTION: Duration = Duration::from_secs(1);
const MAX_EJECTION: Duration = Duration::from_secs(30);
/// How long a member that reports itself unready is chosen last.
const UNREADY: Duration = Duration::from_secs(1);
/// How long a trial of an ejected member may take before another request may try it: the time after
/// which a hang is detected.
const TRIAL: Duration = Duration::from_secs(3);
/// How often [`Health::leaves`] looks.
const LEAVES_INTERVAL: Duration = Duration::from_millis(250);
/// The window over which latencies are averaged. Older ones count less and less.
const LATENCY_WINDOW: Duration = Duration::from_secs(10);
/// The number of members above which all health is dropped and learned again. No cluster has so
/// many.
const MAX_MEMBERS: usize = 1024;

/// The health of all members. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    metrics: Arc<Metrics>,
    limits: PeerLimits,
    flows: Flows,
    members: ArcSwap<HashMap<Arc<str>, Arc<MemberHealth>>>,
}

impl Health {
    /// The health of members before any request, with these limits of requests in flight.
    pub(crate) fn new(clock: Clock, metrics: Arc<Metrics>, limits: PeerLimits) -> Health {
        let (flows, members) = (Flows::default(), ArcSwap::default());
        Health(Arc::new(Shared { clock, metrics, limits, flows, members }))
    }

    /// Tells the users of all workers apart.
    pub(super) fn flows(&self) -> &Flows {
        &self.0.flows
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The health of a member.
    pub(crate) fn of(&self, id: &Arc<str>) -> Arc<MemberHealth> {
        if let Some(known) = self.0.members.load().get(id) {
            return Arc::clone(known);
        }
        let new = Arc::new(MemberHealth::new(self.0.limits));
        let added = |members: &Arc<HashMap<_, _>>| {
            let mut members =
                if members.len() < MAX_MEMBERS { (**members).clone() } else { HashMap::new() };
            members.entry(Arc::clone(id)).or_insert_with(|| Arc::clone(&new));
            members
        };
        self.0.members.rcu(added);
        // Another worker may have added it first.
        self.0.members.load().get(id).map_or(new, Arc::clone)
    }

    /// Drops the health of a former member.
    pub(crate) fn forget(&self, id: &str) {
        if self.0.members.load().contains_key(id) {
            self.0.members.rcu(|members| {
                let mut members = (**members).clone();
                members.remove(id);
                members
            });
        }
    }

    /// Notes that a member responded.
    pub(crate) fn answered(&self, id: &str, member: &MemberHealth, how: Answered) {
        if member.answered(how) {
            self.0.metrics.ejected(id, false);
            tracing::info!(member = id, "peer readmitted");
        }
    }

    /// Notes that a member reports itself unready.
    pub(crate) fn unready(&self, id: &Arc<str>) {
        self.of(id).mark_unready(self.now());
    }

    /// Completes when a member is ejected or unready.
    pub(crate) async fn leaves(self, id: Arc<str>) {
        while self.of(&id).standing(|| false, self.now()) != Standing::Last {
            tokio::time::sleep(LEAVES_INTERVAL).await;
        }
    }

    /// Notes that a member did not respond.
    pub(crate) fn failed(&self, id: &str, member: &MemberHealth, stage: Stage) {
        if let Some(backoff) = member.failed(stage, self.now()) {
            self.0.metrics.ejected(id, true);
            let backoff_seconds = backoff.as_secs();
            tracing::warn!(member = id, reason = %stage, backoff_seconds, "peer ejected");
        }
    }
}

/// What a member responded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// A client's request.
    Request,
    /// A probe. It proves that the member can be reached, not that it serves requests.
    Probe,
}

/// How a member ranks among the others, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Its ejection has expired, and this request tries it.
    Trial,
    /// It is healthy.
    Healthy,
    /// It is ejected or unready.
    Last,
}

/// The health of one member.
#[derive(Debug, Default)]
pub(crate) struct MemberHealth {
    requests: Arc<Gate>,
    /// The same for requests that last: watches, and those that a backend responds to.
    watches: Arc<Gate>,
    /// Failures since the last response.
    failures: AtomicU32,
    /// When the ejection expires, in nanoseconds of the clock. The member stays ejected until it
    /// responds. 0 if it is not ejected.
    ejected_until: AtomicU64,
    /// When the current trial expires.
    trial_until: AtomicU64,
    /// Until when it is chosen last because it reported itself unready. That is no failure: it
    /// responds, and serves what no other member does.
    unready_until: AtomicU64,
    /// Ejections since it last responded to a client's request.
    ejections: AtomicU32,
    /// Whether it was ejected because it could not be reached. Then a probe readmits it.
    unreachable: AtomicBool,
    /// The average time to the response head, in nanoseconds, and when it was last measured; 0 for
    /// never.
    latency: AtomicU64,
    measured: AtomicU64,
}

impl MemberHealth {
    fn new(limits: PeerLimits) -> MemberHealth {
        let (requests, watches) = (Gate::new(limits.requests), Gate::new(limits.watches));
        let (requests, watches) = (Arc::new(requests), Arc::new(watches));
        MemberHealth { requests, watches, ..MemberHealth::default() }
    }

    /// The requests in flight: those that last, or the others.
    pub(super) fn gate(&self, lasts: bool) -> &Arc<Gate> {
        if lasts { &self.watches } else { &self.requests }
    }

    /// How it ranks for a request. After its ejection expires, one request at a time tries it, if
    /// `may_try` says that this request may be retried elsewhere.
    pub(crate) fn standing(&self, may_try: impl FnOnce() -> bool, now: Timestamp) -> Standing {
        let until = self.ejected_until.load(Ordering::Relaxed);
        if until == 0 {
            let unready = self.unready_until.load(Ordering::Relaxed) > nanos(now);
            return if unready { Standing::Last } else { Standing::Healthy };
        }
        let trial_until = self.trial_until.load(Ordering::Relaxed);
        if until > nanos(now) || trial_until > nanos(now) || !may_try() {
            return Standing::Last;
        }
        let next = nanos(now.after(TRIAL));
        let won = self.trial_until.compare_exchange(
            trial_until,
            next,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if won.is_ok() { Standing::Trial } else { Standing::Last }
    }

    /// Notes that it refused a request because its server is unready.
    pub(crate) fn mark_unready(&self, now: Timestamp) {
        self.unready_until.store(nanos(now.after(UNREADY)), Ordering::Relaxed);
    }

    /// The cost of one more request. For watches it is their number. For other requests it is the
    /// number in flight times the latency, where similar latencies count as equal.
    pub(crate) fn cost(&self, watch: bool, now: Timestamp) -> u64 {
        let in_flight = 1 + self.gate(watch).in_flight() as u64;
        if watch {
            return in_flight;
        }
        let latency = self.latency(now).max(1 << 10).checked_next_power_of_two();
        in_flight.saturating_mul(latency.unwrap_or(u64::MAX))
    }

    /// The average time to the response head. It decays while nothing is measured, so that a slow
    /// member is tried again.
    fn latency(&self, now: Timestamp) -> u64 {
        let measured = self.measured.load(Ordering::Relaxed);
        let weight = weight(nanos(now).saturating_sub(measured));
        (self.latency.load(Ordering::Relaxed) as f64 * weight) as u64
    }

    /// Notes the time to the response head of a read. Of two at the same time, one may be lost.
    pub(crate) fn measure(&self, took: Duration, now: Timestamp) {
        let (took, now) = (as_nanos(took), nanos(now));
        let last = self.measured.swap(now, Ordering::Relaxed);
        let old = self.latency.load(Ordering::Relaxed);
        let weight = if last == 0 { 0.0 } else { weight(now.saturating_sub(last)) };
        // Each measurement counts, however many there are in the window.
        let weight = weight.min(0.9);
        let average = old as f64 * weight + took as f64 * (1.0 - weight);
        self.latency.store(average as u64, Ordering::Relaxed);
    }

    /// Notes a response. Returns whether it ended an ejection.
    fn answered(&self, how: Answered) -> bool {
        // Usually there is nothing to do, and this writes nothing.
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

    /// Notes a failure. Returns the length of the ejection if one begins now.
    fn failed(&self, stage: Stage, now: Timestamp) -> Option<Duration> {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // A peer whose server is down reports when it is up again, so a probe readmits it, too.
        let unreachable = matches!(stage, Stage::Connect | Stage::Refused);
        if unreachable {
            self.unreachable.store(true, Ordering::Relaxed);
        }
        let until = self.ejected_until.load(Ordering::Relaxed);
        let on_trial = until != 0;
        if until > nanos(now) || !(unreachable || on_trial || failures >= MAX_FAILURES) {
            return None;
        }
        let before = self.ejections.load(Ordering::Relaxed);
        let backoff = FIRST_EJECTION.saturating_mul(1 << before.min(10)).min(MAX_EJECTION);
        let new = nanos(now.after(backoff));
        // Of several requests that fail at the same time, one ejects.
        let won =
            self.ejected_until.compare_exchange(until, new, Ordering::Relaxed, Ordering::Relaxed);
        won.ok()?;
        self.ejections.store(before.saturating_add(1), Ordering::Relaxed);
        Some(backoff)
    }
}

/// The weight of a measurement of this age.
fn weight(age: u64) -> f64 {
    (-(age as f64) / as_nanos(LATENCY_WINDOW) as f64).exp()
}

/// A time in nanoseconds. Never 0, which stands for never.
fn nanos(time: Timestamp) -> u64 {
    as_nanos(time.since(Timestamp::default())).max(1)
}

fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
