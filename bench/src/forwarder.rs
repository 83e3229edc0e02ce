//! The floor of our stack: a forwarder of hyper and rustls that does what every proxy of the comparison
//! does, and nothing else. No limits, no retries, no choice of a server. Entry item: [`serve`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use http::header::{AUTHORIZATION, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2 as client;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mvp_net::{ClientTls, ServerTls};
use rustls::ClientConfig;
use rustls_pki_types::{ServerName, UnixTime};
use testkit::certificates::SERVER_NAME;
use testkit::pki::PkiFiles;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// As the other proxies: more requests at a time need another connection.
const STREAMS: usize = 100;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

/// Forwards requests to `server` until it is killed.
pub(crate) async fn serve(
    pki: &PkiFiles,
    listen: SocketAddr,
    server: SocketAddr,
) -> anyhow::Result<()> {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let tls = crate::backend::tls(pki)?.current();
    let forwarder = Arc::new(Forwarder::new(pki, server)?);
    let listener = TcpListener::from_std(mvp_net::bind(listen, false).context("cannot listen")?)?;
    loop {
        let (stream, remote) = listener.accept().await?;
        let (tls, forwarder) = (Arc::clone(&tls), Arc::clone(&forwarder));
        tokio::spawn(async move {
            stream.set_nodelay(true).ok()?;
            let stream = TlsAcceptor::from(Arc::clone(tls.config())).accept(stream).await.ok()?;
            forwarder.serve(stream, remote, &tls).await;
            Some(())
        });
    }
}

struct Forwarder {
    server: SocketAddr,
    authority: Authority,
    tls: Arc<ClientConfig>,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Clone)]
struct Connection {
    sender: client::SendRequest<Incoming>,
    streams: Arc<AtomicUsize>,
}

/// What requests of a client are given, computed once.
struct Client {
    user: HeaderValue,
    groups: Vec<HeaderValue>,
    address: HeaderValue,
}

impl Client {
    fn new(stream: &TlsStream<TcpStream>, remote: SocketAddr, tls: &ServerTls) -> Option<Client> {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let user = tls.trust().judge(certificates, UnixTime::now()).user?.ok()?;
        let groups = user.groups.iter().map(|group| HeaderValue::from_str(group));
        Some(Client {
            user: HeaderValue::from_str(&user.name).ok()?,
            groups: groups.collect::<Result<_, _>>().ok()?,
            address: HeaderValue::from_str(&remote.ip().to_string()).ok()?,
        })
    }
}

impl Forwarder {
    fn new(pki: &PkiFiles, server: SocketAddr) -> anyhow::Result<Forwarder> {
        let (ca, proxy) = (std::fs::read(pki.ca())?, pki.front_proxy());
        let identity = (std::fs::read(proxy.certificate)?, std::fs::read(proxy.key)?);
        let tls = ClientTls::new(&ca, Some((&identity.0, &identity.1)))?.config(&[b"h2"]);
        let authority = server.to_string().parse()?;
        Ok(Forwarder { server, authority, tls, connections: Mutex::default() })
    }

    async fn serve(
        self: Arc<Self>,
        stream: TlsStream<TcpStream>,
        remote: SocketAddr,
        tls: &ServerTls,
    ) {
        let Some(client) = Client::new(&stream, remote, tls) else { return };
        let (client, http2) = (Arc::new(client), stream.get_ref().1.alpn_protocol() == Some(b"h2"));
        let service = service_fn(move |request| {
            let (this, client) = (Arc::clone(&self), Arc::clone(&client));
            async move { Ok::<_, Infallible>(this.forward(request, &client).await) }
        });
        let stream = TokioIo::new(stream);
        // The load ends its connections without a word.
        let _ = match http2 {
            true => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.timer(TokioTimer::new()).max_concurrent_streams(250);
                builder.serve_connection(stream, service).await
            }
            false => http1::Builder::new().serve_connection(stream, service).await,
        };
    }

    async fn forward(&self, mut request: Request<Incoming>, client: &Client) -> Answer {
        let headers = request.headers_mut();
        let strange = |name: &&HeaderName| name.as_str().starts_with("x-remote-");
        let forged: Vec<HeaderName> = headers.keys().filter(strange).cloned().collect();
        for name in forged {
            headers.remove(name);
        }
        headers.remove(AUTHORIZATION);
        headers.remove(HOST);
        headers.insert(USER, client.user.clone());
        for group in &client.groups {
            headers.append(GROUP, group.clone());
        }
        headers.append(FORWARDED_FOR, client.address.clone());
        let id = uuid::Uuid::new_v4();
        let mut text = uuid::Uuid::encode_buffer();
        if let Ok(id) = HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)) {
            headers.insert(AUDIT_ID, id);
        }
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.authority.clone());
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        match self.send(request).await {
            Ok(response) => response.map(Either::Left),
            Err(error) => {
                eprintln!("cannot forward: {error:#}");
                let mut response = Response::new(Either::Right(Empty::new()));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }
        }
    }

    async fn send(&self, request: Request<Incoming>) -> anyhow::Result<Response<Incoming>> {
        let mut connection = match self.free() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let response = connection.sender.send_request(request).await;
        // A response that is still being read counts no more: those of the bench are short, or few. (It
        // is left out where watches are measured.)
        connection.streams.fetch_sub(1, Ordering::Relaxed);
        Ok(response?)
    }

    fn free(&self) -> Option<Connection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.sender.is_closed());
        let found = connections
            .iter()
            .find(|connection| connection.streams.load(Ordering::Relaxed) < STREAMS)?;
        found.streams.fetch_add(1, Ordering::Relaxed);
        Some(found.clone())
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?;
        let (sender, connection) = client::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(128 << 10)
            .initial_connection_window_size(64 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        let opened = Connection { sender, streams: Arc::new(AtomicUsize::new(1)) };
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(opened.clone());
        Ok(opened)
    }
}
