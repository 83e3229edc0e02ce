//! What is counted, under Kubernetes' own names where it has them, and logged.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use http::StatusCode;
use http::request::Parts;
use mvp_core::decide::{Action, Decision, LocalHealth, Origin};
use mvp_core::{RequestInfo, Snapshot, Timestamp};
use mvp_net::ConnectionInfo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::data::refuse::described;
use crate::data::tunnel::Tunnels;
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

/// A request that is sent once more, to somebody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failover(&'static str);

impl Failover {
    /// After it came so far.
    pub(crate) fn after(stage: Stage) -> Failover {
        Failover(if stage.is_unprocessed() { "not-sent" } else { "sent" })
    }
}

/// A request that is passed on to a peer.
#[derive(Debug)]
pub(crate) struct PassedOn(Gauge);

impl Drop for PassedOn {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// How a request ended.
pub(crate) struct Outcome<'a> {
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) decision: &'a Decision<'a>,
    pub(crate) member: Option<&'a str>,
    pub(crate) status: StatusCode,
    pub(crate) arrived: Timestamp,
    pub(crate) parts: &'a Parts,
}

impl Metrics {
    /// Counts from zero. Requests that the local server answers are logged only if asked for.
    pub fn new(log_local: bool) -> Metrics {
        let mut registry = Registry::default();
        let requests = Family::<DecisionLabels, Counter>::default();
        registry.register(
            "mvp_requests",
            "Requests by decision, reason and status",
            requests.clone(),
        );
        let rerouted = Family::<ReroutedLabels, Counter>::default();
        registry.register(
            "apiserver_rerouted_request",
            "Requests that were passed on to a peer",
            rerouted.clone(),
        );
        let peer_errors = Family::<PeerErrorLabels, Counter>::default();
        registry.register(
            "apiserver_peer_proxy_errors",
            "Requests that no peer could serve",
            peer_errors.clone(),
        );
        let sync_errors = Family::<TypeLabels, Counter>::default();
        registry.register(
            "apiserver_peer_discovery_sync_errors",
            "Discovery documents that could not be had",
            sync_errors.clone(),
        );
        let merged_hits = Counter::default();
        registry.register(
            "aggregator_discovery_peer_aggregated_cache_hits",
            "Discovery requests that were answered for the whole cluster",
            merged_hits.clone(),
        );
        // Merged documents are made when something changes, never for a request.
        registry.register(
            "aggregator_discovery_peer_aggregated_cache_misses",
            "Discovery requests for which a document had to be merged first: none",
            Counter::<u64>::default(),
        );
        let hop = Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        registry.register(
            "mvp_hop_seconds",
            "Time to the response head of requests that were passed on to a peer",
            hop.clone(),
        );
        let in_flight = Gauge::default();
        registry.register(
            "mvp_in_flight",
            "Requests that are passed on to a peer right now, their responses not yet at an end",
            in_flight.clone(),
        );
        let tunnels = Gauge::default();
        registry.register(
            "mvp_tunnels",
            "Connections that were upgraded (exec, attach, port-forward, WebSocket) and are open",
            tunnels.clone(),
        );
        let view_age = Family::<MemberLabels, Gauge<f64, AtomicU64>>::default();
        registry.register(
            "mvp_view_age_seconds",
            "Seconds since a member last confirmed what it serves; -1 for never",
            view_age.clone(),
        );
        let failovers = Family::<FailoverLabels, Counter>::default();
        registry.register(
            "mvp_failovers",
            "Requests that were sent to another server after one gave no answer",
            failovers.clone(),
        );
        let over_budget = Counter::default();
        registry.register(
            "mvp_retry_budget_refusals",
            "Requests that were not sent to another server because too many were before",
            over_budget.clone(),
        );
        let ejections = Family::<MemberLabels, Counter>::default();
        registry.register(
            "mvp_ejections",
            "How often a member came to be asked last because it gave no answer",
            ejections.clone(),
        );
        let ejected = Family::<MemberLabels, Gauge>::default();
        registry.register(
            "mvp_ejected",
            "1 for a member that gave no answer, until it gives one",
            ejected.clone(),
        );
        let local_health = Family::<StateLabels, Gauge>::default();
        registry.register(
            "mvp_local_health",
            "1 for the state that the local server is in",
            local_health.clone(),
        );
        let isolation = Isolation::registered(&mut registry);
        Metrics {
            registry,
            requests,
            rerouted,
            peer_errors,
            sync_errors,
            merged_hits,
            hop,
            in_flight,
            tunnels,
            view_age,
            failovers,
            over_budget,
            ejections,
            ejected,
            local_health,
            isolation,
            log_local,
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

    /// A request is passed on until this is dropped.
    pub(crate) fn passed_on(&self) -> PassedOn {
        self.in_flight.inc();
        PassedOn(self.in_flight.clone())
    }

    /// Where tunnels are counted while they are open.
    pub(crate) fn tunnels(&self) -> Tunnels {
        Tunnels::counted_by(self.tunnels.clone())
    }

    /// Where it is counted what was done to keep callers apart.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation.clone()
    }

    /// A request got an answer, or none, from the server to which it failed over, if it did.
    pub(crate) fn failed_over(&self, failover: Option<Failover>, answered: bool) {
        if let Some(Failover(after)) = failover {
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

    /// Counts a request, and logs it unless it is everyday business.
    pub(crate) fn record(&self, outcome: &Outcome<'_>, now: Timestamp) {
        let code = outcome.status.as_u16();
        let action = name(outcome.decision.action);
        let reason = outcome.decision.reason.as_str();
        self.requests.get_or_create(&DecisionLabels { action, reason, code }).inc();
        // What peers ask each second would drown what users ask.
        let is_poll = !matches!(outcome.info, RequestInfo::Resource(_))
            && outcome.parts.extensions.get() == Some(&Origin::Peer);
        let (group, version, resource) = match outcome.info {
            RequestInfo::Resource(r) => (&*r.group, &*r.version, &*r.resource),
            _ => ("", "", ""),
        };
        match outcome.decision.action {
            Action::Peers(_) => {
                let (group, version, resource) =
                    (group.to_owned(), version.to_owned(), resource.to_owned());
                let labels = ReroutedLabels { code, group, version, resource };
                self.rerouted.get_or_create(&labels).inc();
                self.hop.observe(now.since(outcome.arrived).as_secs_f64());
            }
            // What nobody serves is named by clients: it must not make labels without end.
            Action::Refuse if !is_poll => {
                let labels = PeerErrorLabels {
                    r#type: reason,
                    group: String::new(),
                    version: String::new(),
                    resource: String::new(),
                };
                self.peer_errors.get_or_create(&labels).inc();
            }
            Action::Answer => {
                self.merged_hits.inc();
            }
            _ => {}
        }
        let everyday = matches!(
            outcome.decision.action,
            Action::Local { .. } | Action::AskLocal | Action::Answer | Action::PassNotFound
        );
        if (everyday || is_poll) && !self.log_local {
            return;
        }
        let parts = outcome.parts;
        let client = parts.extensions.get::<ConnectionInfo>().map(|info| info.remote().to_string());
        tracing::info!(
            method = %parts.method,
            path = parts.uri.path(),
            client,
            what = %described(outcome.info),
            action,
            reason,
            member = outcome.member.unwrap_or_default(),
            code,
            milliseconds = u64::try_from(now.since(outcome.arrived).as_millis()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

fn name(action: Action<'_>) -> &'static str {
    match action {
        Action::Answer => "answer",
        Action::Local { .. } => "local",
        Action::AskLocal => "ask-local",
        Action::AskAny => "ask-any",
        Action::Peers(_) => "peers",
        Action::PassNotFound => "pass-404",
        Action::Refuse => "refuse",
    }
}
