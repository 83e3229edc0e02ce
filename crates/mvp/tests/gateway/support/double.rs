//! A server that a test holds in its hands: it counts its connections, and can be cut and started
//! again. Over HTTP/2 it ends the connection after every 401, as kube-apiserver does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_net::{ClientTrust, Judgement, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::pki::PKI;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// A server, until it is dropped.
pub(crate) struct Double {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    goaways: Arc<AtomicUsize>,
    handler: Handler,
    task: JoinHandle<()>,
}

impl Double {
    /// Listens on an address; every request carries the [`Judgement`] of its connection.
    pub(crate) async fn start<F, A>(address: SocketAddr, handler: F) -> Double
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let task = tokio::spawn(std::future::ready(()));
        let (accepted, goaways) = (Arc::default(), Arc::default());
        let mut double = Double { address, accepted, goaways, handler, task };
        double.restart().await;
        double
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Connections that it told to end.
    pub(crate) fn goaways(&self) -> usize {
        self.goaways.load(Ordering::SeqCst)
    }

    /// Listens again.
    pub(crate) async fn restart(&mut self) {
        let listener = mvp_net::bind(self.address, false).unwrap();
        self.address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (accepted, handler) = (Arc::clone(&self.accepted), Arc::clone(&self.handler));
        let goaways = Arc::clone(&self.goaways);
        let (tls, trust) = (TlsAcceptor::from(PKI.server()), Arc::new(PKI.trust()));
        self.task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let (tls, trust) = (tls.clone(), Arc::clone(&trust));
                let (handler, goaways) = (Arc::clone(&handler), Arc::clone(&goaways));
                connections.spawn(connection(stream, tls, trust, handler, goaways));
                while connections.try_join_next().is_some() {}
            }
        });
    }

    /// Closes the listener and cuts every connection.
    pub(crate) async fn cut(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    trust: Arc<ClientTrust>,
    handler: Handler,
    goaways: Arc<AtomicUsize>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let chain = session.peer_certificates().unwrap_or_default();
    let judgement = trust.judge(chain, UnixTime::now());
    let unauthorized = Arc::new(Notify::new());
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert::<Judgement>(judgement.clone());
        let (answer, unauthorized) = (handler(request), Arc::clone(&unauthorized));
        async move {
            let response = answer.await;
            if response.status() == StatusCode::UNAUTHORIZED {
                unauthorized.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(stream);
    if !http2 {
        let _ = http1::Builder::new().serve_connection(stream, service).with_upgrades().await;
        return;
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(250);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut ending = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = unauthorized.notified(), if !ending => {
                connection.as_mut().graceful_shutdown();
                goaways.fetch_add(1, Ordering::SeqCst);
                ending = true;
            }
        }
    }
}
