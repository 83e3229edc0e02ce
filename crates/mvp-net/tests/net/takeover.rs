//! A port changes hands, and no client is refused, reset or left without an answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_net::{Drained, Limits, ReloadableTls, bind_workers, serve};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::pki::SERVER_NAME;
use crate::support::{Authorities, H1, H2, get, soon};

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
    let failures = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (authorities, over) = (Arc::clone(&authorities), Arc::clone(&over));
            let failures = Arc::clone(&failures);
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    if let Err(error) = once(address, &authorities, number % 2 == 0).await {
                        failures.lock().unwrap().push(format!("{error:?}"));
                    }
                }
            })
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
    for client in clients {
        soon(client).await.unwrap();
    }
    let failures = failures.lock().unwrap();
    assert!(failures.is_empty(), "{} failed: {failures:#?}", failures.len());
}

/// One request over a connection of its own.
async fn once(
    address: SocketAddr,
    authorities: &Authorities,
    http2: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let config = authorities.client_tls(None).config(&[if http2 { H2 } else { H1 }]);
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let stream = TokioIo::new(TlsConnector::from(config).connect(name, stream).await?);
    let response = if http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        sender.send_request(get("/")).await?
    } else {
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        sender.send_request(get("/")).await?
    };
    assert_eq!(response.into_body().collect().await?.to_bytes(), "well");
    Ok(())
}
