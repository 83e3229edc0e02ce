//! The guard of HTTP/1.1 request targets, in front of hyper. The bytes of a connection are read twice:
//! behind the guard, and without it and with every `#` replaced by a harmless `!`. Every request that the
//! guard lets through must be the same in both: then it was not cut off at a `#`, and no body was read as a
//! head. And the guard must pass the same bytes however they are split into reads.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use mvp_net::fuzzing::{Noted, guarded};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::fetch::block_on;
use crate::input::Input;
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "http1",
    run,
    seeds,
    words: &[
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "Host: x\r\n",
        "\r\n\r\n",
        "\r\n",
        "#",
        "/a#b",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "0\r\n\r\n",
        "3\r\nabc\r\n",
        "5;x=y\r\n",
        "HTTP/1.0\r\n",
        "Connection: Upgrade\r\n",
        "Upgrade: websocket\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
        "Expect: 100-continue\r\n",
        "chunked, ",
        "\t",
        " ",
        ",",
        "+",
        "Connection: close\r\n",
        "Trailer: x\r\n",
        "http://h/",
    ],
};

/// A connection whose reads give these bytes in pieces. What is written to it is dropped.
pub struct Pieces {
    data: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    turn: usize,
    open: bool,
}

impl Pieces {
    /// The sizes of pieces are used in turn.
    pub fn new(data: Vec<u8>, sizes: &[usize]) -> Pieces {
        Pieces { data, at: 0, sizes: sizes.to_vec(), turn: 0, open: false }
    }

    /// The same connection, which the client keeps open.
    pub fn kept_open(self) -> Pieces {
        Pieces { open: true, ..self }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.sizes[self.turn % self.sizes.len()].max(1);
        let left = self.data.len() - self.at;
        if left == 0 && self.open {
            return Poll::Pending;
        }
        let end = self.at + size.min(left).min(buffer.remaining());
        buffer.put_slice(&self.data[self.at..end]);
        self.at = end;
        self.turn += 1;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request as hyper reads it: method and target, the body, and whether that is complete.
type Read = (String, Vec<u8>, bool);

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sizes: Vec<usize> = (0..3).map(|_| usize::from(input.byte())).collect();
    let data = input.rest();
    let (all, whole) = passed(data, &[1 << 20], false);
    let (some, pieces) = passed(data, &sizes, false);
    match (whole, pieces) {
        (true, true) => assert_eq!(shown(&all), shown(&some), "in pieces of {sizes:?}"),
        // Where it fails, less may have been passed.
        _ => assert!(all.starts_with(&some) || some.starts_with(&all), "{sizes:?}"),
    }
    let harmless: Vec<u8> =
        data.iter().map(|byte| if *byte == b'#' { b'!' } else { *byte }).collect();
    let expected = requests(Pieces::new(harmless, &[1 << 20]).kept_open(), None);
    for sizes in [&[1 << 20][..], &sizes] {
        let (stream, noted) = guarded(Pieces::new(data.to_vec(), sizes).kept_open(), false);
        let found = requests(stream, Some(noted));
        assert!(found.len() <= expected.len(), "{found:?}, but without the guard {expected:?}");
        for ((head, body, complete), (their_head, their_body, _)) in found.iter().zip(&expected) {
            assert_eq!(head, their_head, "sizes {sizes:?}");
            match complete {
                true => assert_eq!(shown(body), shown(their_body), "{head}"),
                false => assert!(their_body.starts_with(body), "{head}"),
            }
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The bytes that the guard passes, and whether it read to the end.
pub fn passed(data: &[u8], sizes: &[usize], http2: bool) -> (Vec<u8>, bool) {
    let (mut stream, _) = guarded(Pieces::new(data.to_vec(), sizes), http2);
    let mut out = Vec::new();
    let read = block_on(stream.read_to_end(&mut out));
    (out, read.is_ok())
}

/// The requests that hyper reads from a connection, up to one that the service does not get.
fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    noted: Option<Noted>,
) -> Vec<Read> {
    let found: Rc<RefCell<Vec<Read>>> = Rc::default();
    let (list, ended) = (Rc::clone(&found), Rc::new(RefCell::new(false)));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (list, ended) = (Rc::clone(&list), Rc::clone(&ended));
        let faulty = noted.as_ref().is_some_and(Noted::request);
        async move {
            *ended.borrow_mut() |= faulty;
            if !*ended.borrow() {
                // A method may have a `#`. In a target, none can be left.
                let method = request.method().as_str().replace('#', "!");
                let head = format!("{method} {}", request.uri());
                let index = list.borrow().len();
                list.borrow_mut().push((head, Vec::new(), false));
                let (body, complete) = read(request.into_body()).await;
                let body = body.iter().map(|byte| if *byte == b'#' { b'!' } else { *byte });
                let mut list = list.borrow_mut();
                let entry = &mut list[index];
                (entry.1, entry.2) = (body.collect(), complete);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // The client keeps the connection open: at its end hyper may drop a request that it has read whole.
    block_on(async { drop(timeout(Duration::from_secs(1), connection).await) });
    found.take()
}

async fn read(mut body: Incoming) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend(frame.into_data().unwrap_or_default()),
            Err(_) => return (all, false),
        }
    }
    (all, true)
}

fn seeds() -> Vec<Vec<u8>> {
    let sizes = b"\x05\x01\x40";
    let texts: [&[u8]; 10] = [
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b?c=d HTTP/1.1\r\nHost: x\r\n\r\n",
        b"DELETE /secrets#one HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na#c\r\n1;x=y\r\nd\r\n0\r\nT: v\r\n\r\nGET /c HTTP/1.1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /w HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\r\nGET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /d HTTP/1.0\r\n\r\n",
        b"PUT /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\n",
        b"GET http://host/path HTTP/1.1\nHost: y\n\n",
    ];
    texts.iter().map(|text| [&sizes[..], text].concat()).collect()
}
