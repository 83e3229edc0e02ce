//! The limits for clients. Entry: [`ClientLimits`].

use std::time::Duration;

use mvp_core::discovery;
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
    /// The most bytes of a response that are buffered for a client.
    pub response_buffer: usize,
    /// The limits of requests in flight to one member.
    pub peers: PeerLimits,
    /// The limits of members' documents.
    pub documents: discovery::Limits,
    /// How often a second requests may make a member be asked what it serves.
    pub refreshes_per_second: u32,
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
            http2_max_streams_per_connection =
                self.streams.unwrap_or(Limits::default().max_concurrent_streams),
            max_response_buffer_bytes = self.response_buffer,
            max_peer_requests = self.peers.requests,
            max_peer_watches = self.peers.watches,
            max_document_bytes = self.documents.max_bytes,
            max_document_depth = self.documents.max_depth,
            max_refreshes_per_second = self.refreshes_per_second,
            "limits"
        );
    }

    /// The limits of all listeners together, with their counts.
    pub(crate) fn of_listeners(&self, max_connections: usize, grace: Duration) -> Limits {
        let usual = Limits::default();
        Limits {
            grace,
            connections: ConnectionLimit::new(max_connections, self.connections_per_address),
            handshakes: self.handshakes.map_or_else(HandshakeLimit::default, HandshakeLimit::new),
            idle_timeout: self.idle_timeout,
            max_concurrent_streams: self.streams.unwrap_or(usual.max_concurrent_streams),
            max_send_buffer: self.response_buffer,
            ..usual
        }
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
            response_buffer: args.limits.max_response_buffer_bytes,
            peers: peers(args),
            documents: discovery::Limits {
                max_bytes: args.limits.max_document_bytes,
                max_depth: args.limits.max_document_depth,
            },
            refreshes_per_second: args.limits.max_refreshes_per_second,
        })
    }
}

/// The limits of requests in flight to one member. A load balancer sends all its requests to members,
/// whose own queues know each user: by default it has no limits.
fn peers(args: &ServeArgs) -> PeerLimits {
    let usual = match args.local_server {
        Some(_) => PeerLimits::default(),
        None => PeerLimits::NONE,
    };
    PeerLimits {
        requests: args.limits.max_peer_requests.unwrap_or(usual.requests),
        watches: args.limits.max_peer_watches.unwrap_or(usual.watches),
    }
}
