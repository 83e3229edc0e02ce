//! Limits of time and memory for clients of a listener. Entry: [`Limits`].

use std::time::Duration;

use tokio::time::Instant;

use crate::{ClientErrors, ClientWaits, ConnectionLimit, HandshakeLimit};

/// The limits of [`serve`](crate::serve()). The defaults are kube-apiserver's where it has them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The time from accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// HTTP/1.1: the time from the end of the handshake, later from the first byte of a request, to
    /// the end of its head. HTTP/2: the time from the end of the handshake to the end of the preface.
    pub header_read_timeout: Duration,
    /// The time without a request after which a connection is closed; at most twice this long.
    pub idle_timeout: Duration,
    /// The largest request line and headers together; some slack for framing is added, as in Go.
    /// HTTP/1.1 also buffers up to this much of a response for a slow reader.
    pub max_header_bytes: u32,
    /// The most headers of an HTTP/1.1 request.
    pub max_headers: usize,
    /// The most open HTTP/2 streams of a connection.
    pub max_concurrent_streams: u32,
    /// The flow-control window of an HTTP/2 stream. The window of the connection is this times the
    /// streams, so that slow streams never stall the others.
    pub stream_window: u32,
    /// The most bytes of a response that are buffered for an HTTP/2 stream.
    pub max_send_buffer: usize,
    /// The interval of HTTP/2 PINGs; none if `None`.
    pub ping_interval: Option<Duration>,
    /// The time after which an unanswered PING ends the connection.
    pub ping_timeout: Duration,
    /// The limit of client connections.
    pub connections: ConnectionLimit,
    /// The limit of TLS handshakes in progress.
    pub handshakes: HandshakeLimit,
    /// Counts what clients got wrong.
    pub errors: ClientErrors,
    /// Counts how often a connection reaches one of its own limits.
    pub waits: ClientWaits,
    /// The longest time of the drain, after which requests are cut.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            max_header_bytes: 1 << 20,
            max_headers: 1152,
            max_concurrent_streams: 250,
            stream_window: 128 << 10,
            max_send_buffer: 64 << 10,
            ping_interval: Some(Duration::from_secs(30)),
            ping_timeout: Duration::from_secs(15),
            connections: ConnectionLimit::default(),
            handshakes: HandshakeLimit::default(),
            errors: ClientErrors::default(),
            waits: ClientWaits::default(),
            grace: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// The framing around a head of exactly `max_header_bytes`.
    const HEADER_SLACK: u32 = 4096;

    /// The smallest buffer for HTTP/1.1; hyper panics below it.
    const LEAST_BUFFER: usize = 8192;

    /// The largest window of RFC 9113.
    const GREATEST_WINDOW: u32 = (1 << 31) - 1;

    pub(crate) fn head_bytes(&self) -> u32 {
        self.max_header_bytes.saturating_add(Self::HEADER_SLACK)
    }

    pub(crate) fn http1_buffer(&self) -> usize {
        usize::try_from(self.head_bytes()).unwrap_or(usize::MAX).max(Self::LEAST_BUFFER)
    }

    pub(crate) fn stream_window(&self) -> u32 {
        self.stream_window.min(Self::GREATEST_WINDOW)
    }

    pub(crate) fn connection_window(&self) -> u32 {
        self.stream_window.saturating_mul(self.max_concurrent_streams).min(Self::GREATEST_WINDOW)
    }
}

/// The time after `pause`, at most a year from now.
pub(crate) fn deadline(pause: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + pause.min(YEAR)
}
