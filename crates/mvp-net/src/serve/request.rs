//! Passes each request of a connection to the service. Entry: [`RequestService`].
//!
//! It adds the [`ConnectionInfo`], judges the client again if the last judgement no longer holds, and
//! counts requests from their head to the end of their response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use pin_project_lite::pin_project;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::{ClientTrust, ConnectionInfo, ReloadableTls, ServerTls};

/// The service of one connection.
pub(crate) struct RequestService<S> {
    service: TowerToHyperService<S>,
    client: Client,
    activity: Arc<Activity>,
}

impl<S> RequestService<S> {
    pub(crate) fn new(service: S, client: Client, activity: Arc<Activity>) -> Self {
        Self { service: TowerToHyperService::new(service), client, activity }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for RequestService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
{
    type Response = Response<Counted<B>>;
    type Error = Infallible;
    type Future = Answering<S>;

    fn call(&self, mut request: Request<Incoming>) -> Answering<S> {
        request.extensions_mut().insert(self.client.info(UnixTime::now()));
        let guard = Guard::new(Arc::clone(&self.activity));
        let connect = request.method() == Method::CONNECT;
        Answering { answer: self.service.call(request), guard: Some(guard), connect }
    }
}

/// The client of a connection, and its last judgement.
pub(crate) struct Client {
    tls: ReloadableTls,
    last: ArcSwap<Judged>,
}

struct Judged {
    trust: Arc<ClientTrust>,
    info: ConnectionInfo,
}

impl Client {
    /// `tls` was used for the handshake; `reloadable` has the current one.
    pub(crate) fn new(
        remote: SocketAddr,
        certificates: Vec<CertificateDer<'static>>,
        http2: bool,
        reloadable: ReloadableTls,
        tls: &ServerTls,
        end: CancellationToken,
    ) -> Self {
        let judgement = tls.trust().judge(&certificates, UnixTime::now());
        let info = ConnectionInfo::new(remote, certificates, judgement).ended_by(end);
        let info = if http2 { info.over_http2() } else { info };
        let judged = Judged { trust: Arc::clone(tls.trust()), info };
        Self { tls: reloadable, last: ArcSwap::from_pointee(judged) }
    }

    /// Whether the last judgement was a front proxy or a peer.
    pub(crate) fn is_front_proxy(&self) -> bool {
        self.last.load().info.judgement().front_proxy
    }

    /// The connection info, judged with the current CAs at `now`.
    fn info(&self, now: UnixTime) -> ConnectionInfo {
        let last = self.last.load();
        if last.info.certificates().is_empty() {
            return last.info.clone();
        }
        let trust = self.tls.current();
        let trust = trust.trust();
        let expired = last.info.judgement().valid_until.is_some_and(|until| now >= until);
        if Arc::ptr_eq(&last.trust, trust) && !expired {
            return last.info.clone();
        }
        let judgement = trust.judge(last.info.certificates(), now);
        let info = last.info.clone().with_judgement(judgement);
        self.last.store(Arc::new(Judged { trust: Arc::clone(trust), info: info.clone() }));
        info
    }
}

/// The activity of a connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    started: AtomicUsize,
    answered: AtomicUsize,
    in_flight: AtomicUsize,
    upgraded: AtomicBool,
    /// HTTP/1.1: once this is cancelled, responses carry `Connection: close`.
    end: OnceLock<CancellationToken>,
}

impl Activity {
    /// Marks an HTTP/1.1 connection that ends with `end`.
    pub(crate) fn ends_with(&self, end: &CancellationToken) {
        self.end.get_or_init(|| end.clone());
    }

    /// The number of requests so far.
    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::Acquire)
    }

    /// The number of requests whose response has begun.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Acquire)
    }

    /// The number of requests whose response has not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Requests so far and in flight. If they are equal at two times with none in flight, none was in
    /// flight in between.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.started(), self.in_flight())
    }

    /// Whether the connection was upgraded and no longer carries HTTP.
    pub(crate) fn upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Acquire)
    }

    fn leaves(&self) -> bool {
        self.end.get().is_some_and(CancellationToken::is_cancelled)
    }
}

/// Counts one request as in flight until it is dropped.
pub(crate) struct Guard(Arc<Activity>);

impl Guard {
    pub(crate) fn new(activity: Arc<Activity>) -> Self {
        activity.in_flight.fetch_add(1, Ordering::AcqRel);
        activity.started.fetch_add(1, Ordering::AcqRel);
        Self(activity)
    }

    /// Notes that the connection is upgraded.
    pub(crate) fn upgrades(&self) {
        self.0.upgraded.store(true, Ordering::Release);
    }

    /// Notes that the response begins.
    pub(crate) fn answers(&self) {
        self.0.answered.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

pin_project! {
    /// The future of the response.
    pub(crate) struct Answering<S>
    where
        S: Service<Request<Incoming>>,
    {
        #[pin]
        answer: TowerToHyperServiceFuture<S, Request<Incoming>>,
        guard: Option<Guard>,
        connect: bool,
    }
}

impl<S, B> Future for Answering<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
{
    type Output = Result<Response<Counted<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.answer.poll(context));
        let status = response.status();
        let upgrades =
            status == StatusCode::SWITCHING_PROTOCOLS || (*this.connect && status.is_success());
        if upgrades && let Some(guard) = this.guard {
            guard.upgrades();
        }
        let guard = this.guard.take();
        if let Some(guard) = &guard {
            guard.answers();
        }
        if !upgrades && guard.as_ref().is_some_and(|guard| guard.0.leaves()) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| Counted { body, guard })))
    }
}

pin_project! {
    /// A response body that counts its request as in flight.
    pub(crate) struct Counted<B> {
        #[pin]
        body: B,
        guard: Option<Guard>,
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
