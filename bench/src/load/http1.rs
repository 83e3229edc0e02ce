//! The HTTP/1.1 subset of the load: one GET after the other, responses with a length.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, ensure};

use super::wire::Seen;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Http1 {
    request: Vec<u8>,
    /// The first request is in flight; the others wait.
    due: VecDeque<Instant>,
    head: Vec<u8>,
    /// The remaining bytes of the body, once the head is read.
    left: Option<usize>,
}

impl Http1 {
    pub(super) fn new(authority: &str, path: &str, accept: &str) -> Http1 {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: {accept}\r\n\
             User-Agent: bench/1.0\r\n\r\n"
        );
        let due = VecDeque::new();
        Http1 { request: request.into_bytes(), due, head: Vec::new(), left: None }
    }

    pub(super) fn request(&mut self, due: Instant, out: &mut Vec<u8>) {
        if self.due.is_empty() {
            out.extend_from_slice(&self.request);
        }
        self.due.push_back(due);
    }

    pub(super) fn feed(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        seen: &mut Seen<'_>,
    ) -> anyhow::Result<()> {
        while !input.is_empty() {
            let left = match self.left {
                Some(left) => left,
                None => {
                    let known = self.head.len();
                    self.head.extend_from_slice(input);
                    let from = known.saturating_sub(3);
                    let searched = self.head.get(from..).unwrap_or_default();
                    let Some(end) = searched.windows(4).position(|four| four == b"\r\n\r\n") else {
                        ensure!(self.head.len() < 64 << 10, "a head without an end");
                        return Ok(());
                    };
                    let end = from + end + 4;
                    self.head.truncate(end);
                    input = input.get(end - known..).unwrap_or_default();
                    let (ok, length) = read_head(&self.head)?;
                    if ok {
                        seen.head()
                    } else {
                        seen.failed()
                    }
                    self.head.clear();
                    length
                }
            };
            let (taken, rest) = input.split_at(input.len().min(left));
            seen.bytes(taken);
            input = rest;
            self.left = Some(left - taken.len());
            if self.left == Some(0) {
                self.left = None;
                let due = self.due.pop_front().context("an answer that nobody asked for")?;
                seen.done(due);
                if !self.due.is_empty() {
                    out.extend_from_slice(&self.request);
                }
            }
        }
        Ok(())
    }
}

/// Whether the status is 200, and the length of the body.
fn read_head(head: &[u8]) -> anyhow::Result<(bool, usize)> {
    let text = std::str::from_utf8(head)?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let status = text.split(' ').nth(1).unwrap_or_default();
    Ok((status == "200", length.with_context(|| format!("a {status} without a length"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let not_found = "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone";
        for step in [1, 3, 1000] {
            let (mut out, now) = (Vec::new(), Instant::now());
            let mut http1 = Http1::new("host", "/path", "application/json");
            http1.request(now, &mut out);
            http1.request(now, &mut out);
            assert_eq!(out, http1.request, "one at a time");
            let mut seen = Seen::default();
            for part in ok.as_bytes().chunks(step) {
                http1.feed(part, &mut out, &mut seen).expect("an answer");
            }
            assert_eq!(out.len(), 2 * http1.request.len(), "then the next");
            for part in not_found.as_bytes().chunks(step) {
                http1.feed(part, &mut out, &mut seen).expect("an answer");
            }
            assert_eq!((seen.done.len(), seen.failures, seen.body_bytes), (2, 1, 9));
        }
    }

    #[test]
    fn an_answer_without_a_length_is_an_error() {
        assert!(read_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
