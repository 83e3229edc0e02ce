//! Metrics of a request that was served. Entry item: [`Requests::record`].

use std::fmt;

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use mvp_core::decide::{Origin, Reason};
use mvp_core::{RequestInfo, Snapshot, Timestamp};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::averted::{self, Averted};
use super::by_resource::ByResource;
use super::line::RequestLog;
use super::register;
use crate::identity::Identity;

/// Metrics of requests, by outcome.
#[derive(Debug)]
pub(super) struct Requests {
    all: Family<DecisionLabels, Counter>,
    rerouted: Family<ReroutedLabels, Counter>,
    rerouted_known: ByResource,
    refusals: Family<RefusalLabels, Counter>,
    peer_errors: Family<PeerErrorLabels, Counter>,
    averted: Averted,
    merged_hits: Counter,
    nopeer: Counter,
    hop: Histogram,
    log: RequestLog,
}

/// How a request ended.
pub(crate) struct Record<'a> {
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) by: ServedBy,
    pub(crate) reason: Reason,
    /// The member that responded.
    pub(crate) member: Option<&'a str>,
    /// The members because of which the request was refused.
    pub(crate) at_fault: &'a [String],
    /// Whether the local server sent a 404 that was withheld.
    pub(crate) local_denied: bool,
    /// The snapshot that the request was decided by.
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) identity: &'a Identity,
    pub(crate) status: StatusCode,
    pub(crate) arrived: Timestamp,
    pub(crate) parts: &'a Parts,
    /// The headers of the response.
    pub(crate) response: &'a HeaderMap,
}

/// Who served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ServedBy {
    /// This process, from the snapshot.
    Snapshot,
    /// The local server.
    Local,
    /// The local server, although no member is known to serve the request.
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
    pub(crate) fn as_str(self) -> &'static str {
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
}

/// Hashed for each request: numbers, not texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    action: ServedBy,
    reason: ReasonLabel,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReasonLabel(Reason);

impl EncodeLabelValue for ReasonLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.0.as_str(), encoder)
    }
}

impl EncodeLabelValue for ServedBy {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReroutedLabels {
    code: u16,
    group: String,
    version: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerErrorLabels {
    r#type: &'static str,
    group: String,
    version: String,
    resource: String,
}

impl Requests {
    pub(super) fn registered(registry: &mut Registry, log_local: bool) -> Requests {
        // Merged documents are built when something changes, never for a request.
        let _: Counter = register(
            registry,
            "aggregator_discovery_peer_aggregated_cache_misses",
            "Discovery requests that had to wait for a merge; always 0",
        );
        let hop = Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let help = "Seconds from the arrival of a request to the response head of a peer";
        registry.register("mvp_hop_seconds", help, hop.clone());
        let refusals: Family<RefusalLabels, Counter> =
            register(registry, "mvp_refusals", "Requests refused with 503, by reason");
        // From 0 on: Prometheus does not see the increase of a counter that begins with 1.
        for reason in Reason::REFUSALS {
            drop(refusals.get_or_create(&RefusalLabels { reason: reason.as_str() }));
        }
        Requests {
            all: register(registry, "mvp_requests", "Requests by action, reason and status code"),
            rerouted: register(
                registry,
                "apiserver_rerouted_request",
                "Requests forwarded to a peer",
            ),
            rerouted_known: ByResource::default(),
            refusals,
            peer_errors: register(
                registry,
                "apiserver_peer_proxy_errors",
                "Requests for which no peer that serves them could be reached, by type",
            ),
            averted: Averted::registered(registry),
            nopeer: register(
                registry,
                "aggregator_discovery_nopeer_requests",
                "Discovery requests for what the local server itself serves (profile=nopeer)",
            ),
            merged_hits: register(
                registry,
                "aggregator_discovery_peer_aggregated_cache_hits",
                "Discovery requests answered for the whole cluster",
            ),
            hop,
            log: RequestLog::new(log_local),
        }
    }

    pub(super) fn nopeer_requested(&self) {
        self.nopeer.inc();
    }

    pub(super) fn record(&self, record: &Record<'_>, now: Timestamp) {
        let code = record.status.as_u16();
        let labels = DecisionLabels { action: record.by, reason: ReasonLabel(record.reason), code };
        self.all.get_or_create(&labels).inc();
        // Peers poll discovery every second. Their polls would outnumber the requests of users.
        let is_poll = !matches!(record.info, RequestInfo::Resource(_))
            && record.parts.extensions.get() == Some(&Origin::Peer);
        match record.by {
            ServedBy::Peer => {
                self.count_rerouted(record.info, code);
                self.hop.observe(now.since(record.arrived).as_secs_f64());
            }
            ServedBy::Nobody if !is_poll => {
                let reason = record.reason.as_str();
                self.refusals.get_or_create(&RefusalLabels { reason }).inc();
                if record.reason == Reason::NobodyReachable {
                    self.peer_errors.get_or_create(&PeerErrorLabels::of(record)).inc();
                }
            }
            ServedBy::Snapshot => {
                self.merged_hits.inc();
            }
            _ => {}
        }
        if averted::is_averted(record) {
            self.averted.count(listed_labels(record));
        }
        self.log.write(record, is_poll, now);
    }
}

impl Requests {
    fn count_rerouted(&self, info: &RequestInfo<'_>, code: u16) {
        let (group, version, resource) = resource_labels(info);
        let make = || {
            let labels = ReroutedLabels::of(info, code);
            Some(self.rerouted.get_or_create_owned(&labels))
        };
        if let Some(count) = self.rerouted_known.get((group, version, resource, code), make) {
            count.inc();
        }
    }
}

/// The labels of a resource that some member serves. Clients choose the names of other resources, so
/// those must not become labels.
fn resource_labels<'a>(info: &'a RequestInfo<'_>) -> (&'a str, &'a str, &'a str) {
    match info {
        RequestInfo::Resource(r) => (&*r.group, &*r.version, &*r.resource),
        _ => ("", "", ""),
    }
}

/// The labels of any resource; empty if no member lists it.
pub(super) fn listed_labels<'a>(record: &'a Record<'_>) -> (&'a str, &'a str, &'a str) {
    let (group, version, resource) = resource_labels(record.info);
    match record.snapshot.listing(group, version, resource).next() {
        Some(_) => (group, version, resource),
        None => ("", "", ""),
    }
}

impl PeerErrorLabels {
    fn of(record: &Record<'_>) -> PeerErrorLabels {
        // With `--servers`, a resource that no member lists can have this reason, too.
        let (group, version, resource) = listed_labels(record);
        // Kubernetes' own types: no address is known, or no connection could be made.
        let r#type = match record.at_fault {
            [] => "endpoint_resolution",
            _ => "proxy_transport",
        };
        PeerErrorLabels {
            r#type,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        }
    }
}

impl ReroutedLabels {
    fn of(info: &RequestInfo<'_>, code: u16) -> ReroutedLabels {
        let (group, version, resource) = resource_labels(info);
        ReroutedLabels {
            code,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        }
    }
}
