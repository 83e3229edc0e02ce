//! Unusual header blocks, parsed by h2 behind the guard.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::huffman::tests::encode;
use super::{Follower, TargetGuard, http2};

const TABLE: usize = 4096;
const NAMES: [&str; 8] = [
    "accept",
    "user-agent",
    "x-a",
    "xpath",
    "path",
    "authorization",
    "a",
    "x-kubernetes-something",
];
/// Some names of the static table, with an index of each.
const STATIC: [(&str, usize); 6] = [
    (":authority", 1),
    (":path", 4),
    (":path", 5),
    ("accept", 19),
    ("authorization", 23),
    ("user-agent", 58),
];

/// A random number generator for tests.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn text(&mut self, letters: &[u8], longest: usize) -> String {
        let length = self.throw(longest);
        (0..length).map(|_| char::from(letters[self.throw(letters.len())])).collect()
    }
}

/// A client that encodes headers in all possible ways.
struct Encoder {
    dice: Dice,
    table: VecDeque<(String, String)>,
    max_size: usize,
}

impl Encoder {
    fn new(seed: u64) -> Self {
        Self { dice: Dice(seed), table: VecDeque::new(), max_size: TABLE }
    }

    fn integer(&mut self, first: u8, bits: u32, mut value: usize, block: &mut Vec<u8>) {
        let greatest = (1 << bits) - 1;
        if value < greatest {
            return block.push(first | u8::try_from(value).unwrap());
        }
        block.push(first | u8::try_from(greatest).unwrap());
        value -= greatest;
        while value >= 128 {
            block.push(u8::try_from(value % 128).unwrap() | 128);
            value /= 128;
        }
        // Longer than necessary, which is allowed.
        if self.dice.throw(8) == 0 {
            block.extend([u8::try_from(value).unwrap() | 128, 0]);
        } else {
            block.push(u8::try_from(value).unwrap());
        }
    }

    fn string(&mut self, text: &str, block: &mut Vec<u8>) {
        if self.dice.throw(2) == 0 {
            self.integer(0, 7, text.len(), block);
            return block.extend(text.as_bytes());
        }
        let bytes = encode(text.as_bytes());
        self.integer(0x80, 7, bytes.len(), block);
        block.extend(bytes);
    }

    fn field(&mut self, name: &str, value: &str, block: &mut Vec<u8>) {
        let known = self.table.iter().position(|(n, v)| n == name && v == value);
        if let Some(index) = known
            && self.dice.throw(4) > 0
        {
            return self.integer(0x80, 7, index + 62, block);
        }
        let (first, bits) = [(0x40, 6), (0x40, 6), (0, 4), (0x10, 4)][self.dice.throw(4)];
        let dynamic = self.table.iter().enumerate().filter(|(_, (n, _))| n == name);
        let mut indices: Vec<usize> = dynamic.map(|(index, _)| index + 62).collect();
        indices.extend(STATIC.iter().filter(|(n, _)| *n == name).map(|(_, index)| *index));
        indices.push(0);
        let index = indices[self.dice.throw(indices.len())];
        self.integer(first, bits, index, block);
        if index == 0 {
            self.string(name, block);
        }
        self.string(value, block);
        if first == 0x40 {
            self.table.push_front((name.to_owned(), value.to_owned()));
            self.evict();
        }
    }

    fn resize(&mut self, block: &mut Vec<u8>) {
        self.max_size = [0, 40, 200, 1000, TABLE][self.dice.throw(5)];
        self.integer(0x20, 5, self.max_size, block);
        self.evict();
    }

    /// Evicts the newest entry, too, if it does not fit alone.
    fn evict(&mut self) {
        let size = |(name, value): &(String, String)| name.len() + value.len() + 32;
        while self.table.iter().map(size).sum::<usize>() > self.max_size {
            self.table.pop_back();
        }
    }

