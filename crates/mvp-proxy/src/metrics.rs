//! What is counted, under Kubernetes' own names where it has them, and logged.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use http::StatusCode;
use mvp_core::decide::{Action, Decision};
use mvp_core::{RequestInfo, Snapshot, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::data::refuse::described;

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<DecisionLabels, Counter>,
    rerouted: Family<ReroutedLabels, Counter>,
    peer_errors: Family<PeerErrorLabels, Counter>,
    sync_errors: Counter,
    view_age: Family<MemberLabels, Gauge<f64, AtomicU64>>,
    log_local: bool,
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

/// How a request ended.
pub(crate) struct Outcome<'a> {
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) decision: &'a Decision<'a>,
    pub(crate) member: Option<&'a str>,
    pub(crate) status: StatusCode,
    pub(crate) arrived: Timestamp,
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
        let sync_errors = Counter::default();
        registry.register(
            "apiserver_peer_discovery_sync_errors",
            "Discovery documents that could not be had",
            sync_errors.clone(),
        );
        let view_age = Family::<MemberLabels, Gauge<f64, AtomicU64>>::default();
        registry.register(
            "mvp_view_age_seconds",
            "Seconds since a member last confirmed what it serves; -1 for never",
            view_age.clone(),
        );
        Metrics { registry, requests, rerouted, peer_errors, sync_errors, view_age, log_local }
    }

    /// All of it, as text.
    pub fn encode(&self, text: &mut String) {
        if encode(text, &self.registry).is_err() {
            let _ = writeln!(text, "# the metrics could not be written");
        }
    }

    pub(crate) fn discovery_failed(&self) {
        self.sync_errors.inc();
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
            }
            // What nobody serves is named by clients: it must not make labels without end.
            Action::Refuse => {
                let labels = PeerErrorLabels {
                    r#type: reason,
                    group: String::new(),
                    version: String::new(),
                    resource: String::new(),
                };
                self.peer_errors.get_or_create(&labels).inc();
            }
            _ => {}
        }
        let everyday = matches!(
            outcome.decision.action,
            Action::Local { .. } | Action::AskLocal | Action::Answer | Action::PassNotFound
        );
        if everyday && !self.log_local {
            return;
        }
        tracing::info!(
            what = %described(outcome.info),
            action,
            reason,
            member = outcome.member.unwrap_or_default(),
            code,
            milliseconds = now.since(outcome.arrived).as_millis(),
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
