//! The body type of the data path, for requests and responses. Entry item: [`Body`].

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use crate::headers::remove_forbidden_trailers;
use crate::incoming::Incoming;

/// An error of a body, from any source.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request or a response.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Full(Full<Bytes>),
    /// Without a box, since most responses have one.
    Http2(Incoming),
    Streamed(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// An empty body.
    pub fn empty() -> Body {
        Body(Kind::Full(Full::default()))
    }

    /// A body that streams any other body.
    pub fn new<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        if body.is_end_stream() {
            return Body::empty();
        }
        Body(Kind::Streamed(body.map_err(Into::into).boxed_unsync()))
    }
}

impl Body {
    /// The same body, which drops `guard` when it ends or is dropped. An empty body drops it at
    /// once.
    pub(crate) fn with_guard<G: Send + Unpin + 'static>(self, guard: G) -> Body {
        if self.is_end_stream() {
            return self;
        }
        match self.0 {
            Kind::Http2(body) => Body(Kind::Http2(body.holding(guard))),
            kind => {
                let guarded = Guarded { body: Body(kind), guard: Some(guard) };
                Body(Kind::Streamed(guarded.boxed_unsync()))
            }
        }
    }

    /// The same body, which ends early when `end` completes. The rest is dropped.
    pub(crate) fn until(self, end: impl Future<Output = ()> + Send + 'static) -> Body {
        Body(Kind::Streamed(Until { body: Some(self), end: Box::pin(end) }.boxed_unsync()))
    }
}

struct Until {
    body: Option<Body>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Until { body, end } = self.get_mut();
        let Some(streamed) = body else { return Poll::Ready(None) };
        if end.as_mut().poll(cx).is_ready() {
            *body = None;
            return Poll::Ready(None);
        }
        let frame = Pin::new(streamed).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            *body = None;
        }
        frame
    }
}

impl Body {
    /// A body that streams `body`, without trailers that cannot be forwarded.
    pub(crate) fn without_forbidden_trailers<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BodyError>,
    {
        Body::new(AllowedTrailers(body))
    }
}

struct AllowedTrailers<B>(B);

impl<B: HttpBody + Unpin> HttpBody for AllowedTrailers<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut polled = Pin::new(&mut self.get_mut().0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            remove_forbidden_trailers(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Its guard is dropped with the last frame: a client that does not read it must not hold the guard.
struct Guarded<G> {
    body: Body,
    guard: Option<G>,
}

impl<G: Unpin> HttpBody for Guarded<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Guarded { body, guard } = self.get_mut();
        let frame = Pin::new(&mut *body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || body.is_end_stream() {
            *guard = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<Incoming> for Body {
    fn from(body: Incoming) -> Body {
        match body.is_end_stream() {
            true => Body::empty(),
            false => Body(Kind::Http2(body)),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(Kind::Full(Full::new(bytes)))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            Kind::Full(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Kind::Http2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Kind::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(body) => body.is_end_stream(),
            Kind::Http2(body) => body.is_end_stream(),
            Kind::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(body) => body.size_hint(),
            Kind::Http2(body) => body.size_hint(),
            Kind::Streamed(body) => body.size_hint(),
        }
    }
}
