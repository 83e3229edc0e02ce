//! Parses the requests of an HTTP/1.1 connection (RFC 9112) to find request targets. Entry:
//! [`Follower::follow`].
//!
//! The start of a head depends on the length of the body before it, so this parser must agree with
//! hyper on every request that hyper accepts. Requests that parsers disagree on are refused: more than
//! one length, a length together with a transfer coding, any transfer coding other than `chunked`.

use super::super::fault::{HeadFault, MAX_TARGET};
use super::super::request::Activity;
use super::ParseError;
use super::chunked::{Chunked, Malformed};
use super::names::{Known, advance};

/// A byte that hyper refuses anywhere in a head.
const REFUSED: u8 = 0;
/// What follows it: of a head that arrives in pieces, hyper parses nothing before an empty line.
const AFTER_REFUSED: u8 = b'\n';
const VERSION: &[u8] = b"HTTP/1.";
const CONNECT: &[u8] = b"CONNECT";
const CHUNKED: &[u8] = b"chunked";

/// What completes a head after a target that is too long.
const AFTER_TARGET: &[u8] = b" HTTP/1.1\r\n\r\n";
/// What completes a head in a second `Transfer-Encoding`, after the name.
const AFTER_NAME: &[u8] = b":chunked\r\n\r\n0\r\n\r\n";

/// The parser of the bytes of a client.
#[derive(Debug, Default)]
pub(super) struct Follower {
    state: State,
    request: Request,
    /// The number of heads so far.
    heads: usize,
    /// The length of the request target so far.
    target: usize,
    /// What completes the head of a request with a [`HeadFault`].
    completion: &'static [u8],
}

/// Why a head cannot be passed.
enum Stop {
    Malformed,
    /// The bytes complete what was passed.
    Fault(HeadFault, &'static [u8]),
}

impl From<Malformed> for Stop {
    fn from(Malformed: Malformed) -> Stop {
        Stop::Malformed
    }
}

/// The parts of a request that tell where it ends.
#[derive(Debug, Default, Clone, Copy)]
struct Request {
    http11: bool,
    length: Option<u64>,
    chunked: bool,
    /// Whether it requests an upgrade.
    upgrade: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// Before the request line; empty lines are skipped.
    #[default]
    Start,
    StartLf,
    /// The length of the prefix of `CONNECT` so far; `None` for another method.
    Method(Option<u8>),
    Target,
    /// The length of the version so far.
    Version(u8),
    VersionEnd,
    /// Before the end of a line.
    Lf,
    LineStart,
    /// The header name that it may become, and its length so far.
    Name(Known, u8),
    /// The value of any other header.
    Value,
    Length(Length),
    Coding(Coding),
    /// Before the end of the head.
    EndLf,
    Body(u64),
    Chunked(Chunked),
    /// After a request for an upgrade that is not answered yet.
    Upgrade,
    /// The connection was upgraded.
    Tunnel,
    /// In a head that hyper refuses; whether it got the byte for that.
    Refused(bool),
    /// In the rest of a head with a fault, which is dropped; whether at the start of a line.
    Faulty(bool),
    /// After a head with a fault. What follows is dropped: the connection ends.
    Ended,
}

/// The value of `Content-Length`.
#[derive(Debug, Clone, Copy)]
enum Length {
    Before,
    Digits(u64),
    After(u64),
}

/// The value of `Transfer-Encoding`.
#[derive(Debug, Clone, Copy)]
enum Coding {
    Before,
    /// The length of the prefix of `chunked` so far.
    Word(u8),
    After,
}

impl Follower {
    /// Parses the next bytes of the client, and returns how many of them to pass. From a `#` in a
    /// request target on, or from anything else that cannot be parsed, it replaces them by bytes that
    /// hyper answers with 400.
    pub(super) fn follow(
        &mut self,
        bytes: &mut [u8],
        activity: &Activity,
    ) -> Result<usize, ParseError> {
        let all = bytes.len();
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..)
            && let Some(&first) = rest.first()
        {
            at += match self.state {
                State::Tunnel => return Ok(all),
                State::Refused(told) => {
                    rest.fill(AFTER_REFUSED);
                    if let (false, Some(first)) = (told, rest.first_mut()) {
                        *first = REFUSED;
                    }
                    self.state = State::Refused(true);
                    return Ok(all);
                }
                State::Faulty(_) | State::Ended => {
                    self.drop_head(rest);
                    return Ok(at);
                }
                State::Body(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    self.body(left - length as u64);
                    length
                }
                State::Chunked(chunked) => self.chunked(chunked, rest),
                State::Target if is_of_target(first) => {
                    let length = position(rest, |byte| !is_of_target(byte)).unwrap_or(rest.len());
                    let left = MAX_TARGET - self.target;
                    if length > left {
                        self.fault(HeadFault::LongTarget, AFTER_TARGET, activity);
                    }
                    self.target += length.min(left);
                    length.min(left)
                }
                State::Upgrade => {
                    self.after_upgrade(activity)?;
                    0
                }
                State::Value => match position(rest, |byte| byte == b'\n') {
                    Some(end) => {
                        self.state = State::LineStart;
                        end + 1
                    }
                    None => rest.len(),
                },
                _ => {
                    match self.head(first) {
                        Ok(()) => 1,
                        // The next turn replaces this byte and all after it, or drops them.
                        Err(Stop::Malformed) => {
                            self.state = State::Refused(false);
                            0
                        }
                        Err(Stop::Fault(fault, completion)) => {
                            self.fault(fault, completion, activity);
                            0
                        }
                    }
                }
            };
        }
        Ok(all)
    }

