//! Metrics and the log line of a request that was served. Entry item: [`Requests::record`].

use http::StatusCode;
use http::request::Parts;
use mvp_core::decide::{Origin, Reason};
use mvp_core::{RequestInfo, Timestamp};
use mvp_net::ConnectionInfo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::register;

/// Metrics of requests, by outcome.
#[derive(Debug)]
pub(super) struct Requests {
    all: Family<DecisionLabels, Counter>,
    rerouted: Family<ReroutedLabels, Counter>,
    peer_errors: Family<PeerErrorLabels, Counter>,
    merged_hits: Counter,
    hop: Histogram,
    log_local: bool,
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

/// Who served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// Whether the request is always logged.
    fn is_notable(self) -> bool {
        matches!(self, ServedBy::Peer | ServedBy::AnyMember | ServedBy::Nobody)
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
        Requests {
            all: register(registry, "mvp_requests", "Requests by action, reason and status code"),
            rerouted: register(
                registry,
                "apiserver_rerouted_request",
                "Requests forwarded to a peer",
            ),
            peer_errors: register(
                registry,
                "apiserver_peer_proxy_errors",
                "Requests refused, by reason",
            ),
            merged_hits: register(
                registry,
                "aggregator_discovery_peer_aggregated_cache_hits",
                "Discovery requests answered for the whole cluster",
            ),
            hop,
            log_local,
        }
    }

    pub(super) fn record(&self, record: &Record<'_>, now: Timestamp) {
        let (action, reason) = (record.by.as_str(), record.reason.as_str());
        let code = record.status.as_u16();
        self.all.get_or_create(&DecisionLabels { action, reason, code }).inc();
        // Peers poll discovery every second. Their polls would outnumber the requests of users.
        let is_poll = !matches!(record.info, RequestInfo::Resource(_))
            && record.parts.extensions.get() == Some(&Origin::Peer);
        match record.by {
            ServedBy::Peer => {
                self.rerouted.get_or_create(&ReroutedLabels::of(record.info, code)).inc();
                self.hop.observe(now.since(record.arrived).as_secs_f64());
            }
            // Clients choose the names of unknown resources, so these must not become labels.
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
        if self.log_local || (record.by.is_notable() && !is_poll) {
            record.log(now);
        }
    }
}

impl ReroutedLabels {
    fn of(info: &RequestInfo<'_>, code: u16) -> ReroutedLabels {
        let (group, version, resource) = match info {
            RequestInfo::Resource(r) => (&*r.group, &*r.version, &*r.resource),
            _ => ("", "", ""),
        };
        ReroutedLabels {
            code,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        }
    }
}

impl Record<'_> {
    fn log(&self, now: Timestamp) {
        let parts = self.parts;
        let client = parts.extensions.get::<ConnectionInfo>().map(|info| info.remote().to_string());
        tracing::info!(
            method = %parts.method,
            path = parts.uri.path(),
            client,
            what = %self.info,
            action = self.by.as_str(),
            reason = self.reason.as_str(),
            member = self.member.unwrap_or_default(),
            code = self.status.as_u16(),
            milliseconds = u64::try_from(now.since(self.arrived).as_millis()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
