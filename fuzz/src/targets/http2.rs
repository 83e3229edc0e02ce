//! The guard of HTTP/2 request targets, in front of h2: HPACK, Huffman codes and frames. In one half of the
//! inputs an encoder of our own writes requests in all encodings, so that the truth is known: no request
//! with a `#` in its path may reach the service, and all those before the first such one must, unchanged.
//! The other half are raw bytes: the guard changes nothing but the `#`, however reads are split.

use std::collections::VecDeque;
use std::time::Duration;

use mvp_net::fuzzing::{guarded, huffman};
use tokio::io::{AsyncRead, AsyncWrite};

use super::fetch::block_on;
use super::http1::{Pieces, passed};
use crate::input::Input;
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "http2",
    run,
    seeds,
    words: &["/a#b", "/a", "#", ":path", "authorization", "\0", "\u{1}\u{4}", "\u{1}\u{5}"],
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mode = input.byte();
    let sizes = [usize::from(input.byte()), usize::from(input.byte())];
    match mode & 1 {
        0 => encoded(&mut input, &sizes),
        _ => raw(input.rest(), &sizes),
    }
}

/// Requests whose paths we know.
fn encoded(input: &mut Input<'_>, sizes: &[usize]) {
    let mut encoder = Encoder::default();
    let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let mut paths = Vec::new();
    while !input.is_empty() && paths.len() < 12 {
        let stream = 2 * paths.len() as u32 + 1;
        let path = path(input);
        let block = encoder.request(input, &path);
        bytes.extend(frames(input, stream, &block));
        paths.push(path);
    }
    let good = paths.iter().take_while(|path| !path.contains('#')).cloned();
    let good: Vec<String> = good.collect();
    for sizes in [&[1 << 20][..], sizes] {
        let found = requests(&bytes, sizes);
        for path in &found {
            assert!(paths.contains(path), "{path:?} was never sent: {paths:?}");
        }
        // h2 resets the stream of a request that it refuses, and goes on: later ones may come.
        let start: Vec<&String> = found.iter().take(good.len()).collect();
        assert_eq!(start, good.iter().collect::<Vec<_>>(), "{paths:?}");
    }
}

fn path(input: &mut Input<'_>) -> String {
    let length = input.below(24);
    let letters = b"/abcdefgh0123456789#&=~%zZ.?-_X#";
    let letter = |input: &mut Input<'_>| char::from(letters[input.below(letters.len())]);
    let rest: String = (0..length).map(|_| letter(input)).collect();
    format!("/{}", rest.replace('%', "%41"))
}

/// The paths that h2 accepts behind the guard.
fn requests(bytes: &[u8], sizes: &[usize]) -> Vec<String> {
    accepted(guarded(Pieces::new(bytes.to_vec(), sizes).kept_open(), true).0)
}

/// The paths that h2 accepts, until the client sends nothing more.
fn accepted(stream: impl AsyncRead + AsyncWrite + Unpin) -> Vec<String> {
    let mut found = Vec::new();
    let accepting = async {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let target = request.uri().path_and_query();
            found.push(target.map(ToString::to_string).unwrap_or_default());
            let _ = respond.send_response(http::Response::new(()), true);
        }
    };
    // The clock moves when nothing is left to do.
    let _ = block_on(async { tokio::time::timeout(Duration::from_secs(1), accepting).await });
    found
}

fn raw(data: &[u8], sizes: &[usize]) {
    let data = [PREFACE, &frame(4, 0, 0, &[]), data].concat();
    let (all, whole) = passed(&data, &[1 << 20], true);
    let (some, pieces) = passed(&data, sizes, true);
    assert!(!(whole && pieces) || all == some, "in pieces of {sizes:?}");
    assert!(all.starts_with(&some) || some.starts_with(&all));
    assert!(all.len() <= data.len() && (!whole || all.len() == data.len()), "no byte is added");
    let unguarded = accepted(Pieces::new(data.clone(), &[1 << 20]).kept_open());
    for path in requests(&data, sizes) {
        assert!(unguarded.contains(&path), "{path:?} is none of {unguarded:?}");
    }
}

/// An HPACK encoder that makes every choice by the input.
#[derive(Default)]
struct Encoder {
    table: VecDeque<(String, String)>,
}

/// Names of the static table, with an index of each.
const STATIC: [(&str, usize); 7] = [
    (":authority", 1),
    (":method", 2),
    (":path", 4),
    (":path", 5),
    (":scheme", 7),
    ("accept", 19),
    ("user-agent", 58),
];

