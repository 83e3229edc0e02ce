//! The flags of limits. Entry: [`LimitArgs`].

use std::time::Duration;

use clap::Args;

use super::{duration, limit_values, values};

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
    /// Maximum number of bytes of a response that are buffered for a client that reads slowly, for each
    /// HTTP/2 stream, 16384 to 16777216. Then its server has to wait, nobody else.
    #[arg(long, value_name = "BYTES", default_value = "65536")]
    #[arg(help_heading = LIMITS, value_parser = limit_values::response_buffer)]
    pub max_response_buffer_bytes: usize,
    /// Maximum number of requests in flight to one member, 0 for no limit; three quarters of it for one
    /// user. At the limit, users take turns: a request waits for up to a second, then it gets 429.
    /// system:masters never wait, and system:nodes have another quarter [default: 2000; with --servers
    /// 0].
    #[arg(long, value_name = "NUMBER", value_parser = values::peer_requests)]
    #[arg(help_heading = LIMITS)]
    pub max_peer_requests: Option<usize>,
    /// The same for watches, and for other requests that may last, such as logs that are followed
    /// [default: 100000; with --servers 0].
    #[arg(long, value_name = "NUMBER", value_parser = values::peer_requests)]
    #[arg(help_heading = LIMITS)]
    pub max_peer_watches: Option<usize>,
    /// Maximum size of a document in which a member says what it serves, 1048576 to 1073741824. A larger
    /// one is refused: the last known one stays in use.
    #[arg(long, value_name = "BYTES", default_value = "33554432")]
    #[arg(help_heading = LIMITS, value_parser = limit_values::document_bytes)]
    pub max_document_bytes: usize,
    /// The same for the depth of nesting in it, 16 to 100.
    #[arg(long, value_name = "NUMBER", default_value = "64")]
    #[arg(help_heading = LIMITS, value_parser = limit_values::document_depth)]
    pub max_document_depth: usize,
    /// How often a second requests can make mvp ask a member what it serves, 1 to 1000, besides
    /// --refresh-interval. Requests that need it sooner wait, and share the answer.
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    #[arg(help_heading = LIMITS, value_parser = limit_values::refreshes)]
    pub max_refreshes_per_second: u32,
}
