//! What is counted, under Kubernetes' own names where it has them, and logged.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use http::StatusCode;
use http::request::Parts;
use mvp_core::decide::{LocalHealth, Origin, Reason};
use mvp_core::{RequestInfo, Snapshot, Timestamp};
use mvp_net::ConnectionInfo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::error::Stage;

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<DecisionLabels, Counter>,
    rerouted: Family<ReroutedLabels, Counter>,
    peer_errors: Family<PeerErrorLabels, Counter>,
    sync_errors: Family<TypeLabels, Counter>,
    merged_hits: Counter,
    hop: Histogram,
    in_flight: Gauge,
    tunnels: Gauge,
    view_age: Family<MemberLabels, Gauge<f64, AtomicU64>>,
    failovers: Family<FailoverLabels, Counter>,
    over_budget: Counter,
    ejections: Family<MemberLabels, Counter>,
    ejected: Family<MemberLabels, Gauge>,
    local_health: Family<StateLabels, Gauge>,
    isolation: Isolation,
    log_local: bool,
}

/// What was done to keep callers apart. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Isolation {
    /// Client connections that were ended for the requests that they reset.
    pub(crate) clients_ended: Counter,
    /// Upstream connections that got no new requests after too many resets.
    pub(crate) retired: Counter,
    /// Requests for which there was no upstream connection to be had.
    pub(crate) overloaded: Counter,
}

impl Isolation {
    fn registered(registry: &mut Registry) -> Isolation {
        let isolation = Isolation::default();
        registry.register(
            "mvp_client_connections_ended",
            "Client connections ended because they reset too many requests",
            isolation.clients_ended.clone(),
        );
        registry.register(
            "mvp_upstream_connections_retired",
            "Upstream connections that take no new requests after too many resets",
            isolation.retired.clone(),
        );
        registry.register(
            "mvp_overloaded_requests",
            "Requests refused with 429 because no upstream connection was free",
            isolation.overloaded.clone(),
        );
        isolation
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    action: &'static str,
    reason: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReroutedLabels {
    code: u16,
    group: String,
    version: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerErrorLabels {
    r#type: &'static str,
    group: String,
    version: String,
    resource: String,
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
struct FailoverLabels {
    after: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// A request that is being forwarded to a peer.
#[derive(Debug)]
pub(crate) struct Forwarded(Gauge);

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Who served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// We did, from the snapshot.
    Snapshot,
    /// The local server.
    Local,
    /// The local server, though nobody is known to serve the request.
    AskedLocal,
    /// A peer that serves it.
    Peer,
    /// Any member, because there is no local server.
    AnyMember,
    /// A member with a 404 that all members confirmed.
    Confirmed,
    /// Nobody: it was refused.
    Nobody,
}

impl ServedBy {
    /// The value of the label `action`.
    fn as_str(self) -> &'static str {
        match self {
            ServedBy::Snapshot => "answer",
            ServedBy::Local => "local",
            ServedBy::AskedLocal => "ask-local",
            ServedBy::Peer => "peers",
            ServedBy::AnyMember => "ask-any",
            ServedBy::Confirmed => "pass-404",
            ServedBy::Nobody => "refuse",
        }
    }

    /// Whether the request is worth a line in the log: whatever the local server did not answer.
    fn is_notable(self) -> bool {
        matches!(self, ServedBy::Peer | ServedBy::AnyMember | ServedBy::Nobody)
    }
}

/// How a request ended.
pub(crate) struct Record<'a> {
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) by: ServedBy,
    pub(crate) reason: Reason,
    pub(crate) member: Option<&'a str>,
    pub(crate) status: StatusCode,
    pub(crate) arrived: Timestamp,
    pub(crate) parts: &'a Parts,
}

impl Metrics {
    /// Metrics that count from zero. With `log_local`, requests that the local server answers are
    /// logged too.
    pub fn new(log_local: bool) -> Metrics {
        let mut registry = Registry::default();
        // Merged documents are made when something changes, never for a request.
        let _: Counter = register(
            &mut registry,
            "aggregator_discovery_peer_aggregated_cache_misses",
            "Discovery requests that had to wait for a merge; always 0",
        );
        let hop = Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let help = "Seconds from the arrival of a request to the response head of a peer";
        registry.register("mvp_hop_seconds", help, hop.clone());
        let isolation = Isolation::registered(&mut registry);
        let local_health = register(
            &mut registry,
            "mvp_local_health",
            "State of the local server: 1 for the current state, else 0",
        );
        Metrics {
            requests: register(
                &mut registry,
                "mvp_requests",
                "Requests by action, reason and status code",
            ),
            rerouted: register(
                &mut registry,
                "apiserver_rerouted_request",
                "Requests forwarded to a peer",
            ),
            peer_errors: register(
                &mut registry,
                "apiserver_peer_proxy_errors",
                "Requests refused, by reason",
            ),
            sync_errors: register(
                &mut registry,
                "apiserver_peer_discovery_sync_errors",
                "Failed fetches of discovery documents",
            ),
            merged_hits: register(
                &mut registry,
                "aggregator_discovery_peer_aggregated_cache_hits",
                "Discovery requests answered for the whole cluster",
            ),
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
            failovers: register(
                &mut registry,
                "mvp_failovers",
                "Requests sent to another server after a failure",
            ),
            over_budget: register(
                &mut registry,
                "mvp_retry_budget_refusals",
                "Retries refused because the retry budget was empty",
            ),
            ejections: register(
                &mut registry,
                "mvp_ejections",
                "Ejections of a member after failed requests",
            ),
            ejected: register(&mut registry, "mvp_ejected", "1 while a member is ejected, else 0"),
            local_health,
            hop,
            isolation,
            log_local,
            registry,
        }
    }

