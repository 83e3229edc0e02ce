//! Bodies frame by frame, and attempts that take over from each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::identity::Screen;

/// What a client does next with its body.
enum Step {
    Data(usize),
    Trailers(&'static [(&'static str, usize)]),
    /// Nothing arrives for now: one poll finds nothing.
    Wait,
    Abort,
}

use Step::{Abort, Data, Trailers, Wait};

/// A client's body. Its data are the numbers from 0 on, so that a gap shows.
struct Script {
    steps: VecDeque<Step>,
    sent: usize,
    /// Whether it tells how long it is, as a body with a `Content-Length` does.
    sized: bool,
}

impl HttpBody for Script {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.steps.pop_front() {
            None => Poll::Ready(None),
            Some(Wait) => Poll::Pending,
            Some(Abort) => Poll::Ready(Some(Err("aborted".into()))),
            Some(Data(bytes)) => {
                let begin = self.sent;
                self.sent += bytes;
                Poll::Ready(Some(Ok(Frame::data(numbers(begin, self.sent)))))
            }
            Some(Trailers(trailers)) => {
                let mut map = HeaderMap::new();
                for (name, bytes) in trailers {
                    let value = HeaderValue::from_str(&"x".repeat(*bytes)).unwrap();
                    map.insert(HeaderName::from_static(name), value);
                }
                Poll::Ready(Some(Ok(Frame::trailers(map))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.sized && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.steps.iter().map(|step| match step {
            Data(bytes) => *bytes as u64,
            _ => 0,
        });
        if self.sized { SizeHint::with_exact(data.sum()) } else { SizeHint::default() }
    }
}

fn numbers(begin: usize, end: usize) -> Bytes {
    (begin..end).map(|number| (number % 251) as u8).collect()
}

fn replay(sized: bool, steps: impl IntoIterator<Item = Step>) -> Replay {
    let script = Script { steps: steps.into_iter().collect(), sent: 0, sized };
    Replay::new(Body::new(script), Screen::default().names())
}

fn attempt(replay: &Replay) -> Body {
    replay.attempt().expect("the body is kept").0
}

/// The next frame.
fn poll(body: &mut Body) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// Reads to the end, or to a wait: the data, the trailers, and whether the end was reached.
fn read(body: &mut Body) -> (Vec<u8>, Option<HeaderMap>, bool) {
    let (mut data, mut trailers) = (Vec::new(), None);
    loop {
        match poll(body) {
            Poll::Pending => return (data, trailers, false),
            Poll::Ready(None) => return (data, trailers, true),
            Poll::Ready(Some(frame)) => match frame.expect("no error").into_data() {
                Ok(more) => data.extend_from_slice(&more),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
}

#[test]
fn a_body_is_kept_up_to_128_kib_and_not_beyond() {
    const KEPT: usize = 128 << 10;
    for (first, second, is_kept) in [
        (10, 20, true),
        (KEPT, 0, true),
        (KEPT / 2, KEPT / 2, true),
        (KEPT / 2, KEPT / 2 + 1, false),
        (KEPT + 1, 0, false),
    ] {
        let case = format!("{first} and {second} bytes");
        let replay = replay(false, [Data(first), Data(second), Data(5)].into_iter().take(2));
        let whole = (numbers(0, first + second).to_vec(), None, true);
        assert!(read(&mut attempt(&replay)) == whole, "the first attempt sends all: {case}");
        assert_eq!(replay.attempt().is_some(), is_kept, "{case}");
        if is_kept {
            assert!(read(&mut attempt(&replay)) == whole, "the same again: {case}");
        }
    }
}

/// Its start is gone, but the server that reads it gets the rest.
#[test]
fn what_follows_after_the_limit_is_still_sent_to_the_first_server() {
    let pieces = (0..20).map(|_| Data(10 << 10));
    let replay = replay(false, pieces);
    assert!(read(&mut attempt(&replay)) == (numbers(0, 200 << 10).to_vec(), None, true));
    assert!(replay.attempt().is_none());
}

#[test]
fn nothing_is_kept_after_the_response_began() {
    let replay = replay(false, [Data(10), Wait, Data(10)]);
    let mut first = attempt(&replay);
    assert_eq!(read(&mut first), (numbers(0, 10).to_vec(), None, false));
    replay.release();
    assert!(replay.attempt().is_none());
    assert_eq!(read(&mut first), (numbers(10, 20).to_vec(), None, true), "it is sent to its end");
}

#[test]
fn an_attempt_gets_what_was_kept_and_then_the_rest_and_its_predecessor_nothing_more() {
    let replay = replay(false, [Data(10), Data(10), Wait, Data(10), Data(10)]);
    let mut first = attempt(&replay);
    assert_eq!(read(&mut first).0.len(), 20);
    let mut second = attempt(&replay);
    assert!(matches!(poll(&mut first), Poll::Ready(Some(Err(_)))), "never an end");
    assert_eq!(read(&mut second), (numbers(0, 40).to_vec(), None, true));
    assert!(matches!(poll(&mut first), Poll::Ready(Some(Err(_)))), "never an end");
    assert_eq!(read(&mut attempt(&replay)), (numbers(0, 40).to_vec(), None, true));
}

/// Else a server that keeps its stream open after its 404 would hold it for as long as the client.
#[test]
fn an_attempt_that_waits_is_woken_when_another_takes_over() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let replay = replay(false, [Wait, Data(10)]);
    let mut first = attempt(&replay);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    assert!(Pin::new(&mut first).poll_frame(&mut Context::from_waker(&waker)).is_pending());
    let mut second = attempt(&replay);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(poll(&mut first), Poll::Ready(Some(Err(_)))));
    assert_eq!(read(&mut second), (numbers(0, 10).to_vec(), None, true));
}

/// A part of a body must not look like a whole one.
#[test]
fn an_aborted_body_is_not_sent_again() {
    let replay = replay(false, [Data(10), Abort]);
    let (mut first, aborted) = replay.attempt().unwrap();
    let aborted = aborted.unwrap();
    assert!(matches!(poll(&mut first), Poll::Ready(Some(Ok(_)))));
    assert!(!aborted.get());
    assert!(matches!(poll(&mut first), Poll::Ready(Some(Err(_)))));
    assert!(aborted.get(), "whose fault it is");
    assert!(replay.attempt().is_none());
}

#[test]
fn trailers_are_sent_once_without_those_that_clients_may_not_send() {
    const ALLOWED: &[(&str, usize)] = &[("x-check", 3)];
    const RESERVED: &[(&str, usize)] = &[("x-remote-user", 3), ("x_remote_group", 3)];
    const MIXED: &[(&str, usize)] = &[("x-check", 3), ("x-remote-user", 3), ("te", 3)];
    // The name has 7 bytes. Up to 8 KiB, since larger ones could end a shared connection.
    const LARGEST: &[(&str, usize)] = &[("x-check", (8 << 10) - 7)];
    const TOO_LARGE: &[(&str, usize)] = &[("x-check", (8 << 10) - 6)];
    for (trailers, expected) in [
        (ALLOWED, Some(3)),
        (RESERVED, None),
        (MIXED, Some(3)),
        (LARGEST, Some((8 << 10) - 7)),
        (TOO_LARGE, None),
    ] {
        let replay = replay(false, [Data(10), Trailers(trailers)]);
        let mut body = attempt(&replay);
        let (data, left, ended) = read(&mut body);
        assert!(ended && data == numbers(0, 10));
        let left: Option<Vec<_>> = left
            .map(|left| left.iter().map(|(name, value)| (name.to_string(), value.len())).collect());
        assert_eq!(left, expected.map(|bytes| vec![("x-check".to_owned(), bytes)]));
        assert!(replay.attempt().is_none(), "trailers are not kept");
    }
}

/// A server that is told a length gets exactly as much, in each attempt.
#[test]
fn each_attempt_tells_its_length_and_its_end() {
    let replay = replay(true, [Data(10), Data(20), Wait, Data(30)]);
    let length = |body: &Body| (body.size_hint().lower(), body.size_hint().upper());
    let mut first = attempt(&replay);
    assert_eq!((length(&first), first.is_end_stream()), ((60, Some(60)), false));
    assert!(poll(&mut first).is_ready());
    assert_eq!(length(&first), (50, Some(50)));
    assert!(poll(&mut first).is_ready() && poll(&mut first).is_pending());
    let mut second = attempt(&replay);
    assert_eq!((length(&second), second.is_end_stream()), ((60, Some(60)), false));
    assert!(poll(&mut second).is_ready());
    assert_eq!(length(&second), (50, Some(50)));
    assert!(poll(&mut second).is_ready() && !second.is_end_stream());
    assert!(poll(&mut second).is_ready());
    // The last frame is known to be the last, so that it can end the stream.
    assert_eq!((length(&second), second.is_end_stream()), ((0, Some(0)), true));
    let mut third = attempt(&replay);
    assert_eq!((length(&third), third.is_end_stream()), ((60, Some(60)), false));
    assert!(read(&mut third) == (numbers(0, 60).to_vec(), None, true) && third.is_end_stream());
}

#[test]
fn a_body_without_a_length_ends_when_its_end_was_seen() {
    let replay = replay(false, [Data(10)]);
    let mut body = attempt(&replay);
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (0, None));
    assert!(poll(&mut body).is_ready() && !body.is_end_stream(), "more could follow");
    assert!(matches!(poll(&mut body), Poll::Ready(None)) && body.is_end_stream());
    let mut again = attempt(&replay);
    assert!(!again.is_end_stream());
    assert!(poll(&mut again).is_ready() && again.is_end_stream());
}

#[test]
fn an_empty_body_can_always_be_sent() {
    let replay = replay(true, []);
    assert!(replay.is_empty());
    replay.release();
    let (body, aborted) = replay.attempt().unwrap();
    assert!(body.is_end_stream() && aborted.is_none());
    assert!(!self::replay(false, [Data(1)]).is_empty());
}
