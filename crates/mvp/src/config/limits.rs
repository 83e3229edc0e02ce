//! How much clients may use. Entry: [`ClientLimits`].

use crate::cli::ServeArgs;

/// How much clients may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLimits {
    /// The fraction of HTTP/2 requests that end their connection.
    pub goaway_chance: f64,
    /// Bytes of a request's head.
    pub request_header_bytes: usize,
    /// Connections in total; as many as the descriptors allow where it is not given.
    pub connections: Option<usize>,
    /// Connections from one IP address, if they are bounded.
    pub connections_per_address: Option<usize>,
}

impl ClientLimits {
    pub(super) fn new(args: &ServeArgs) -> ClientLimits {
        let per_address = args.max_client_connections_per_address;
        ClientLimits {
            goaway_chance: args.goaway_chance,
            request_header_bytes: args.max_request_header_bytes,
            connections: args.max_client_connections,
            connections_per_address: (per_address > 0).then_some(per_address),
        }
    }
}
