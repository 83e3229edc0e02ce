//! The flags of limits. Entry: [`LimitArgs`].

use std::time::Duration;

use clap::Args;

use super::{duration, values};

const LIMITS: &str = "Limits";

/// The flags of limits that `mvp serve` shares between all clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitArgs {
    /// Maximum number of TLS handshakes with clients in progress, 0 for no limit; for more,
    /// the oldest connection without a request is closed, or else the new one.
    #[arg(long, value_name = "NUMBER", default_value = "4096")]
    #[arg(help_heading = LIMITS, value_parser = values::handshakes)]
    pub max_client_handshakes: usize,
    /// Time without a request after which the connection of a client is closed; at most twice this
    /// long.
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = duration::client_idle)]
    #[arg(help_heading = LIMITS)]
    pub client_idle_timeout: Duration,
    /// Maximum number of open HTTP/2 streams of a client connection, 0 for the default; a client
    /// waits, or opens another connection [default: 250].
    #[arg(long, value_name = "NUMBER", default_value = "0", hide_default_value = true)]
    #[arg(help_heading = LIMITS, value_parser = values::streams)]
    pub http2_max_streams_per_connection: u32,
    /// Maximum number of requests in flight to one member, 0 for no limit. At the limit, users take
    /// turns: a request waits for up to a second, then it gets 429. system:masters never wait, and
    /// system:nodes have another quarter [default: 0].
    #[arg(long, value_name = "NUMBER", value_parser = values::peer_requests)]
    #[arg(help_heading = LIMITS)]
    pub max_peer_requests: Option<usize>,
    /// The same for watches, and for other requests that may last, such as logs that are followed
    /// [default: 0].
    #[arg(long, value_name = "NUMBER", value_parser = values::peer_requests)]
    #[arg(help_heading = LIMITS)]
    pub max_peer_watches: Option<usize>,
}
