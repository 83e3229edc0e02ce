//! Metrics, under Kubernetes' own names where it has them. Entry item: [`Metrics`].
//!
//! - `requests`: how requests ended
//! - `averted`: false 404s that clients did not get
//! - `by_resource`: counters by resource, found without making their labels
//! - `line`, `caller`: the log line of a request, and its caller
//! - `callers`: who called which resource in the last hour
//! - `flow`: which member answered requests for which API
//! - `failover`: failovers, retry budget, ejections
//! - `isolation`: measures that keep callers apart
//! - `releases`: the release of each member

mod averted;
mod by_resource;
mod caller;
mod callers;
mod failover;
mod flow;
mod isolation;
mod line;
mod releases;
mod requests;

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use mvp_core::decide::LocalHealth;
use mvp_core::{Snapshot, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use crate::error::Stage;
pub use callers::{Callers, CallersReport, RecordedCaller, ResourceCallers};
use failover::Failover;
pub use flow::{Flow, FlowCount};
pub(crate) use isolation::Isolation;
use releases::Releases;
use requests::Requests;
pub(crate) use requests::{Record, ServedBy};

/// The metrics of the data path and the control loop.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    failover: Failover,
    isolation: Isolation,
    /// `None` if callers are not recorded.
    callers: Option<Callers>,
    /// `None` if the flow is not recorded.
    flow: Option<Flow>,
    sync_errors: Family<TypeLabels, Counter>,
    in_flight: Gauge,
    tunnels: Gauge,
    view_age: Family<MemberLabels, Gauge<f64, AtomicU64>>,
    releases: Releases,
    local_health: Family<StateLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabels {
    member: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// A guard that counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Forwarded(Gauge);

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The types of errors in Kubernetes' own metric.
const FETCH_DISCOVERY: TypeLabels = TypeLabels { r#type: "fetch_discovery" };
const LEASE_LIST: TypeLabels = TypeLabels { r#type: "lease_list" };
const HOSTPORT_RESOLUTION: TypeLabels = TypeLabels { r#type: "hostport_resolution" };

impl Metrics {
    /// Metrics that count from zero. With `log_local`, requests that the local server answers are
    /// logged too.
    pub fn new(log_local: bool) -> Metrics {
        let mut registry = Registry::default();
        let sync_errors: Family<TypeLabels, Counter> = register(
            &mut registry,
            "apiserver_peer_discovery_sync_errors",
            "Failures to find members or to fetch their discovery documents, by type",
        );
        for labels in [FETCH_DISCOVERY, LEASE_LIST, HOSTPORT_RESOLUTION] {
            drop(sync_errors.get_or_create(&labels));
        }
        Metrics {
            requests: Requests::registered(&mut registry, log_local),
            failover: Failover::registered(&mut registry),
            isolation: Isolation::registered(&mut registry),
            releases: Releases::registered(&mut registry),
            callers: None,
            flow: None,
            sync_errors,
            in_flight: register(
                &mut registry,
                "mvp_in_flight",
                "Requests being forwarded to peers",
            ),
            tunnels: register(
                &mut registry,
                "mvp_tunnels",
                "Open upgraded connections (exec, attach, port-forward, WebSocket)",
            ),
            view_age: register(
                &mut registry,
                "mvp_view_age_seconds",
                "Seconds since a member last confirmed what it serves; -1 for never",
            ),
            local_health: register(
                &mut registry,
                "mvp_local_health",
                "State of the local server: 1 for the current state, else 0",
            ),
            registry,
        }
    }

    /// Records callers, too.
    #[must_use]
    pub fn with_callers(self) -> Metrics {
        Metrics { callers: Some(Callers::default()), ..self }
    }

    /// The callers of the last hour; `None` if they are not recorded.
    pub fn callers(&self) -> Option<&Callers> {
        self.callers.as_ref()
    }

    /// Records which member answers requests for which API, too.
    #[must_use]
    pub fn with_flow(self) -> Metrics {
        Metrics { flow: Some(Flow::default()), ..self }
    }

    /// Which member answered requests for which API; `None` if that is not recorded.
    pub fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref()
    }

    /// Appends all metrics in the OpenMetrics text format.
    pub fn encode(&self, text: &mut String) {
        self.encode_open(text);
        // Writing to a string cannot fail.
        let _ = encode_eof(text);
    }

    /// Appends all metrics without the final `# EOF`, so that the caller can append its own.
    pub fn encode_open(&self, text: &mut String) {
        if encode_registry(text, &self.registry).is_err() {
            let _ = writeln!(text, "# the metrics could not be encoded");
        }
    }

    /// Counts a failed fetch of a discovery document.
    pub(crate) fn discovery_failed(&self) {
        self.sync_errors.get_or_create(&FETCH_DISCOVERY).inc();
    }

    /// Counts a refresh that requests had to wait for, because members are asked only so often.
    pub(crate) fn refresh_delayed(&self) {
        self.isolation.delayed.inc();
    }

    /// Counts a member without an address in a round of fetches.
    pub(crate) fn address_unknown(&self) {
        self.sync_errors.get_or_create(&HOSTPORT_RESOLUTION).inc();
    }

    /// Counts a failed list or watch of the Leases of members, for those that read them.
    pub fn lease_list_failed(&self) {
        self.sync_errors.get_or_create(&LEASE_LIST).inc();
    }

    /// Counts a discovery request for what the local server itself serves (`profile=nopeer`).
    pub(crate) fn nopeer_requested(&self) {
        self.requests.nopeer_requested();
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn forwarded(&self) -> Forwarded {
        self.in_flight.inc();
        Forwarded(self.in_flight.clone())
    }

    /// The number of open tunnels.
    pub(crate) fn tunnels(&self) -> Gauge {
        self.tunnels.clone()
    }

    /// The counters of the measures that keep callers apart.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation.clone()
    }

    /// Counts a request that waited for its turn at a member, and whether it came.
    pub(crate) fn took_turn(&self, entered: bool) {
        let Isolation { waited, crowded, .. } = &self.isolation;
        if entered {
            waited.inc()
        } else {
            crowded.inc()
        };
    }

    /// Counts a 429 of a member.
    pub(crate) fn slowed(&self) {
        self.isolation.slowed.inc();
    }

    /// Counts the outcome of a failover, if there was one: `after` is how the previous attempt
    /// failed.
    pub(crate) fn failed_over(&self, after: Option<Stage>, answered: bool) {
        if let Some(after) = after {
            self.failover.failed_over(after, answered);
        }
    }

    /// Counts a retry that the budget refused.
    pub(crate) fn over_budget(&self) {
        self.failover.over_budget();
    }

    /// Notes that a member was ejected or readmitted.
    pub(crate) fn ejected(&self, member: &str, ejected: bool) {
        self.failover.ejected(member, ejected);
    }

    /// Removes a former member from all labels. IDs may be new each time, so labels would
    /// otherwise grow without bound.
    pub(crate) fn forget(&self, member: &str) {
        let labels = MemberLabels { member: member.to_owned() };
        self.view_age.remove(&labels);
        self.failover.forget(&labels);
        self.releases.forget(member);
    }

    /// Sets the state of the local server.
    pub(crate) fn local_health(&self, health: LocalHealth) {
        let states = [
            ("ready", LocalHealth::Ready),
            ("unready", LocalHealth::Unready),
            ("unreachable", LocalHealth::Unreachable),
        ];
        for (state, is) in states {
            let gauge = self.local_health.get_or_create(&StateLabels { state });
            gauge.set(i64::from(is == health));
        }
    }

    /// Sets the release of each member, and the age of its view: that of its older half.
    pub(crate) fn observe_snapshot(&self, snapshot: &Snapshot, now: Timestamp) {
        self.releases.observe(snapshot);
        for member in snapshot.members() {
            let confirmed = [&member.view.api, &member.view.apis]
                .into_iter()
                .map(|seen| seen.as_ref().map(|seen| now.since(seen.confirmed).as_secs_f64()))
                .reduce(|api, apis| Some(api?.max(apis?)))
                .flatten();
            self.view_age
                .get_or_create(&MemberLabels { member: member.id.to_string() })
                .set(confirmed.unwrap_or(-1.0));
        }
    }

    /// Counts a request and its caller, and logs it if it is notable.
    pub(crate) fn record(&self, record: &Record<'_>, now: Timestamp) {
        if let Some(callers) = &self.callers {
            callers.record(record, now);
        }
        if let Some(flow) = &self.flow {
            flow.record(record);
        }
        self.requests.record(record, now);
    }
}

/// Registers a metric with its default value.
fn register<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_text_lacks_only_the_end_marker() {
        let metrics = Metrics::new(false);
        metrics.ejected("a", true);
        let (mut open, mut closed) = (String::new(), String::new());
        metrics.encode_open(&mut open);
        metrics.encode(&mut closed);
        assert!(open.contains("mvp_ejected{member=\"a\"} 1"), "{open}");
        assert_eq!(closed, open + "# EOF\n");
    }
}
