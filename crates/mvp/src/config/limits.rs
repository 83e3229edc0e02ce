//! The limits for clients. Entry: [`ClientLimits`].

use std::time::Duration;

use mvp_net::{ConnectionLimit, HandshakeLimit, Limits};
use mvp_proxy::PeerLimits;

use crate::cli::{Origins, ServeArgs};
use crate::mistake::Mistake;

/// The limits for clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLimits {
    /// The fraction of HTTP/2 requests that end their connection; 0 is off.
    pub goaway_chance: f64,
    /// The largest request line and headers, in bytes.
    pub request_header_bytes: usize,
    /// The most connections in total; if it is not given, as many as the file descriptors allow.
    pub connections: Option<usize>,
    /// The most connections from one IP address, if they are limited.
    pub connections_per_address: Option<usize>,
    /// The most TLS handshakes in progress, if they are limited.
    pub handshakes: Option<usize>,
    /// The time without a request after which a connection is closed.
    pub idle_timeout: Duration,
    /// The most open HTTP/2 streams of a connection, if it is not the default.
    pub streams: Option<u32>,
    /// The limits of requests in flight to one member.
    pub peers: PeerLimits,
}

impl ClientLimits {
    /// Logs all limits, 0 for those that are off.
    pub(crate) fn report(&self, descriptors: u64, max_connections: usize) {
        tracing::info!(
            descriptors,
            max_client_connections = max_connections,
            max_client_connections_per_address = self.connections_per_address.unwrap_or(0),
            max_request_header_bytes = self.request_header_bytes,
            goaway_chance = self.goaway_chance,
            max_client_handshakes = self.handshakes.unwrap_or(0),
            client_idle_seconds = self.idle_timeout.as_secs(),
            max_peer_requests = self.peers.requests,
            max_peer_watches = self.peers.watches,
            "limits"
        );
    }

    /// The limit of TLS handshakes in progress.
    pub(crate) fn handshakes(&self) -> HandshakeLimit {
        self.handshakes.map_or_else(HandshakeLimit::default, HandshakeLimit::new)
    }

    /// The limits of a listener. Listeners share those of connections and handshakes.
    pub(crate) fn of_listener(
        &self,
        connections: ConnectionLimit,
        handshakes: HandshakeLimit,
        grace: Duration,
    ) -> Limits {
        let usual = Limits::default();
        let idle_timeout = self.idle_timeout;
        let max_concurrent_streams = self.streams.unwrap_or(usual.max_concurrent_streams);
        Limits { grace, connections, handshakes, idle_timeout, max_concurrent_streams, ..usual }
    }

    pub(super) fn check(args: &ServeArgs, origins: &Origins) -> Result<ClientLimits, Mistake> {
        let per_address = args.max_client_connections_per_address;
        if let Some(total) = args.max_client_connections
            && per_address > total
        {
            let sentence = format!(
                "{per_address} is more than --max-client-connections={total}, the limit for all \
                 addresses together; lower this one, or raise --max-client-connections"
            );
            let name = origins.name("max-client-connections-per-address");
            return Err(Mistake::usage(name, sentence));
        }
        Ok(ClientLimits {
            goaway_chance: args.goaway_chance,
            request_header_bytes: args.max_request_header_bytes,
            connections: args.max_client_connections,
            connections_per_address: (per_address > 0).then_some(per_address),
            handshakes: Some(args.limits.max_client_handshakes).filter(|most| *most > 0),
            idle_timeout: args.limits.client_idle_timeout,
            streams: Some(args.limits.http2_max_streams_per_connection).filter(|most| *most > 0),
            peers: peers(args),
        })
    }
}

/// The limits of requests in flight to one member.
fn peers(args: &ServeArgs) -> PeerLimits {
    PeerLimits {
        requests: args.limits.max_peer_requests.unwrap_or(0),
        watches: args.limits.max_peer_watches.unwrap_or(0),
    }
}