    /// The frames of one header block, with padding, priority and continuations.
    fn frames(&mut self, stream: u32, block: &[u8]) -> Vec<u8> {
        let mut frames = Vec::new();
        let mut rest = block;
        let mut first = true;
        loop {
            let whole = rest.len();
            let length = if self.dice.throw(2) == 0 { whole } else { self.dice.throw(whole + 1) };
            let (part, after) = rest.split_at(length);
            rest = after;
            let mut flags = if rest.is_empty() { 4 } else { 0 };
            let mut payload = Vec::new();
            let padding = if first { self.dice.throw(20) } else { 0 };
            if padding > 0 {
                flags |= 8;
                payload.push(u8::try_from(padding).unwrap());
            }
            if first && self.dice.throw(3) == 0 {
                flags |= 0x20;
                payload.extend([0, 0, 0, 0, 7]);
            }
            payload.extend(part);
            payload.extend(vec![0; padding]);
            let kind = if first { 1 } else { 9 };
            frames.extend(frame(kind, flags | u8::from(first), stream, &payload));
            first = false;
            if rest.is_empty() {
                return frames;
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

type Headers = Vec<(String, String)>;

/// The requests of `bytes` that h2 accepts behind a guard, with reads of at most `at_once` bytes.
async fn accepted(bytes: Vec<u8>, at_once: usize) -> Vec<(String, Headers)> {
    let (client, server) = duplex(at_once);
    let (mut reading, mut writing) = tokio::io::split(client);
    tokio::spawn(async move { reading.read_to_end(&mut Vec::new()).await });
    tokio::spawn(async move { writing.write_all(&bytes).await.map(|()| writing) });
    let guard = TargetGuard::new(server, true, Arc::default());
    let accepting = async {
        let mut accepted = Vec::new();
        let mut connection = h2::server::handshake(guard).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let _ = respond.send_response(http::Response::new(()), true);
            let path = request.uri().path_and_query().unwrap().to_string();
            let headers = request
                .headers()
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
            let last = path == "/last";
            accepted.push((path, headers.collect()));
            if last {
                break;
            }
        }
        accepted
    };
    tokio::time::timeout(Duration::from_secs(60), accepting).await.unwrap()
}

fn preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes
}

/// Requests in random encodings: h2 sees all those without a `#` in their path unchanged, and none of
/// the others.
async fn random_encodings(seed: u64, at_once: usize) {
    let mut encoder = Encoder::new(seed);
    let mut bytes = preface();
    let mut expected = Vec::new();
    let mut recent: VecDeque<String> = VecDeque::new();
    for number in 0..400_u32 {
        let dice = &mut encoder.dice;
        let mut path = format!("/{}", dice.text(b"abcxyz/09-_.~%?&=", 60));
        if dice.throw(4) == 0 {
            path.insert(1 + dice.throw(path.len()), '#');
        }
        if let Some(known) = recent.get(dice.throw(20)) {
            path.clone_from(known);
        }
        if number == 399 {
            "/last".clone_into(&mut path);
        }
        recent.push_front(path.clone());
        recent.truncate(10);
        let headers: Headers = (0..dice.throw(6))
            .map(|_| (NAMES[dice.throw(NAMES.len())].to_owned(), dice.text(b"#>ab:/ Z~0\"|z", 90)))
            .map(|(name, value)| (name, value.trim().to_owned()))
            .collect();
        let mut block = Vec::new();
        for _ in 0..encoder.dice.throw(3) {
            encoder.resize(&mut block);
        }
        block.extend([0x82, 0x87]);
        encoder.field(":path", &path, &mut block);
        encoder.field(":authority", "gateway", &mut block);
        for (name, value) in &headers {
            encoder.field(name, value, &mut block);
        }
        let stream = 2 * number + 1;
        bytes.extend(encoder.frames(stream, &block));
        // Other frames with random payloads.
        bytes.extend(frame(6, 0, 0, b"#:path#x"));
        if !path.contains('#') {
            expected.push((path, headers));
        }
    }
    let accepted = accepted(bytes, at_once).await;
    for (number, ((path, headers), (seen, seen_headers))) in
        expected.iter().zip(&accepted).enumerate()
    {
        assert_eq!(path, seen, "seed {seed}, request {number}");
        // h2 groups headers of one name.
        let (mut headers, mut seen_headers) = (headers.clone(), seen_headers.clone());
        headers.sort();
        seen_headers.sort();
        assert_eq!(headers, seen_headers, "seed {seed}, {path}");
    }
    assert_eq!(accepted.len(), expected.len(), "seed {seed}");
}

#[tokio::test]
async fn h2_sees_every_request_except_those_with_a_hash() {
    for seed in 1..=20 {
        random_encodings(seed * 0x9e37_79b9, 1 << 16).await;
    }
}

#[tokio::test]
async fn reads_of_any_size_are_parsed() {
    for (seed, at_once) in [(101, 1), (102, 2), (103, 3), (104, 10), (105, 64)] {
        random_encodings(seed, at_once).await;
    }
}

/// Bytes that cannot be parsed: h2 sees neither them nor anything after them.
#[tokio::test]
async fn a_connection_that_cannot_be_parsed_fails() {
    const GET: [u8; 3] = [0x82, 0x87, 0x84];
    let with = |more: &[u8]| [&GET, more].concat();
    let block = |block: &[u8]| frame(1, 5, 1, block);
    let cases: [(&str, Vec<u8>); 12] = [
        (
            "a stream that depends on itself",
            frame(1, 0x25, 1, &[&[0, 0, 0, 1, 9], &GET[..]].concat()),
        ),
        ("an empty name", block(&with(&[0x40, 0, 1, b'x']))),
        ("an empty name, and more to come", frame(1, 1, 1, &with(&[0x40, 0, 1, b'x']))),
        ("an index of nothing", block(&with(&[0xbe]))),
        ("index 0", block(&with(&[0x80]))),
        ("an integer without end", block(&with(&[0xff, 0xff, 0xff, 0xff, 0xff, 0]))),
        ("a table that is too large", block(&[&[0x3f, 0xe2, 0x1f], &GET[..]].concat())),
        ("half a field", block(&with(&[0x40, 3, b'a']))),
        ("padding over all", frame(1, 0xd, 1, &[9, 0x82])),
        ("no room for a priority", frame(1, 0x25, 1, &[0, 0, 0])),
        ("a continuation of nothing", frame(9, 4, 1, &GET)),
        ("a promise", frame(5, 4, 1, &[&[0, 0, 0, 2], &GET[..]].concat())),
    ];
    for (case, frames) in cases {
        let mut follower = http2::Follower::default();
        let mut bytes = preface();
        bytes.extend(&frames);
        assert!(follower.follow(&mut bytes.clone()).is_err(), "{case}");
        bytes.extend(frame(1, 5, 3, &GET));
        assert!(accepted(bytes, 1 << 16).await.is_empty(), "{case}");
    }
    let mut interrupted = [preface(), frame(1, 1, 1, &GET), frame(0, 0, 1, b"data")].concat();
    assert!(http2::Follower::default().follow(&mut interrupted).is_err());
}

/// Prints the cost of a request; run it with `--release --ignored --nocapture`.
#[test]
#[ignore = "measures, and asserts nothing"]
fn cost_of_a_request() {
    let path = encode(b"/api/v1/namespaces/kube-system/pods/coredns-7db6d8ff4d-x2v5k?timeout=10s");
    // Method, scheme, a path that is new, and six headers that the table knows.
    let mut block = vec![0x82, 0x87, 0x44, 0x80 | u8::try_from(path.len()).unwrap()];
    block.extend(path);
    block.extend([0x82, 0x83, 0x84, 0x85, 0x86, 0x87]);
    let request = frame(1, 5, 1, &block);
    for (what, bytes) in [("a new path", request), ("DATA of 16 KiB", frame(0, 0, 1, &[0; 16384]))]
    {
        let mut follower = http2::Follower::default();
        follower.follow(&mut preface()).unwrap();
        let mut bytes = bytes;
        let rounds = 1_000_000;
        let start = Instant::now();
        for _ in 0..rounds {
            follower.follow(std::hint::black_box(&mut bytes)).unwrap();
        }
        println!("{what}: {} ns", start.elapsed().as_nanos() / rounds);
    }
    let size = size_of::<Follower>();
    println!("memory of a connection: {size} bytes");
}

/// hyper parses nothing more of a head that arrives in pieces before it has an empty line. Without one,
/// the client would wait for the 400 until the head timed out.
#[tokio::test]
async fn a_refused_head_ends_at_once() {
    let (mut client, server) = duplex(1024);
    let mut guard = TargetGuard::new(server, false, Arc::default());
    let mut passed = Vec::new();
    for byte in b"GET /a#b HT" {
        client.write_all(&[*byte]).await.unwrap();
        passed.push(guard.read_u8().await.unwrap());
    }
    assert_eq!(passed, b"GET /a\0\n\n\n\n");
}
