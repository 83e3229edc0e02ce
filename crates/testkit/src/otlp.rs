//! A receiver of OTLP with gRPC, as a collector has one, which the test controls. Entry item:
//! [`Receiver`].
//!
//! It shares no code with the exporter: the messages are written down from OpenTelemetry's `.proto`
//! files, with the numbers of their fields.

mod messages;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// How long a test waits for spans.
const LIMIT: Duration = Duration::from_secs(30);
/// The path of the only call.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A receiver of OTLP. It ends when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    spans: Vec<Received>,
    calls: usize,
    behaviour: Behaviour,
}

/// What the receiver does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// It takes all spans.
    #[default]
    Takes,
    /// It takes all spans but this many, or says so.
    Rejects(i64),
    /// It fails with `UNAVAILABLE`.
    Fails,
    /// It never responds.
    Hangs,
    /// It announces a response of 4 GiB, and sends bytes without end.
    Floods,
}

/// A span as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The attributes of the process that sent it.
    pub resource: BTreeMap<String, String>,
    /// The ID of the trace, in hexadecimal digits.
    pub trace: String,
    /// The ID of the span.
    pub id: String,
    /// The ID of its parent; empty without one.
    pub parent: String,
    /// The value of `tracestate`.
    pub state: String,
    /// The name.
    pub name: String,
    /// OTLP's number: 1 internal, 2 server, 3 client.
    pub kind: i32,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// Nanoseconds since 1970.
    pub end: u64,
    /// The attributes, numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// Whether its status is an error.
    pub failed: bool,
    /// OTLP's flags.
    pub flags: u32,
}

impl Received {
    /// An attribute; empty without it.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// The `service.name` of the process that sent it.
    pub fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }
}

impl Receiver {
    /// A receiver without TLS, on a port of its own.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start() -> Receiver {
        Receiver::at("127.0.0.1:0", None).await
    }

    /// A receiver with TLS.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn with_tls(tls: ServerConfig) -> Receiver {
        Receiver::at("127.0.0.1:0", Some(tls)).await
    }

    /// A receiver at this address.
    ///
    /// # Panics
    /// If it cannot listen.
    #[allow(clippy::expect_used, reason = "a test ends with the reason")]
    pub async fn at(address: &str, tls: Option<ServerConfig>) -> Receiver {
        let listener = TcpListener::bind(address).await.expect("an address to listen on");
        let address = listener.local_addr().expect("the address of the listener");
        let state = Arc::new(Mutex::new(State::default()));
        let serving = Arc::clone(&state);
        let acceptor = tls.map(|mut tls| {
            tls.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(tls))
        });
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&serving), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => serve(stream, state).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Receiver { address, state, task }
    }

    /// Its URL, without TLS.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what it does with calls.
    pub fn becomes(&self, behaviour: Behaviour) {
        lock(&self.state).behaviour = behaviour;
    }

    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        lock(&self.state).calls
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Received> {
        lock(&self.state).spans.clone()
    }

    /// Waits until there are spans that fit, and returns all of their trace.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn trace_with(&self, fits: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let mut traces: BTreeMap<String, Vec<Received>> = BTreeMap::new();
            for span in self.spans() {
                traces.entry(span.trace.clone()).or_default().push(span);
            }
            if let Some(trace) = traces.into_values().find(|trace| fits(trace)) {
                return trace;
            }
            let all = || format!("{:#?}", self.spans());
            assert!(tokio::time::Instant::now() < deadline, "no trace fits: {}", all());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, state: Arc<Mutex<State>>) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, &state).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // It ends with an error when the exporter goes away.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, state: &Mutex<State>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let content = request.headers().get("content-type").cloned();
    let Ok(body) = request.into_body().collect().await else { return failed("13") };
    let body = body.to_bytes();
    let is_grpc =
        content.is_some_and(|content| content.as_bytes().starts_with(b"application/grpc"));
    if path != EXPORT || !is_grpc {
        return failed("12");
    }
    // A flag for compression, the length, and the message.
    let message = body.get(5..).unwrap_or_default();
    let Ok(request) = messages::Request::decode(message) else { return failed("3") };
    let behaviour = {
        let mut state = lock(state);
        state.calls += 1;
        state.behaviour
    };
    let rejected = match behaviour {
        Behaviour::Takes => 0,
        Behaviour::Rejects(count) => count,
        Behaviour::Fails => return failed("14"),
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::Floods => return flood(),
    };
    lock(state).spans.extend(request.received());
    let partial = messages::PartialSuccess {
        rejected_spans: rejected,
        error_message: "a bad\nspan".to_owned(),
    };
    let partial_success = (rejected != 0).then_some(partial);
    succeeded(&messages::Response { partial_success }.encode_to_vec())
}

fn succeeded(message: &[u8]) -> Response<Body> {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    let trailers = HeaderMap::from_iter([status("0")]);
    let trailers = async move { Some(Ok(trailers)) };
    grpc(Full::new(framed.freeze()).with_trailers(trailers).boxed_unsync())
}

fn failed(code: &'static str) -> Response<Body> {
    let mut response = grpc(Full::default().boxed_unsync());
    response.headers_mut().extend([status(code)]);
    response
}

/// A message of 4 GiB that never ends.
fn flood() -> Response<Body> {
    let mut head = BytesMut::new();
    head.put_u8(0);
    head.put_u32(u32::MAX);
    grpc(Flood(Some(head.freeze())).boxed_unsync())
}

/// The first bytes, then zeros without end.
struct Flood(Option<Bytes>);

impl hyper::body::Body for Flood {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const ZEROS: &[u8] = &[0; 16 << 10];
        let next = self.0.take().unwrap_or(Bytes::from_static(ZEROS));
        Poll::Ready(Some(Ok(Frame::data(next))))
    }
}

fn grpc(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let content = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content);
    response
}

fn status(code: &'static str) -> (http::HeaderName, HeaderValue) {
    (http::HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
