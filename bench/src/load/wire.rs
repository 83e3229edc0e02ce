//! Either protocol on one connection, without I/O: input bytes in, output bytes and results out.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Order;
use super::http1::Http1;
use super::http2::Http2;

/// The protocol of a client.
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

/// The state of one connection.
#[derive(Debug)]
pub(super) enum Wire {
    Http1(Http1),
    Http2(Box<Http2>),
}

impl Wire {
    /// A connection for one path, with at most this many requests in flight. It writes the
    /// connection preface.
    pub(super) fn new(order: &Order, out: &mut Vec<u8>) -> Wire {
        match order.protocol {
            Protocol::Http1 => {
                Wire::Http1(Http1::new(&order.to.to_string(), &order.path, &order.accept))
            }
            Protocol::Http2 => Wire::Http2(Box::new(Http2::new(order, out))),
        }
    }

    /// Sends a request. Its latency counts from this moment.
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

/// A callback for parts of response bodies.
type Reader<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// The results of a piece of input.
#[derive(Default)]
pub(super) struct Seen<'a> {
    /// The number of response heads with status 200.
    pub(super) heads: usize,
    /// The due times of requests whose responses are complete.
    pub(super) done: Vec<Instant>,
    pub(super) failures: usize,
    pub(super) body_bytes: usize,
    /// The callback for bodies.
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
