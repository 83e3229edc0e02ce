//! A running listener and clients for it. Entry: [`Gateway`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_net::{
    ClientTls, ClientTrust, ConnectionInfo, Drained, Limits, ReloadableTls, ServerTls, bind, serve,
};
use rustls_pki_types::ServerName;
use testkit::certificates::{Ca, Pair, SERVER_NAME};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::service_fn;
use tower::util::BoxCloneService;

pub const H2: &[u8] = b"h2";
pub const H1: &[u8] = b"http/1.1";

/// No wait of a test is longer.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("in time")
}

pub type TestService = BoxCloneService<
    Request<Incoming>,
    Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>,
    Infallible,
>;

/// The CAs of a cluster, and one for clients that nobody trusts.
pub struct Authorities {
    pub servers: Ca,
    pub clients: Ca,
    pub front_proxies: Ca,
    pub strangers: Ca,
}

impl Authorities {
    pub fn new() -> Self {
        Self {
            servers: Ca::new("servers"),
            clients: Ca::new("clients"),
            front_proxies: Ca::new("front-proxies"),
            strangers: Ca::new("strangers"),
        }
    }

    pub fn trust(&self) -> ClientTrust {
        ClientTrust::new(
            Some(self.clients.pem().as_bytes()),
            Some(self.front_proxies.pem().as_bytes()),
            vec!["front-proxy-client".into()],
        )
        .unwrap()
    }

    pub fn server_tls(&self) -> ServerTls {
        let pair = self.servers.server(&[SERVER_NAME]);
        let (certificate, key) = pair.pem();
        ServerTls::new(certificate, key, self.trust()).unwrap()
    }

    pub fn client_tls(&self, identity: Option<&Pair>) -> ClientTls {
        ClientTls::new(self.servers.pem().as_bytes(), identity.map(Pair::pem)).unwrap()
    }
}

/// `serve`, running.
pub struct Gateway {
    pub authorities: Authorities,
    pub address: SocketAddr,
    pub tls: ReloadableTls,
    pub shutdown: CancellationToken,
    pub task: JoinHandle<Drained>,
    pub infos: Arc<Mutex<HashMap<String, ConnectionInfo>>>,
}

impl Gateway {
    /// Answers every request with 200 and remembers its [`ConnectionInfo`] by its path.
    pub fn start(limits: Limits) -> Self {
        let infos = Arc::new(Mutex::new(HashMap::new()));
        let remembered = Arc::clone(&infos);
        let service = service_fn(move |request: Request<Incoming>| {
            let info = request.extensions().get::<ConnectionInfo>().unwrap().clone();
            remembered.lock().unwrap().insert(request.uri().path().to_owned(), info);
            ready(Ok(Response::new(Full::from("well").boxed())))
        });
        Self { infos, ..Self::with_service(limits, BoxCloneService::new(service)) }
    }

    pub fn with_service(limits: Limits, service: TestService) -> Self {
        let authorities = Authorities::new();
        let tls = ReloadableTls::new(authorities.server_tls());
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(serve(listener, tls.clone(), limits, service, shutdown.clone()));
        Self { authorities, address, tls, shutdown, task, infos: Arc::default() }
    }

    pub async fn connect(&self, config: Arc<rustls::ClientConfig>) -> TlsStream<TcpStream> {
        soon(self.try_connect(config)).await.unwrap()
    }

    pub async fn try_connect(
        &self,
        config: Arc<rustls::ClientConfig>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        TlsConnector::from(config).connect(name, stream).await
    }

    /// A connection that shows `identity` and speaks HTTP/1.1.
    pub async fn http1(&self, identity: Option<&Pair>) -> http1::SendRequest<TestBody> {
        let config = self.authorities.client_tls(identity).config(&[H1]);
        http1(self.connect(config).await).await
    }

    /// A connection that shows `identity` and speaks HTTP/2.
    pub async fn http2(&self, identity: Option<&Pair>) -> http2::SendRequest<TestBody> {
        let config = self.authorities.client_tls(identity).config(&[H2]);
        http2(self.connect(config).await).await
    }

    /// What the service saw of the connection on which `path` was asked for.
    pub fn info(&self, path: &str) -> ConnectionInfo {
        self.infos.lock().unwrap().get(path).expect("a request of this path").clone()
    }

    /// The info of one request over a new HTTP/2 connection.
    pub async fn info_of(&self, identity: Option<&Pair>) -> ConnectionInfo {
        let mut sender = self.http2(identity).await;
        let response = soon(sender.send_request(get("/who"))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        self.info("/who")
    }
}

pub type TestBody = http_body_util::Either<Empty<Bytes>, Full<Bytes>>;

pub fn get(path: &str) -> Request<TestBody> {
    let body = TestBody::Left(Empty::new());
    Request::builder()
        .uri(format!("https://{SERVER_NAME}{path}"))
        .header("host", SERVER_NAME)
        .body(body)
        .unwrap()
}

pub async fn http1(stream: TlsStream<TcpStream>) -> http1::SendRequest<TestBody> {
    let (sender, connection) = soon(http1::handshake(TokioIo::new(stream))).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub async fn http2(stream: TlsStream<TcpStream>) -> http2::SendRequest<TestBody> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = soon(handshake).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub async fn text(response: Response<Incoming>) -> String {
    let bytes = soon(response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}
