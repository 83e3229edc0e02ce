//! The body type of the data path, for requests and responses. Entry item: [`Body`].

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// An error of a body, from any source.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request or a response.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Full(Full<Bytes>),
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
        Body(Kind::Streamed(Guarded { body: self, _guard: guard }.boxed_unsync()))
    }
}

struct Guarded<G> {
    body: Body,
    _guard: G,
}

impl<G: Unpin> HttpBody for Guarded<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
            Kind::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(body) => body.is_end_stream(),
            Kind::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(body) => body.size_hint(),
            Kind::Streamed(body) => body.size_hint(),
        }
    }
}
