//! Either protocol on one connection, without I/O: bytes in, bytes to send out, and what was seen.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Order;
use super::http1::Http1;
use super::http2::Http2;

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        }
    }
}

/// One connection's state.
#[derive(Debug)]
pub(super) enum Wire {
    Http1(Http1),
    Http2(Box<Http2>),
}

impl Wire {
    /// A connection for one path, with no more than so many requests under way; writes what it
    /// begins with.
    pub(super) fn new(order: &Order, out: &mut Vec<u8>) -> Wire {
        match order.protocol {
            Protocol::Http1 => {
                Wire::Http1(Http1::new(&order.to.to_string(), &order.path, &order.accept))
            }
            Protocol::Http2 => Wire::Http2(Box::new(Http2::new(order, out))),
        }
    }

    /// Asks, at a moment from which its answer's latency counts.
    pub(super) fn request(&mut self, due: Instant, out: &mut Vec<u8>) {
        match self {
            Wire::Http1(wire) => wire.request(due, out),
            Wire::Http2(wire) => wire.request(due, out),
        }
    }

    pub(super) fn feed(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        seen: &mut Seen<'_>,
    ) -> anyhow::Result<()> {
        match self {
            Wire::Http1(wire) => wire.feed(input, out, seen),
            Wire::Http2(wire) => wire.feed(input, out, seen),
        }
    }
}

/// Looks at parts of bodies.
type Reader<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// What a piece of input showed.
#[derive(Default)]
pub(super) struct Seen<'a> {
    /// Heads of answers with status 200.
    pub(super) heads: usize,
    /// When the requests were due whose answers are whole.
    pub(super) done: Vec<Instant>,
    pub(super) failures: usize,
    pub(super) body_bytes: usize,
    /// Looks at bodies.
    pub(super) reader: Option<&'a mut Reader<'a>>,
}

impl Seen<'_> {
    pub(super) fn head(&mut self) {
        self.heads += 1;
    }

    pub(super) fn done(&mut self, due: Instant) {
        self.done.push(due);
    }

    pub(super) fn failed(&mut self) {
        self.failures += 1;
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.body_bytes += bytes.len();
        if let Some(reader) = &mut self.reader {
            reader(bytes);
        }
    }
}
