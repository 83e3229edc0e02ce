//! The limits for clients. Entry: [`ClientLimits`].

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
}

impl ClientLimits {
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
        })
    }
}
