//! The one body type of the data path: what a client sends, what a server answers, what we write.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// An error of a body, whoever made it.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// A request's or a response's body.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Full(Full<Bytes>),
    Streamed(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// No body.
    pub fn empty() -> Body {
        Body(Kind::Full(Full::default()))
    }

    /// Any body.
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
    /// The same body, that keeps something until its end.
    pub(crate) fn keeping<K: Send + Unpin + 'static>(self, kept: K) -> Body {
        if self.is_end_stream() {
            return self;
        }
        Body(Kind::Streamed(Keeping { body: self, _kept: kept }.boxed_unsync()))
    }
}

struct Keeping<K> {
    body: Body,
    _kept: K,
}

impl<K: Unpin> HttpBody for Keeping<K> {
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
