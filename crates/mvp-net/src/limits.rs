//! How much a client may ask of the listener, in time and in memory. Entry: [`Limits`].

use std::time::Duration;

use tokio::time::Instant;

use crate::ConnectionLimit;

/// Bounds of [`serve`](crate::serve()). The defaults are kube-apiserver's where it has one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// HTTP/1.1: from the end of the handshake, later from the first byte of a request, to the end
    /// of its head. HTTP/2: from the end of the handshake to the end of the preface.
    pub header_read_timeout: Duration,
    /// A connection without a request for this long (at most twice this long) is closed.
    pub idle_timeout: Duration,
    /// Request line and headers together; some slack for framing comes on top, as in Go. HTTP/1.1
    /// also buffers up to this much of a response to a slow reader.
    pub max_header_bytes: u32,
    /// How many headers an HTTP/1.1 request may have.
    pub max_headers: usize,
    /// Open HTTP/2 streams a connection.
    pub max_concurrent_streams: u32,
    /// What a client may send on an HTTP/2 stream before it is read. The window of the connection
    /// is this times the streams, so that slow streams never stall the others.
    pub stream_window: u32,
    /// What is buffered of a response on an HTTP/2 stream.
    pub max_send_buffer: usize,
    /// HTTP/2 PING this often; none: never.
    pub ping_interval: Option<Duration>,
    /// A PING unanswered for this long ends the connection.
    pub ping_timeout: Duration,
    /// How many connections clients may have open.
    pub connections: ConnectionLimit,
    /// After the call to end: how long requests may go on before they are cut.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            max_header_bytes: 1 << 20,
            max_headers: 1024,
            max_concurrent_streams: 250,
            stream_window: 128 << 10,
            max_send_buffer: 64 << 10,
            ping_interval: Some(Duration::from_secs(30)),
            ping_timeout: Duration::from_secs(15),
            connections: ConnectionLimit::default(),
            grace: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// What a head of exactly `max_header_bytes` may have around it.
    const HEADER_SLACK: u32 = 4096;

    /// HTTP/1.1's buffer has a least size, below which hyper panics.
    const LEAST_BUFFER: usize = 8192;

    /// RFC 9113: windows are below 2^31.
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

/// The moment after `pause`, which may be as long as one likes: "never" is a year from now.
pub(crate) fn deadline(pause: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + pause.min(YEAR)
}