    /// All of it, as text.
    pub fn encode(&self, text: &mut String) {
        self.encode_beside(text, &Registry::default());
    }

    /// All of it, and what others count beside it, as text.
    pub fn encode_beside(&self, text: &mut String, others: &Registry) {
        let written = encode_registry(text, &self.registry).and_then(|()| encode(text, others));
        if written.is_err() {
            let _ = writeln!(text, "# the metrics could not be written");
        }
    }

    pub(crate) fn discovery_failed(&self) {
        self.sync_errors.get_or_create(&TypeLabels { r#type: "fetch" }).inc();
    }

    /// Counts a request as in flight until this is dropped.
    pub(crate) fn forwarded(&self) -> Forwarded {
        self.in_flight.inc();
        Forwarded(self.in_flight.clone())
    }

    /// The number of open tunnels.
    pub(crate) fn tunnels(&self) -> Gauge {
        self.tunnels.clone()
    }

    /// Where it is counted what was done to keep callers apart.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation.clone()
    }

    /// Counts the outcome of a failover, if there was one: `after` is how the server before failed.
    pub(crate) fn failed_over(&self, after: Option<Stage>, answered: bool) {
        if let Some(stage) = after {
            let after = if stage.is_unprocessed() { "not-sent" } else { "sent" };
            let outcome = if answered { "answered" } else { "failed" };
            self.failovers.get_or_create(&FailoverLabels { after, outcome }).inc();
        }
    }

    pub(crate) fn over_budget(&self) {
        self.over_budget.inc();
    }

    /// A member comes last from now on, or does not any more.
    pub(crate) fn ejected(&self, member: &str, ejected: bool) {
        let labels = MemberLabels { member: member.to_owned() };
        if ejected {
            self.ejections.get_or_create(&labels).inc();
        }
        self.ejected.get_or_create(&labels).set(i64::from(ejected));
    }

    /// This member is one no more: its IDs may be new each time, and must not make labels without end.
    pub(crate) fn forget(&self, member: &str) {
        let labels = MemberLabels { member: member.to_owned() };
        self.view_age.remove(&labels);
        self.ejections.remove(&labels);
        self.ejected.remove(&labels);
    }

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

    pub(crate) fn observe_snapshot(&self, snapshot: &Snapshot, now: Timestamp) {
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

    /// Counts a request, and logs it if it is notable.
    pub(crate) fn record(&self, outcome: &Record<'_>, now: Timestamp) {
        let code = outcome.status.as_u16();
        let action = outcome.by.as_str();
        let reason = outcome.reason.as_str();
        self.requests.get_or_create(&DecisionLabels { action, reason, code }).inc();
        // What peers ask each second would drown what users ask.
        let is_poll = !matches!(outcome.info, RequestInfo::Resource(_))
            && outcome.parts.extensions.get() == Some(&Origin::Peer);
        let (group, version, resource) = match outcome.info {
            RequestInfo::Resource(r) => (&*r.group, &*r.version, &*r.resource),
            _ => ("", "", ""),
        };
        match outcome.by {
            ServedBy::Peer => {
                let (group, version, resource) =
                    (group.to_owned(), version.to_owned(), resource.to_owned());
                let labels = ReroutedLabels { code, group, version, resource };
                self.rerouted.get_or_create(&labels).inc();
                self.hop.observe(now.since(outcome.arrived).as_secs_f64());
            }
            // What nobody serves is named by clients: it must not make labels without end.
            ServedBy::Nobody if !is_poll => {
                let labels = PeerErrorLabels {
                    r#type: reason,
                    group: String::new(),
                    version: String::new(),
                    resource: String::new(),
                };
                self.peer_errors.get_or_create(&labels).inc();
            }
            ServedBy::Snapshot => {
                self.merged_hits.inc();
            }
            _ => {}
        }
        if (is_poll || !outcome.by.is_notable()) && !self.log_local {
            return;
        }
        let parts = outcome.parts;
        let client = parts.extensions.get::<ConnectionInfo>().map(|info| info.remote().to_string());
        tracing::info!(
            method = %parts.method,
            path = parts.uri.path(),
            client,
            what = %outcome.info,
            action,
            reason,
            member = outcome.member.unwrap_or_default(),
            code,
            milliseconds = u64::try_from(now.since(outcome.arrived).as_millis()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

/// A metric of its default value, under this name.
fn register<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
