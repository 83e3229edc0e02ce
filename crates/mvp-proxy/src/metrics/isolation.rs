//! Counters of the measures that keep callers apart.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::register;

/// Counters of the measures that keep callers apart. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Isolation {
    /// Client connections that were closed because they reset too many requests.
    pub(crate) clients_ended: Counter,
    /// Upstream connections that were retired after too many resets.
    pub(crate) retired: Counter,
    /// Requests for which no upstream connection was free.
    pub(crate) overloaded: Counter,
    /// Requests that waited for their turn at a member, and those that were refused instead.
    pub(super) waited: Counter,
    pub(super) crowded: Counter,
    /// Responses 429 of members, which slow their users.
    pub(super) slowed: Counter,
    /// Refreshes that requests had to wait for.
    pub(super) delayed: Counter,
}

impl Isolation {
    pub(super) fn registered(registry: &mut Registry) -> Isolation {
        Isolation {
            clients_ended: register(
                registry,
                "mvp_client_connections_ended",
                "Client connections ended because they reset too many requests",
            ),
            retired: register(
                registry,
                "mvp_upstream_connections_retired",
                "Upstream connections that take no new requests after too many resets",
            ),
            overloaded: register(
                registry,
                "mvp_overloaded_requests",
                "Requests refused with 429 because no upstream connection was free",
            ),
            waited: register(
                registry,
                "mvp_peer_waits",
                "Requests that waited until fewer were in flight to their member",
            ),
            crowded: register(
                registry,
                "mvp_peer_refusals",
                "Requests refused with 429 because too many were in flight to their member",
            ),
            slowed: register(
                registry,
                "mvp_peer_slowdowns",
                "Responses 429 of members, after which fewer requests of the user are sent there",
            ),
            delayed: register(
                registry,
                "mvp_refreshes_delayed",
                "Refreshes that requests had to wait for because members are asked only so often",
            ),
        }
    }
}
