//! Sends the body of a request over HTTP/2. Entry item: [`upload`].

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body as _, Frame};

use crate::body::{Body, BodyError};

/// Sends `body` to its end. Stops if the server resets the stream; resets it if the body fails, so
/// that the request never looks complete.
pub(super) async fn upload(mut body: Body, mut stream: SendStream<Bytes>) {
    while let Next::Frame(frame) = next(&mut body, &mut stream).await {
        let ends = body.is_end_stream();
        let sent = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => match has_room(&mut stream, data.len()).await {
                true => stream.send_data(data, ends).map(|()| ends),
                false => return,
            },
            Ok(Err(frame)) => match frame.into_trailers() {
                Ok(trailers) => {
                    stream.reserve_capacity(0);
                    stream.send_trailers(trailers).map(|()| true)
                }
                Err(_) => Ok(false),
            },
            Err(_) => return stream.send_reset(Reason::CANCEL),
        };
        match sent {
            Ok(false) => {}
            Ok(true) => return,
            // Most likely the stream was reset before, which the response tells.
            Err(_) => return stream.send_reset(Reason::CANCEL),
        }
    }
}

enum Next {
    Frame(Result<Frame<Bytes>, BodyError>),
    /// The body has ended, or the server reset the stream.
    Ended,
}

async fn next(body: &mut Body, stream: &mut SendStream<Bytes>) -> Next {
    poll_fn(|cx| {
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Next::Ended);
        }
        Pin::new(&mut *body).poll_frame(cx).map(|frame| match frame {
            Some(frame) => Next::Frame(frame),
            None => {
                // The body did not know before. It fails if the stream was reset.
                let _ = stream.send_data(Bytes::new(), true);
                Next::Ended
            }
        })
    })
    .await
}

/// Waits until the server accepts more; `false` if the stream was reset. One byte is reserved: h2
/// reserves the rest when the data is sent, and a reservation takes from other streams.
async fn has_room(stream: &mut SendStream<Bytes>, bytes: usize) -> bool {
    if bytes == 0 {
        return true;
    }
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
    }
    true
}
