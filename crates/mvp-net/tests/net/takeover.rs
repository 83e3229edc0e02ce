//! A port changes hands, and no client is refused, reset or left without an answer.

use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_net::{Drained, Limits, ReloadableTls, bind_workers, serve};
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::support::{Authorities, H1, H2, TestBody, get, soon};

const WORKERS: usize = 2;
const CLIENTS: usize = 8;
const GENERATIONS: usize = 6;

/// One process' worth of workers.
struct Generation {
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<Drained>>,
    answered: Arc<AtomicUsize>,
}

impl Generation {
    fn start(address: SocketAddr, authorities: &Authorities) -> (Generation, SocketAddr) {
        let tls = ReloadableTls::new(authorities.server_tls());
        let shutdown = CancellationToken::new();
        let answered = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answered);
        let service = service_fn(move |_: Request<Incoming>| {
            counter.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::from("well"))))
        });
        let listeners = bind_workers(address, WORKERS, true).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let spawn = |listener| {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (tls, service) = (tls.clone(), service.clone());
            tokio::spawn(serve(listener, tls, Limits::default(), service, shutdown.clone()))
        };
        let tasks = listeners.into_iter().map(spawn).collect();
        (Generation { shutdown, tasks, answered }, address)
    }

    async fn answers(&self) {
        soon(async {
            while self.answered.load(Ordering::SeqCst) < 200 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_notices_that_a_port_changes_hands() {
    let authorities = Arc::new(Authorities::new());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (mut current, address) = Generation::start(any, &authorities);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (authorities, over) = (Arc::clone(&authorities), Arc::clone(&over));
            let kind = (number % 2 == 0, number % 4 < 2);
            tokio::spawn(async move { ask(address, &authorities, kind, &over).await })
        })
        .collect();

    for _ in 0..GENERATIONS {
        current.answers().await;
        let (next, _) = Generation::start(address, &authorities);
        current.shutdown.cancel();
        for task in current.tasks {
            assert_eq!(soon(task).await.unwrap(), Drained { cut: 0 });
        }
        current = next;
    }
    current.answers().await;
    over.store(true, Ordering::SeqCst);
    let mut failures = Vec::new();
    for client in clients {
        failures.extend(soon(client).await.unwrap());
    }
    assert!(failures.is_empty(), "{} failed: {failures:#?}", failures.len());
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A connection over HTTP/1.1, to be used again, or one over HTTP/2.
struct Connection {
    sender: Option<Sender>,
    task: JoinHandle<hyper::Result<()>>,
}

enum Sender {
    Http1(http1::SendRequest<TestBody>),
    Http2(http2::SendRequest<TestBody>),
}

impl Connection {
    async fn open(
        address: SocketAddr,
        authorities: &Authorities,
        http2: bool,
    ) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(address).await?;
        let config = authorities.client_tls(None).config(&[if http2 { H2 } else { H1 }]);
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let stream = TokioIo::new(TlsConnector::from(config).connect(name, stream).await?);
        let (sender, task) = if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            (Sender::Http2(sender), tokio::spawn(connection))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            (Sender::Http1(sender), tokio::spawn(connection))
        };
        Ok(Connection { sender: Some(sender), task })
    }

    /// Whether the server has not said that it ends.
    async fn lasts(&mut self) -> bool {
        match &mut self.sender {
            Some(Sender::Http1(sender)) => sender.ready().await.is_ok(),
            Some(Sender::Http2(sender)) => sender.ready().await.is_ok(),
            None => false,
        }
    }

    /// One request; nothing where it is to be sent again.
    async fn ask(&mut self) -> Result<Option<()>, Failure> {
        let mut sent: Pin<Box<dyn Future<Output = _> + Send>> = match &mut self.sender {
            Some(Sender::Http1(sender)) => Box::pin(sender.try_send_request(get("/"))),
            Some(Sender::Http2(sender)) => Box::pin(sender.try_send_request(get("/"))),
            None => return Ok(None),
        };
        let answer = tokio::select! {
            biased;
            answer = &mut sent => answer,
            // A request that hyper was given just when the connection ended can be left in its
            // channel until no sender is left.
            _ = &mut self.task => {
                self.sender = None;
                sent.await
            }
        };
        let response = match answer {
            Ok(response) => response,
            Err(error) if error.message().is_some() || is_unprocessed(error.error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into_error().into()),
        };
        assert_eq!(response.into_body().collect().await?.to_bytes(), "well");
        Ok(Some(()))
    }
}

/// Asks without a pause, over connections that are kept or over new ones.
async fn ask(
    address: SocketAddr,
    authorities: &Authorities,
    (http2, keeps): (bool, bool),
    over: &AtomicBool,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut kept: Option<Connection> = None;
    while !over.load(Ordering::SeqCst) {
        let outcome = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::open(address, authorities, http2).await?,
            };
            let answered = connection.ask().await?.is_some();
            if keeps && answered && connection.lasts().await {
                kept = Some(connection);
            }
            Ok::<_, Failure>(())
        };
        if let Err(error) = outcome.await {
            failures.push(format!("http2 {http2}, kept {keeps}: {error:?}"));
        }
    }
    failures
}

/// The server ends the connection, and has not looked at the request: every client sends it again.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_remote() && cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR)
    })
}
