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
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use pin_project_lite::pin_project;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::fault::HeadFault;
use crate::{
    ClientErrors, ClientTrust, ClientWaits, ConnectionInfo, Limits, ReloadableTls, ServerTls,
};

/// The service of one connection.
pub(crate) struct RequestService<S> {
    service: TowerToHyperService<S>,
    client: Client,
    activity: Arc<Activity>,
    errors: ClientErrors,
    /// HTTP/2: the most streams, and where it is counted that all are in use.
    streams: Option<(usize, ClientWaits)>,
}

impl<S> RequestService<S> {
    pub(crate) fn new(
        service: S,
        client: Client,
        activity: Arc<Activity>,
        errors: ClientErrors,
    ) -> Self {
        let service = TowerToHyperService::new(service);
        Self { service, client, activity, errors, streams: None }
    }

    /// Counts how often all streams of the connection are in use.
    pub(crate) fn over_http2(self, limits: &Limits) -> Self {
        let most = usize::try_from(limits.max_concurrent_streams).unwrap_or(usize::MAX);
        Self { streams: Some((most, limits.waits.clone())), ..self }
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
        let fault = self.activity.fault();
        let guard = Some(Guard::new(Arc::clone(&self.activity)));
        if let Some((most, waits)) = &self.streams
            && self.activity.in_flight() == *most
        {
            waits.note_full();
        }
        if let Some(fault) = fault {
            self.errors.note(fault.error());
            let client = self.client.last.load().info.remote();
            let code = fault.code().as_u16();
            tracing::debug!(%client, code, reason = ?fault, "request refused");
            return Answering { answer: None, fault: Some(fault), guard, connect: false };
        }
        request.extensions_mut().insert(self.client.info(UnixTime::now()));
        let connect = request.method() == Method::CONNECT;
        Answering { answer: Some(self.service.call(request)), fault: None, guard, connect }
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
        (remote, local): (SocketAddr, Option<SocketAddr>),
        certificates: Vec<CertificateDer<'static>>,
        http2: bool,
        reloadable: ReloadableTls,
        tls: &ServerTls,
        end: CancellationToken,
    ) -> Self {
        let judgement = tls.trust().judge(&certificates, UnixTime::now());
        let info = ConnectionInfo::new(remote, certificates, judgement);
        let info = info.accepted_at(local).ended_by(end);
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
    /// HTTP/1.1: the number of requests before one with a fault, and the fault.
    fault: OnceLock<(usize, HeadFault)>,
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

    /// Notes that the request after this many others has a fault. No request follows it.
    pub(crate) fn set_fault(&self, before: usize, fault: HeadFault) {
        self.fault.get_or_init(|| (before, fault));
    }

    /// The fault of the request that begins now.
    pub(crate) fn fault(&self) -> Option<HeadFault> {
        self.fault.get().filter(|(before, _)| *before == self.started()).map(|(_, fault)| *fault)
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
        // `None` if the service does not get the request.
        #[pin]
        answer: Option<TowerToHyperServiceFuture<S, Request<Incoming>>>,
        fault: Option<HeadFault>,
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
        let answer = match (this.answer.as_pin_mut(), &this.fault) {
            (Some(answer), _) => answer,
            (None, Some(fault)) => {
                let guard = this.guard.take();
                let response = fault.response();
                return Poll::Ready(Ok(response.map(|body| Counted::refusal(body, guard))));
            }
            // Unreachable: there is one or the other.
            (None, None) => return Poll::Pending,
        };
        let Ok(mut response) = ready!(answer.poll(context));
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
        Poll::Ready(Ok(response.map(|body| Counted { body: Some(body), refusal: None, guard })))
    }
}

pin_project! {
    /// A response body that counts its request as in flight.
    pub(crate) struct Counted<B> {
        // `None` if the service did not get the request.
        #[pin]
        body: Option<B>,
        refusal: Option<Bytes>,
        guard: Option<Guard>,
    }
}

impl<B> Counted<B> {
    fn refusal(body: Bytes, guard: Option<Guard>) -> Self {
        Self { body: None, refusal: Some(body), guard }
    }
}

impl<B: Body<Data = Bytes>> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.body.as_pin_mut() {
            Some(body) => body.poll_frame(context),
            None => Poll::Ready(this.refusal.take().map(|refusal| Ok(Frame::data(refusal)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.refusal.is_none(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let refusal = || self.refusal.as_ref().map_or(0, |refusal| refusal.len() as u64);
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(refusal()), Body::size_hint)
    }
}