impl Encoder {
    fn request(&mut self, input: &mut Input<'_>, path: &str) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in [(":method", "GET"), (":scheme", "https"), (":path", path)] {
            self.field(input, name, value, &mut block);
        }
        let more =
            [("accept", "#"), ("x-a", "/b#c"), ("xpath", "1"), ("user-agent", "k"), ("path", "/#")];
        for _ in 0..input.below(4) {
            let (name, value) = input.one_of(&more);
            self.field(input, name, value, &mut block);
        }
        block
    }

    fn field(&mut self, input: &mut Input<'_>, name: &str, value: &str, block: &mut Vec<u8>) {
        let known = self.table.iter().position(|(n, v)| n == name && v == value);
        if let Some(index) = known.filter(|_| input.below(4) > 0) {
            return integer(input, 0x80, 7, index + 62, block);
        }
        let (first, bits) = input.one_of(&[(0x40, 6), (0x40, 6), (0, 4), (0x10, 4)]);
        let dynamic = self.table.iter().enumerate().filter(|(_, (n, _))| n == name);
        let mut indices: Vec<usize> = dynamic.map(|(index, _)| index + 62).collect();
        indices.extend(STATIC.iter().filter(|(n, _)| *n == name).map(|(_, index)| *index));
        indices.push(0);
        let index = input.one_of(&indices);
        integer(input, first, bits, index, block);
        if index == 0 {
            string(input, name, block);
        }
        string(input, value, block);
        if first == 0x40 {
            self.table.push_front((name.to_owned(), value.to_owned()));
            let size = |(name, value): &(String, String)| name.len() + value.len() + 32;
            while self.table.iter().map(size).sum::<usize>() > 4096 {
                self.table.pop_back();
            }
        }
    }
}

fn string(input: &mut Input<'_>, text: &str, block: &mut Vec<u8>) {
    let (first, bytes) = match input.below(2) {
        0 => (0, text.as_bytes().to_vec()),
        _ => (0x80, huffman(text.as_bytes())),
    };
    integer(input, first, 7, bytes.len(), block);
    block.extend(bytes);
}

fn integer(input: &mut Input<'_>, first: u8, bits: u32, mut value: usize, block: &mut Vec<u8>) {
    let greatest = (1 << bits) - 1;
    if value < greatest {
        return block.push(first | value as u8);
    }
    block.push(first | greatest as u8);
    value -= greatest;
    while value >= 128 {
        block.push((value % 128) as u8 | 128);
        value /= 128;
    }
    // Longer than necessary, which is allowed.
    match input.below(8) {
        0 => block.extend([value as u8 | 128, 0]),
        _ => block.push(value as u8),
    }
}

/// The frames of one header block, with padding, priority and continuations.
fn frames(input: &mut Input<'_>, stream: u32, block: &[u8]) -> Vec<u8> {
    let (mut out, mut rest, mut first) = (Vec::new(), block, true);
    for last in [false, false, true] {
        let length = if last { rest.len() } else { input.below(rest.len() + 1) };
        let (part, after) = rest.split_at(length);
        rest = after;
        let end = rest.is_empty();
        let mut flags = if end { 4 } else { 0 };
        let mut payload = Vec::new();
        let padding = if first { input.below(20) } else { 0 };
        if padding > 0 {
            flags |= 8;
            payload.push(padding as u8);
        }
        if first && input.below(3) == 0 {
            flags |= 0x20;
            payload.extend([0, 0, 0, 0, 7]);
        }
        payload.extend(part);
        payload.extend(vec![0; padding]);
        out.extend(frame(if first { 1 } else { 9 }, flags | u8::from(first), stream, &payload));
        first = false;
        if end {
            break;
        }
    }
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn seeds() -> Vec<Vec<u8>> {
    let block = b"\x82\x87\x04\x05/a#bc\x41\x01x";
    let literal = frame(1, 5, 1, block);
    let coded =
        [&b"\x82\x87\x44"[..], &[0x80 | huffman(b"/x#y").len() as u8], &huffman(b"/x#y")].concat();
    let settings = frame(4, 0, 0, &[0, 1, 0, 0, 0, 0]);
    let mut all = vec![
        [&[1, 7, 3][..], &literal, &frame(1, 5, 3, b"\x82\x87\x84")].concat(),
        [&[1, 1, 9][..], &frame(1, 1, 1, &coded[..4]), &frame(9, 4, 1, &coded[4..])].concat(),
        [&[1, 2, 2][..], &settings, &frame(6, 0, 0, &[0; 8]), &frame(0, 1, 1, b"x")].concat(),
    ];
    for seed in 1..12u8 {
        let bytes =
            (0..200u32).map(|n| (n.wrapping_mul(u32::from(seed) * 2_654_435 + 97) >> 5) as u8);
        all.push([0, seed, 3].into_iter().chain(bytes).collect());
    }
    all
}
