//! A server controlled by the test: it counts its connections, and can be stopped and started
//! again. Over HTTP/2 it closes the connection after every 401, as kube-apiserver does.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mvp_net::{CertificateDer, Judgement, ReloadableTls, ServerTls, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::pki::PKI;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// A server that runs until it is dropped.
pub(crate) struct Double {
    pub(crate) address: SocketAddr,
    /// The TLS configuration of new connections.
    pub(crate) tls: ReloadableTls,
    /// The client certificate of each open connection.
    shown: Arc<Mutex<Vec<CertificateDer<'static>>>>,
    accepted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    handler: Handler,
    /// What was read from each connection over HTTP/1.1, if it is recorded.
    recorded: Option<Recorded>,
    task: JoinHandle<()>,
}

/// The bytes of each connection.
type Recorded = Arc<Mutex<Vec<Recording>>>;
type Recording = Arc<Mutex<Vec<u8>>>;

impl Double {
    /// Listens on an address; every request carries the [`Judgement`] of its connection.
    pub(crate) async fn start<F, A>(address: SocketAddr, handler: F) -> Double
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        Double::listen(address, None, handler).await
    }

    /// The same. Every byte that arrives over HTTP/1.1 is recorded.
    pub(crate) async fn recording<F, A>(address: SocketAddr, handler: F) -> Double
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        Double::listen(address, Some(Arc::default()), handler).await
    }

    async fn listen<F, A>(address: SocketAddr, recorded: Option<Recorded>, handler: F) -> Double
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let task = tokio::spawn(std::future::ready(()));
        let (accepted, refused, shown) = (Arc::default(), Arc::default(), Arc::default());
        let tls = ReloadableTls::new(PKI.server());
        let mut double = Double { address, tls, shown, accepted, refused, handler, recorded, task };
        double.restart().await;
        double
    }

    /// The number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// The client certificates of open connections.
    pub(crate) fn shown(&self) -> Vec<CertificateDer<'static>> {
        self.shown.lock().unwrap().clone()
    }

    /// The number of open connections with this certificate.
    pub(crate) fn connected(&self, certificate: &CertificateDer<'_>) -> usize {
        self.shown.lock().unwrap().iter().filter(|shown| *shown == certificate).count()
    }

    /// The number of 401 responses.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// The bytes of each connection so far.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        let recorded = self.recorded.as_ref().expect("a recording server");
        let recorded = recorded.lock().unwrap();
        recorded.iter().map(|connection| connection.lock().unwrap().clone()).collect()
    }

    /// Listens again.
    pub(crate) async fn restart(&mut self) {
        let listener = mvp_net::bind(self.address, false).unwrap();
        self.address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (accepted, handler) = (Arc::clone(&self.accepted), Arc::clone(&self.handler));
        let refused = Arc::clone(&self.refused);
        let (tls, shown) = (self.tls.clone(), Arc::clone(&self.shown));
        let recorded = self.recorded.clone();
        self.task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let (tls, shown) = (tls.current(), Arc::clone(&shown));
                let (handler, refused) = (Arc::clone(&handler), Arc::clone(&refused));
                let recording = recorded.as_ref().map(|recorded| {
                    let recording = Recording::default();
                    recorded.lock().unwrap().push(Arc::clone(&recording));
                    recording
                });
                let serving = connection(stream, tls, shown, handler, refused, recording);
                connections.spawn(serving);
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

/// A client certificate, counted while its connection is open.
struct Shown(Arc<Mutex<Vec<CertificateDer<'static>>>>, Option<CertificateDer<'static>>);

impl Shown {
    fn new(
        all: Arc<Mutex<Vec<CertificateDer<'static>>>>,
        certificate: Option<CertificateDer<'static>>,
    ) -> Shown {
        all.lock().unwrap().extend(certificate.clone());
        Shown(all, certificate)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap();
        let own = all.iter().position(|shown| Some(shown) == self.1.as_ref());
        own.map(|own| all.swap_remove(own));
    }
}

async fn connection(
    stream: TcpStream,
    tls: Arc<ServerTls>,
    shown: Arc<Mutex<Vec<CertificateDer<'static>>>>,
    handler: Handler,
    refused: Arc<AtomicUsize>,
    recording: Option<Recording>,
) {
    let _ = stream.set_nodelay(true);
    let accept = TlsAcceptor::from(Arc::clone(tls.config())).accept(stream);
    let Ok(stream) = accept.await else { return };
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let chain = session.peer_certificates().unwrap_or_default();
    let judgement = tls.trust().judge(chain, UnixTime::now());
    let _shown = Shown::new(shown, chain.first().cloned());
    let unauthorized = Arc::new(Notify::new());
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert::<Judgement>(judgement.clone());
        let (answer, unauthorized) = (handler(request), Arc::clone(&unauthorized));
        let refused = Arc::clone(&refused);
        async move {
            let response = answer.await;
            if response.status() == StatusCode::UNAUTHORIZED {
                refused.fetch_add(1, Ordering::SeqCst);
                unauthorized.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(Tap { stream, recording: recording.filter(|_| !http2) });
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
                ending = true;
            }
        }
    }
}

/// A stream whose input is recorded.
struct Tap<S> {
    stream: S,
    recording: Option<Recording>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(recording) = &self.recording {
            recording.lock().unwrap().extend_from_slice(&buffer.filled()[before..]);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