    /// The bytes that complete the head of a request with a fault, once all of that head has arrived.
    pub(super) fn completion(&mut self) -> Option<&mut &'static [u8]> {
        let pending = matches!(self.state, State::Ended) && !self.completion.is_empty();
        pending.then_some(&mut self.completion)
    }

    fn fault(&mut self, fault: HeadFault, completion: &'static [u8], activity: &Activity) {
        activity.set_fault(self.heads, fault);
        self.completion = completion;
        self.state = State::Faulty(false);
    }

    /// Drops bytes of a head up to its end.
    fn drop_head(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = match (self.state, byte) {
                (State::Faulty(true), b'\n') => State::Ended,
                (State::Faulty(_), b'\n') => State::Faulty(true),
                (State::Faulty(at_start), b'\r') => State::Faulty(at_start),
                (State::Faulty(_), _) => State::Faulty(false),
                (state, _) => state,
            };
        }
    }

    /// Parses a byte of a head.
    fn head(&mut self, byte: u8) -> Result<(), Stop> {
        self.state = match (self.state, byte) {
            (State::Start, b'\n') | (State::StartLf, b'\n') => State::Start,
            (State::Start, b'\r') => State::StartLf,
            (State::Start, _) => {
                self.request = Request::default();
                State::Method(advance(CONNECT, 0, byte))
            }
            (State::Method(matched), b' ') => {
                self.request.upgrade = matched == Some(CONNECT.len() as u8);
                self.target = 0;
                State::Target
            }
            (State::Method(matched), b'!'..=b'~') => {
                State::Method(matched.and_then(|matched| advance(CONNECT, matched, byte)))
            }
            (State::Target, b' ') => State::Version(0),
            (State::Version(have), b'0' | b'1') if usize::from(have) == VERSION.len() => {
                self.request.http11 = byte == b'1';
                State::VersionEnd
            }
            (State::Version(have), _) if VERSION.get(usize::from(have)) == Some(&byte) => {
                State::Version(have + 1)
            }
            (State::VersionEnd, b'\r') => State::Lf,
            (State::VersionEnd | State::Lf, b'\n') => State::LineStart,
            (State::LineStart, b'\r') => State::EndLf,
            (State::LineStart | State::EndLf, b'\n') => {
                self.head_ends();
                return Ok(());
            }
            (State::LineStart, b'!'..=b'~') if byte != b':' => {
                self.name(Known::beginning_with(byte), 0, byte)
            }
            (State::Name(known, have), b':') => self.named(known, have)?,
            (State::Name(known, have), b'!'..=b'~') => self.name(known, have, byte),
            (State::Length(length), _) => self.length(length, byte)?,
            (State::Coding(coding), _) => Self::coding(coding, byte)?,
            _ => return Err(Stop::Malformed),
        };
        Ok(())
    }

    fn name(&self, known: Known, have: u8, byte: u8) -> State {
        match advance(known.name(), have, byte.to_ascii_lowercase()) {
            Some(have) => State::Name(known, have),
            None => State::Name(Known::Other, 0),
        }
    }

    /// Handles the end of a header name.
    fn named(&mut self, known: Known, have: u8) -> Result<State, Stop> {
        let request = &mut self.request;
        let whole = usize::from(have) == known.name().len();
        match known {
            Known::ContentLength if whole => match (request.length, request.chunked) {
                (None, false) => Ok(State::Length(Length::Before)),
                _ => Err(Stop::Malformed),
            },
            Known::TransferEncoding if whole => {
                if request.length.is_some() || !request.http11 {
                    return Err(Stop::Malformed);
                }
                if request.chunked {
                    return Err(Stop::Fault(HeadFault::TransferEncoding, AFTER_NAME));
                }
                request.chunked = true;
                Ok(State::Coding(Coding::Before))
            }
            Known::Upgrade if whole => {
                request.upgrade |= request.http11;
                Ok(State::Value)
            }
            _ => Ok(State::Value),
        }
    }

    fn length(&mut self, length: Length, byte: u8) -> Result<State, Malformed> {
        let digit = || u64::from(byte - b'0');
        let next = match (length, byte) {
            (Length::Before, b' ' | b'\t') => Length::Before,
            (Length::Before, b'0'..=b'9') => Length::Digits(digit()),
            (Length::Digits(value), b'0'..=b'9') => {
                let value = value.checked_mul(10).and_then(|value| value.checked_add(digit()));
                Length::Digits(value.ok_or(Malformed)?)
            }
            (Length::Digits(value) | Length::After(value), b' ' | b'\t') => Length::After(value),
            (Length::Digits(value) | Length::After(value), b'\r' | b'\n') => {
                self.request.length = Some(value);
                return Ok(if byte == b'\n' { State::LineStart } else { State::Lf });
            }
            _ => return Err(Malformed),
        };
        Ok(State::Length(next))
    }

    fn coding(coding: Coding, byte: u8) -> Result<State, Stop> {
        let whole = CHUNKED.len() as u8;
        let have = match coding {
            Coding::Before => 0,
            Coding::Word(have) => have,
            Coding::After => whole,
        };
        let next = match (coding, byte) {
            (Coding::Before, b' ' | b'\t') => Some(State::Coding(Coding::Before)),
            (_, b' ' | b'\t') if have == whole => Some(State::Coding(Coding::After)),
            (_, b'\r') if have == whole => Some(State::Lf),
            (_, b'\n') if have == whole => Some(State::LineStart),
            (Coding::After, _) => None,
            _ => advance(CHUNKED, have, byte.to_ascii_lowercase())
                .map(|have| State::Coding(Coding::Word(have))),
        };
        // After the name and the colon, the rest of `chunked` completes the head.
        let completion = AFTER_NAME.get(1 + usize::from(have)..).unwrap_or_default();
        next.ok_or(Stop::Fault(HeadFault::TransferEncoding, completion))
    }

    fn head_ends(&mut self) {
        self.heads += 1;
        if self.request.chunked {
            self.state = State::Chunked(Chunked::default());
        } else {
            self.body(self.request.length.unwrap_or_default());
        }
    }

    fn body(&mut self, left: u64) {
        self.state = State::Body(left);
        if left == 0 {
            self.request_ends();
        }
    }

    /// Parses bytes of a chunked body. Returns their number.
    fn chunked(&mut self, chunked: Chunked, bytes: &[u8]) -> usize {
        let Ok((chunked, length)) = chunked.follow(bytes) else {
            // hyper ends the body here, and the service can still respond. No head follows.
            self.state = State::Refused(false);
            return 1;
        };
        self.state = State::Chunked(chunked);
        if chunked.is_over() {
            self.request_ends();
        }
        length
    }

    fn request_ends(&mut self) {
        self.state = if self.request.upgrade { State::Upgrade } else { State::Start };
    }

    /// Handles bytes after a request for an upgrade.
    fn after_upgrade(&mut self, activity: &Activity) -> Result<(), ParseError> {
        if activity.upgraded() {
            self.state = State::Tunnel;
        } else if activity.answered() >= self.heads {
            self.state = State::Start;
        } else {
            // They may belong to the tunnel or to a request. No client sends any before the response.
            return Err(ParseError("data after a request for an upgrade, before the response"));
        }
        Ok(())
    }
}

/// Whether this byte is allowed in a request target.
fn is_of_target(byte: u8) -> bool {
    byte > b' ' && byte != b'#' && byte != 0x7f
}

/// The position of the first byte of this kind. Tests many bytes at once.
fn position(bytes: &[u8], is: impl Fn(u8) -> bool) -> Option<usize> {
    let mut before = 0;
    for chunk in bytes.chunks(32) {
        if chunk.iter().fold(false, |found, byte| found | is(*byte)) {
            return chunk.iter().position(|byte| is(*byte)).map(|position| before + position);
        }
        before += chunk.len();
    }
    None
}
