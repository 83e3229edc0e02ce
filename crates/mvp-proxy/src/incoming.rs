//! The body of a response over HTTP/2. Entry item: [`Incoming`].

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;

/// A body as it arrives. Dropping it resets the stream, if it has not ended.
#[derive(Debug)]
pub(crate) struct Incoming {
    data: RecvStream,
    /// The bytes that are missing, if the server told.
    missing: Option<u64>,
    data_ended: bool,
    /// Sends the rest of the request body, if the response began before its end.
    _upload: Option<Upload>,
    _guard: Guard,
    held: Option<Box<dyn Any + Send>>,
}

impl Incoming {
    pub(crate) fn new(
        data: RecvStream,
        headers: &HeaderMap,
        guard: Guard,
        upload: Option<Upload>,
    ) -> Incoming {
        let missing = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let missing = missing.and_then(|length| length.parse().ok());
        Incoming { data, missing, data_ended: false, _upload: upload, _guard: guard, held: None }
    }

    /// The same body, which keeps `guard` until its last frame: a client that does not read it must not
    /// hold the guard.
    pub(crate) fn holding<G: Send + 'static>(self, guard: G) -> Incoming {
        let held: Box<dyn Any + Send> = match self.held {
            None => Box::new(guard),
            Some(held) => Box::new((held, guard)),
        };
        Incoming { held: Some(held), ..self }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if !this.data_ended {
            match ready!(this.data.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails if the stream was reset. The next poll tells.
                    let _ = this.data.flow_control().release_capacity(data.len());
                    this.missing =
                        this.missing.map(|missing| missing.saturating_sub(data.len() as u64));
                    if this.missing == Some(0) || this.data.is_end_stream() {
                        this.held = None;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => {
                    this.held = None;
                    return Poll::Ready(Some(Err(incomplete(error))));
                }
                None => this.data_ended = true,
            }
        }
        let trailers = ready!(this.data.poll_trailers(cx));
        this.held = None;
        Poll::Ready(match trailers {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => Some(Err(incomplete(error))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.missing.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A connection that counts its streams.
pub(crate) trait CountsStreams: fmt::Debug + Send + Sync {
    fn stream_began(&self);
    fn stream_ended(&self);
}

/// Counts a stream of its connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<dyn CountsStreams>);

impl Guard {
    pub(crate) fn of(connection: Arc<dyn CountsStreams>) -> Guard {
        connection.stream_began();
        Guard(connection)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stream_ended();
    }
}

/// The error of a response that broke off. Without an error code the client would take it for the end
/// of the response. (h2 fails no response that is complete.)
fn incomplete(error: h2::Error) -> h2::Error {
    match error.reason() {
        Some(Reason::NO_ERROR) => Reason::INTERNAL_ERROR.into(),
        _ => error,
    }
}

/// The task that sends the body of a request. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Upload(AbortHandle);

impl Upload {
    pub(crate) fn spawn(upload: impl Future<Output = ()> + Send + 'static) -> Upload {
        Upload(tokio::spawn(upload).abort_handle())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}
