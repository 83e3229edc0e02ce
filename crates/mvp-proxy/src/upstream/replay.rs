//! A request body that can be sent again: its frames are kept while they are sent, up to a limit,
//! until the response begins. Trailers that a client may not send are dropped. Entry item:
//! [`Replay`].

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::Request;
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::body::{Body, BodyError};
use crate::envelope::{Aborted, Envelope, Lasting};
use crate::headers::remove_forbidden_trailers;
use crate::identity::Names;
use crate::trace::Trace;

/// The largest body that is kept.
const MAX_KEPT: usize = 128 << 10;

/// Larger trailers are dropped.
const MAX_TRAILERS: usize = 8 << 10;

/// A request body for several attempts.
pub(crate) struct Replay(Option<Arc<Mutex<Shared>>>);

struct Shared {
    body: Body,
    kept: Vec<Bytes>,
    bytes: usize,
    /// Whether a frame was not kept: the body cannot be sent again from its start.
    lost: bool,
    ended: bool,
    /// Whether the client aborted the body, or sent an invalid one.
    aborted: Aborted,
    /// The number of attempts. Only the last one may read on.
    attempts: usize,
    /// The attempt that waits for the next frame.
    waiting: Option<Waker>,
    /// Names that a client may not send in trailers either.
    reserved: Arc<Names>,
}

impl Replay {
    /// A body whose frames are kept while they are sent.
    pub(crate) fn new(body: Body, reserved: Arc<Names>) -> Replay {
        if body.is_end_stream() {
            return Replay(None);
        }
        let shared = Shared {
            body,
            kept: Vec::new(),
            bytes: 0,
            lost: false,
            ended: false,
            aborted: Aborted::default(),
            attempts: 0,
            waiting: None,
            reserved,
        };
        Replay(Some(Arc::new(Mutex::new(shared))))
    }

    /// Whether there is no body.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The body from its start; `None` if it was not kept.
    pub(crate) fn attempt(&self) -> Option<(Body, Option<Aborted>)> {
        let Some(shared) = &self.0 else { return Some((Body::empty(), None)) };
        let mut state = lock(shared);
        if state.lost {
            return None;
        }
        state.attempts += 1;
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
        let (attempt, aborted) = (state.attempts, state.aborted.clone());
        drop(state);
        let body = Body::new(Attempt { shared: Arc::clone(shared), attempt, next: 0 });
        Some((body, Some(aborted)))
    }

    /// Keeps no more frames: the response has begun.
    pub(crate) fn release(&self) {
        if let Some(shared) = &self.0 {
            lock(shared).lost = true;
        }
    }
}

/// A request that may be sent several times, to several servers.
pub(crate) struct Outgoing<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Replay,
    pub(crate) lasting: Option<Lasting>,
    pub(crate) trace: Option<&'a Trace>,
}

impl<'a> Outgoing<'a> {
    /// The request for one attempt; `None` if its body was not kept.
    pub(crate) fn attempt(&self) -> Option<Envelope<'a>> {
        let (body, aborted) = self.body.attempt()?;
        let Parts { method, uri, version, headers, extensions, .. } = self.parts;
        let mut request = Request::new(body);
        request.method_mut().clone_from(method);
        request.uri_mut().clone_from(uri);
        *request.version_mut() = *version;
        request.headers_mut().clone_from(headers);
        let extensions = Cow::Borrowed(extensions);
        let (lasting, trace) = (self.lasting, self.trace);
        Some(Envelope { request, extensions, lasting, insists: false, aborted, trace })
    }
}

/// The body of one attempt: the frames that were kept, then those that still arrive.
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
            // A newer attempt sends the body. A server that still reads after its 404 must get none
            // of it.
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
                // The body is incomplete, and must not look complete to another server.
                shared.lost = true;
                shared.aborted.set();
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
                // Trailers are not kept, so a body with trailers is not sent again.
                shared.lost = true;
                let Ok(mut trailers) = frame.into_trailers() else {
                    return Poll::Ready(None);
                };
                // No server reads them, and large ones could end a shared connection.
                let bytes: usize =
                    trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
                if bytes > MAX_TRAILERS {
                    trailers.clear();
                }
                shared.reserved.remove_reserved(&mut trailers);
                remove_forbidden_trailers(&mut trailers);
                if trailers.is_empty() {
                    shared.ended = true;
                    return Poll::Ready(None);
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

#[cfg(test)]
mod tests;
