//! The servers of a fuzzed cluster: they record what reaches them, and answer what the input says. Entry
//! item: [`Servers`].

use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use mvp_net::{ClientTrust, server_config};
use mvp_proxy::{ConnectProxy, OutboundTls};
use rustls::ServerConfig;
use testkit::certificates::{Ca, Leaf, cn};
use tokio::io::DuplexStream;
use tokio_rustls::TlsAcceptor;

use crate::input::Input;

/// Who got a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Local,
    Peer,
}

/// How a server answers every request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// With this response.
    Response(Response<Bytes>),
    /// A peer closes the connection instead.
    Close,
}

const STATUS: [u16; 12] = [200, 201, 301, 403, 404, 404, 409, 429, 500, 503, 401, 304];
const TYPES: [&str; 5] = [
    "application/json",
    "text/plain",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
];
/// Headers that a backend may send, and only another gateway or server should be believed.
const HEADERS: [(&str, &str); 8] = [
    ("x-mvp-refused", "local-down"),
    ("x-mvp-lost", "1"),
    ("x-mvp-instance", "b_1"),
    ("retry-after", "1"),
    ("content-encoding", "gzip"),
    ("x-kubernetes-pf-flowschema-uid", "u"),
    ("content-length", "7"),
    ("etag", "\"x\""),
];

impl Answer {
    pub fn of(input: &mut Input<'_>) -> Answer {
        let (status, kind, more) = (input.byte(), input.one_of(&TYPES), input.byte());
        let body = Bytes::copy_from_slice(input.part());
        if status == 0xff {
            return Answer::Close;
        }
        let status = STATUS[usize::from(status) % STATUS.len()];
        let mut response = Response::builder().status(status).header("content-type", kind);
        for (place, (name, value)) in HEADERS.iter().enumerate() {
            if more >> place & 1 == 1 {
                response = response.header(*name, *value);
            }
        }
        Answer::Response(response.body(body).expect("a response"))
    }
}

/// What all clusters have in common.
pub struct Known {
    pub outbound: OutboundTls,
    server: Arc<ServerConfig>,
}

pub fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let ca = Ca::new("servers");
        let proxy = ca.issue(Leaf::new(&[cn("front-proxy")]).for_clients());
        let server = ca.server(&["kubernetes.default.svc"]);
        let (chain, key) = server.pem();
        let trust = ClientTrust::new(Some(ca.pem().as_bytes()), None, Vec::new()).expect("a CA");
        Known {
            outbound: OutboundTls::new(ca.pem().as_bytes(), Some(proxy.pem())).expect("TLS"),
            server: server_config(chain, key, &trust).expect("TLS"),
        }
    })
}

/// The local server and the peer.
pub struct Servers {
    answers: [Answer; 2],
    asked: Mutex<Vec<(By, bool)>>,
    spoof: &'static str,
    trusted: bool,
}

impl Servers {
    /// `spoof` is in the values of headers that name a user, which only `trusted` callers may send.
    pub fn new(answers: [Answer; 2], spoof: &'static str, trusted: bool) -> Servers {
        Servers { answers, asked: Mutex::default(), spoof, trusted }
    }

    /// Who was asked, and whether that server may have processed the request.
    pub fn asked(&self) -> Vec<(By, bool)> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Records and answers a request.
    pub fn answer<B>(&self, by: By, request: &Request<B>) -> Response<Bytes> {
        for (name, value) in request.headers() {
            let value = String::from_utf8_lossy(value.as_bytes());
            let spoofed = names_a_user(name.as_str()) && value.contains(self.spoof);
            assert!(self.trusted || !spoofed, "{by:?} gets {name}: {value}");
        }
        let answer = &self.answers[usize::from(by == By::Peer)];
        let processed = match answer {
            Answer::Response(response) => response.status().is_success(),
            Answer::Close => true,
        };
        self.asked.lock().expect("no panic").push((by, processed));
        match answer {
            Answer::Response(response) => response.clone(),
            Answer::Close => Response::new(Bytes::new()),
        }
    }

    /// Connections to the peer.
    pub fn dial(self: &Arc<Self>) -> ConnectProxy {
        let servers = Arc::clone(self);
        ConnectProxy::in_memory(move |_| {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(Arc::clone(&servers).serve(theirs));
            ours
        })
    }

    /// The peer, on one connection: HTTP/2, or HTTP/1.1 where the layer wants that.
    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let acceptor = TlsAcceptor::from(Arc::clone(&known().server));
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let servers = Arc::clone(&self);
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let response = servers.answer(By::Peer, &request);
            let closes = matches!(servers.answers[1], Answer::Close);
            async move {
                // The body is read, as a server does that processes the request.
                let _ = http_body_util::BodyExt::collect(request.into_body()).await;
                match closes {
                    true => Err(std::io::Error::other("closed")),
                    // Of a length that hyper does not know: it would not send a `Content-Length` that
                    // is wrong, as some servers do.
                    false => Ok(response.map(|body| {
                        let frame = Ok::<_, Infallible>(Frame::data(body));
                        StreamBody::new(futures_util::stream::iter([frame]))
                    })),
                }
            }
        });
        let stream = hyper_util::rt::TokioIo::new(stream);
        if http2 {
            let executor = hyper_util::rt::TokioExecutor::new();
            let builder = hyper::server::conn::http2::Builder::new(executor);
            let _ = builder.serve_connection(stream, service).await;
        } else {
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = builder.serve_connection(stream, service).await;
        }
    }
}

/// Whether a server reads users from a header of this name, in any spelling.
pub fn names_a_user(name: &str) -> bool {
    name.replace('_', "-").to_ascii_lowercase().starts_with("x-remote-")
}
