//! A request body that can be sent again: its frames are kept as they pass, up to a limit, until
//! the response head is there. Trailers that a client must not send are dropped on the way.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::Request;
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::lanes::Lasting;
use crate::body::{Body, BodyError};
use crate::identity::RemoteHeaders;

/// The most of a body that is kept.
const MAX_KEPT: usize = 128 << 10;

/// Trailers above this are dropped.
const MAX_TRAILERS: usize = 8 << 10;

/// A request's body, for as many attempts as its decision needs.
pub(crate) struct Replay(Option<Arc<Mutex<Shared>>>);

struct Shared {
    body: Body,
    kept: Vec<Bytes>,
    bytes: usize,
    /// Part of what passed is no more: the body cannot be sent again from its start.
    lost: bool,
    ended: bool,
    /// The client broke it off, or sent what cannot be read.
    broken: bool,
    /// How often it was begun to be sent. Only the last may read on.
    attempts: usize,
    /// Who waits for more of it.
    waiting: Option<Waker>,
    /// Names that a client must not send in trailers either.
    reserved: Arc<RemoteHeaders>,
}

impl Replay {
    /// Keeps what passes of this body.
    pub(crate) fn new(body: Body, reserved: Arc<RemoteHeaders>) -> Replay {
        if body.is_end_stream() {
            return Replay(None);
        }
        let shared = Shared {
            body,
            kept: Vec::new(),
            bytes: 0,
            lost: false,
            ended: false,
            broken: false,
            attempts: 0,
            waiting: None,
            reserved,
        };
        Replay(Some(Arc::new(Mutex::new(shared))))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The request with its body from the start; nothing where that is no longer at hand.
    pub(crate) fn attempt(&self, mut parts: Parts) -> Option<Request<Body>> {
        let Some(shared) = &self.0 else {
            return Some(Request::from_parts(parts, Body::empty()));
        };
        let mut state = lock(shared);
        if state.lost {
            return None;
        }
        state.attempts += 1;
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
        let attempt = state.attempts;
        drop(state);
        parts.extensions.insert(Sender(Arc::clone(shared)));
        let body = Body::new(Attempt { shared: Arc::clone(shared), attempt, next: 0 });
        Some(Request::from_parts(parts, body))
    }

    /// Keeps nothing more: the response is there.
    pub(crate) fn release(&self) {
        if let Some(shared) = &self.0 {
            let mut shared = lock(shared);
            shared.lost = true;
        }
    }
}

/// A request on its way to whichever server: it may be sent several times, each time as new.
pub(crate) struct Outgoing<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Replay,
    pub(crate) lasting: Option<Lasting>,
}

impl Outgoing<'_> {
    /// The request; nothing where its body is no longer at hand.
    pub(crate) fn attempt(&self) -> Option<Request<Body>> {
        self.attempt_with(|_| {})
    }

    /// The same with a change to its head.
    pub(crate) fn attempt_with(&self, change: impl FnOnce(&mut Parts)) -> Option<Request<Body>> {
        let mut parts = self.parts.clone();
        if let Some(lasting) = self.lasting {
            parts.extensions.insert(lasting);
        }
        change(&mut parts);
        self.body.attempt(parts)
    }
}

/// Left in the extensions of a request: whether the client's part of it is in order. hyper does not
/// always say so: an HTTP/2 stream that we reset ourselves looks as if the server had.
#[derive(Clone)]
pub(crate) struct Sender(Arc<Mutex<Shared>>);

impl Sender {
    /// Whether the client broke its own request off.
    pub(crate) fn broke_off(&self) -> bool {
        lock(&self.0).broken
    }
}

/// One sending of the body: first what was kept, then what still comes.
struct Attempt {
    shared: Arc<Mutex<Shared>>,
    attempt: usize,
    next: usize,
}

impl HttpBody for Attempt {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let mut shared = lock(&this.shared);
        if shared.attempts != this.attempt {
            // Another server has it now. One that reads on after its 404 must take nothing from it.
            return Poll::Ready(Some(Err("the request was sent to another server".into())));
        }
        if let Some(kept) = shared.kept.get(this.next) {
            this.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(kept.clone()))));
        }
        if shared.ended {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut shared.body).poll_frame(cx) {
            Poll::Pending => {
                shared.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                shared.ended = true;
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => {
                // It is not whole, and must not look so to another server.
                shared.lost = true;
                shared.broken = true;
                return Poll::Ready(Some(Err(error)));
            }
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                shared.keep(&data, &mut this.next);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Err(frame) => {
                // Trailers are sent once; a body with them is not sent again.
                shared.lost = true;
                let Ok(mut trailers) = frame.into_trailers() else {
                    return Poll::Ready(None);
                };
                // Servers read none. Large ones could end a connection that others use.
                let bytes: usize =
                    trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
                if bytes > MAX_TRAILERS {
                    trailers.clear();
                }
                let reserved: Vec<_> = trailers
                    .keys()
                    .filter(|name| shared.reserved.reserves(name.as_str()))
                    .cloned()
                    .collect();
                for name in reserved {
                    trailers.remove(name);
                }
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.shared);
        self.next >= shared.kept.len() && (shared.ended || shared.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let shared = lock(&self.shared);
        let ahead: u64 =
            shared.kept.iter().skip(self.next).map(|kept| kept.remaining() as u64).sum();
        let rest = shared.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}

impl Shared {
    fn keep(&mut self, data: &Bytes, next: &mut usize) {
        self.bytes += data.len();
        if self.lost || self.bytes > MAX_KEPT {
            self.lost = true;
            self.kept.clear();
            *next = 0;
        } else {
            self.kept.push(data.clone());
            *next += 1;
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
