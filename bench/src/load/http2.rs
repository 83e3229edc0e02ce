//! The HTTP/2 subset of the load: the same GET repeatedly, responses counted and discarded. A
//! client library would cost more than the proxies under test and slow them down.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use anyhow::{bail, ensure};

use super::Order;
use super::wire::Seen;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The limits of Go's client, which most Kubernetes clients use.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// `:status: 200` and `:status: 304` in the static table of HPACK.
const OK: u8 = 0x88;
const NOT_MODIFIED: u8 = 0x8b;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Http2 {
    /// The header block of every request.
    block: Vec<u8>,
    /// The expected status, as one byte.
    right: u8,
    next_stream: u32,
    open: HashMap<u32, Open>,
    /// Requests beyond `most_open`, waiting.
    waiting: VecDeque<Instant>,
    most_open: usize,
    frame: Frame,
    /// The payload of a frame that is not DATA.
    payload: Vec<u8>,
    /// Received since the last WINDOW_UPDATE.
    received: u32,
}

#[derive(Debug)]
struct Open {
    due: Instant,
    received: u32,
}

/// The frame that is being read.
#[derive(Debug, Default)]
struct Frame {
    head: Vec<u8>,
    left: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Http2 {
    /// Writes the connection preface.
    pub(super) fn new(order: &Order, out: &mut Vec<u8>) -> Http2 {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        // No dynamic table: then a status of 200 is always the same byte. No push.
        for (setting, value) in [(1u16, 0u32), (2, 0), (4, STREAM_WINDOW)] {
            settings.extend_from_slice(&setting.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        write_frame(out, SETTINGS, 0, 0, &settings);
        write_frame(out, WINDOW_UPDATE, 0, 0, &(CONNECTION_WINDOW - 65_535).to_be_bytes());

        // GET, https, then literals without indexing, by their names in the static table.
        let mut block = vec![0x82, 0x87];
        let authority = order.to.to_string();
        let always = [(4, &*order.path), (1, &authority), (19, &order.accept), (58, "bench/1.0")];
        let etag = order.etag.as_deref().map(|etag| (41, etag));
        for (name, value) in always.into_iter().chain(etag) {
            write_integer(&mut block, 0, 4, name);
            write_integer(&mut block, 0, 7, value.len());
            block.extend_from_slice(value.as_bytes());
        }
        Http2 {
            block,
            right: if order.etag.is_some() { NOT_MODIFIED } else { OK },
            next_stream: 1,
            open: HashMap::new(),
            waiting: VecDeque::new(),
            most_open: order.streams,
            frame: Frame::default(),
            payload: Vec::new(),
            received: 0,
        }
    }

    pub(super) fn request(&mut self, due: Instant, out: &mut Vec<u8>) {
        if self.open.len() >= self.most_open {
            self.waiting.push_back(due);
            return;
        }
        write_frame(out, HEADERS, END_STREAM | END_HEADERS, self.next_stream, &self.block);
        self.open.insert(self.next_stream, Open { due, received: 0 });
        self.next_stream += 2;
    }

    pub(super) fn feed(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        seen: &mut Seen<'_>,
    ) -> anyhow::Result<()> {
        while !input.is_empty() {
            if self.frame.head.len() < 9 {
                let (taken, rest) = input.split_at(input.len().min(9 - self.frame.head.len()));
                self.frame.head.extend_from_slice(taken);
                input = rest;
                if self.frame.head.len() < 9 {
                    break;
                }
                self.frame.read_head()?;
                self.payload.clear();
            }
            let (taken, rest) = input.split_at(input.len().min(self.frame.left));
            input = rest;
            self.frame.left -= taken.len();
            if self.frame.kind == DATA {
                seen.bytes(taken);
            } else {
                self.payload.extend_from_slice(taken);
            }
            if self.frame.left == 0 {
                self.whole_frame(out, seen)?;
                self.frame.head.clear();
                while self.open.len() < self.most_open
                    && let Some(due) = self.waiting.pop_front()
                {
                    self.request(due, out);
                }
            }
        }
        Ok(())
    }

    fn whole_frame(&mut self, out: &mut Vec<u8>, seen: &mut Seen<'_>) -> anyhow::Result<()> {
        let Frame { kind, flags, stream, .. } = self.frame;
        match kind {
            DATA => {
                ensure!(flags & PADDED == 0, "padded DATA");
                self.received += self.frame.length();
                if self.received > CONNECTION_WINDOW / 4 {
                    write_frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                    self.received = 0;
                }
                if let Some(open) = self.open.get_mut(&stream) {
                    open.received += self.frame.length();
                    if open.received > STREAM_WINDOW / 4 && flags & END_STREAM == 0 {
                        let credit = open.received.to_be_bytes();
                        write_frame(out, WINDOW_UPDATE, 0, stream, &credit);
                        open.received = 0;
                    }
                }
                if flags & END_STREAM != 0
                    && let Some(open) = self.open.remove(&stream)
                {
                    seen.done(open.due);
                }
            }
            HEADERS if self.open.contains_key(&stream) => {
                // Trailers end a stream whose status was already read.
                let ended = flags & END_STREAM != 0;
                if begins_with(self.right, &self.payload, flags) {
                    seen.head();
                } else if !ended || self.open.get(&stream).is_some_and(|open| open.received == 0) {
                    seen.failed();
                    self.open.remove(&stream);
                    return Ok(());
                }
                if ended && let Some(open) = self.open.remove(&stream) {
                    seen.done(open.due);
                }
            }
            RST_STREAM if self.open.remove(&stream).is_some() => seen.failed(),
            SETTINGS if flags & ACK == 0 => write_frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => write_frame(out, PING, ACK, 0, &self.payload),
            GOAWAY => bail!("the server ends the connection: {:?}", self.payload),
            _ => {}
        }
        Ok(())
    }
}

impl Frame {
    fn read_head(&mut self) -> anyhow::Result<()> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = self.head.as_slice() else {
            bail!("no frame");
        };
        self.left = usize::try_from(u32::from_be_bytes([0, a, b, c]))?;
        (self.kind, self.flags) = (kind, flags);
        self.stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        Ok(())
    }

    fn length(&self) -> u32 {
        match self.head.as_slice() {
            [a, b, c, ..] => u32::from_be_bytes([0, *a, *b, *c]),
            _ => 0,
        }
    }
}

/// Whether a header block starts with this status, after table size updates.
fn begins_with(status: u8, payload: &[u8], flags: u8) -> bool {
    let skipped =
        if flags & PADDED != 0 { 1 } else { 0 } + if flags & PRIORITY != 0 { 5 } else { 0 };
    let mut block = payload.get(skipped..).unwrap_or_default();
    while let [first, rest @ ..] = block {
        if *first == 0x3f {
            let more = rest.iter().position(|byte| byte & 0x80 == 0).unwrap_or(rest.len());
            block = rest.get(more + 1..).unwrap_or_default();
        } else if first & 0xe0 == 0x20 {
            block = rest;
        } else {
            return *first == status;
        }
    }
    false
}

fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    out.extend_from_slice(length.get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// An HPACK integer with a prefix of this many bits.
fn write_integer(out: &mut Vec<u8>, pattern: u8, prefix: u32, value: usize) {
    let most = (1usize << prefix) - 1;
    let byte = |value: usize| u8::try_from(value & 0xff).unwrap_or_default();
    if value < most {
        out.push(pattern | byte(value));
        return;
    }
    out.push(pattern | byte(most));
    let mut rest = value - most;
    while rest >= 128 {
        out.push(byte(rest % 128 + 128));
        rest /= 128;
    }
    out.push(byte(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            to: ([127, 0, 0, 1], 1).into(),
            path: "/path".to_owned(),
            accept: "application/json".to_owned(),
            etag: None,
            protocol: super::super::Protocol::Http2,
            connections: 1,
            streams: 2,
            warm_up_seconds: 0.0,
            seconds: 0.0,
            processes: Vec::new(),
            pki: "pki".into(),
            user: "user".to_owned(),
            kind: super::super::Kind::Closed,
        }
    }

    fn response(stream: u32, status: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, HEADERS, END_HEADERS, stream, &[0x20, status]);
        write_frame(&mut bytes, DATA, END_STREAM, stream, body);
        bytes
    }

    #[test]
    fn integers_are_those_of_rfc_7541() {
        let mut out = Vec::new();
        write_integer(&mut out, 0, 5, 1337);
        assert_eq!(out, [31, 154, 10], "its example C.1.2");
    }

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        for step in [1, 2, 7, 1000] {
            let mut out = Vec::new();
            let mut http2 = Http2::new(&order(), &mut out);
            let now = Instant::now();
            http2.request(now, &mut out);
            http2.request(now, &mut out);
            let bytes = [response(1, 0x88, b"hello"), response(3, 0x8d, b"not found")].concat();
            let mut seen = Seen::default();
            out.clear();
            for part in bytes.chunks(step) {
                http2.feed(part, &mut out, &mut seen).expect("frames");
            }
            assert_eq!((seen.done.len(), seen.failures), (1, 1));
            assert!(out.is_empty() && http2.open.is_empty());
        }
    }

    #[test]
    fn no_more_streams_are_open_than_wanted() {
        let mut out = Vec::new();
        let mut http2 = Http2::new(&order(), &mut out);
        for _ in 0..3 {
            http2.request(Instant::now(), &mut out);
        }
        assert_eq!((http2.open.len(), http2.waiting.len()), (2, 1));
        let answer = response(1, 0x88, b"hello");
        http2.feed(&answer, &mut out, &mut Seen::default()).expect("frames");
        assert_eq!((http2.open.len(), http2.waiting.len()), (2, 0));
    }

    #[test]
    fn windows_are_opened_again() {
        let mut out = Vec::new();
        let mut http2 = Http2::new(&order(), &mut out);
        http2.request(Instant::now(), &mut out);
        out.clear();
        let mut bytes = Vec::new();
        for _ in 0..65 {
            write_frame(&mut bytes, DATA, 0, 1, &[0; 16384]);
        }
        http2.feed(&bytes, &mut out, &mut Seen::default()).expect("frames");
        let mut expected = Vec::new();
        write_frame(&mut expected, WINDOW_UPDATE, 0, 1, &(65u32 * 16384).to_be_bytes());
        assert_eq!(out, expected);
    }

    #[test]
    fn pings_and_settings_are_answered() {
        let mut out = Vec::new();
        let mut http2 = Http2::new(&order(), &mut out);
        out.clear();
        let mut bytes = Vec::new();
        write_frame(&mut bytes, SETTINGS, 0, 0, &[]);
        write_frame(&mut bytes, PING, 0, 0, b"12345678");
        http2.feed(&bytes, &mut out, &mut Seen::default()).expect("frames");
        let mut expected = Vec::new();
        write_frame(&mut expected, SETTINGS, ACK, 0, &[]);
        write_frame(&mut expected, PING, ACK, 0, b"12345678");
        assert_eq!(out, expected);
    }
}
