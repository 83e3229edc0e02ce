//! The data path: resolve, decide, then forward, answer or refuse; and again while a 404 is in
//! doubt. [`MixedVersionLayer`] puts it before any API server that is a service.

mod denied;
mod discovery;
mod openapi;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use mvp_core::decide::{Action, Asked, Decision, Denial, LocalHealth, OnNotFound, Origin, Reason};
use mvp_core::discovery::Part;
use mvp_core::discovery::negotiate::{Form, asks_nopeer};
use mvp_core::member::Member;
use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot, Timestamp, Verb, decide};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Body, BodyError};
use crate::control::{LocalState, SnapshotReader};
use crate::data::tunnel::is_asked_for;
use crate::data::{
    Inspected, Lasting, Outgoing, Replay, Unreachable, answer, inspect_not_found, refuse,
};
use crate::error::Stage;
use crate::identity::{Identity, RemoteHeaders};
use crate::local::{LocalSlot, SharedLocal};
use crate::metrics::{Failover, Metrics, Outcome};
use crate::peers::{INSISTS, INSTANCE, Instance, Peers, Replays, mark_lost, mark_refused, unmark};
use crate::status;
use denied::Denied;

/// How long a request waits for a refresh that may prove a 404 false.
const REFRESH_WAIT: Duration = Duration::from_secs(1);

/// A layer that makes an API server a member of a cluster of mixed versions.
#[derive(Debug, Clone)]
pub struct MixedVersionLayer {
    shared: Arc<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    reader: SnapshotReader,
    peers: Option<Peers>,
    local: LocalSlot,
    local_state: Option<LocalState>,
    /// What peers are told, so that one who finds itself knows.
    instance: Option<HeaderValue>,
    metrics: Arc<Metrics>,
}

impl MixedVersionLayer {
    /// A layer that decides by these snapshots and sends to these peers; without any, it is a plain
    /// way through to the server.
    pub fn new(
        reader: SnapshotReader,
        peers: Option<Peers>,
        local: LocalSlot,
        metrics: Arc<Metrics>,
    ) -> MixedVersionLayer {
        let (local_state, instance) = (None, None);
        let shared = Shared { reader, peers, local, local_state, instance, metrics };
        MixedVersionLayer { shared: Arc::new(shared) }
    }

    /// Tells peers which process this is: one that finds itself must not be its own peer.
    #[must_use]
    pub fn with_instance(self, instance: &Instance) -> MixedVersionLayer {
        let shared =
            Shared { instance: Some(instance.header()), ..Arc::unwrap_or_clone(self.shared) };
        MixedVersionLayer { shared: Arc::new(shared) }
    }

    /// Whether the local server can be asked is known; else it is taken for ready, as a server in
    /// the same process is.
    #[must_use]
    pub fn with_local_state(self, state: LocalState) -> MixedVersionLayer {
        let shared = Shared { local_state: Some(state), ..Arc::unwrap_or_clone(self.shared) };
        MixedVersionLayer { shared: Arc::new(shared) }
    }
}

impl<S, R> Layer<S> for MixedVersionLayer
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    type Service = MixedVersion<S>;

    fn layer(&self, inner: S) -> MixedVersion<S> {
        self.shared.local.fill(SharedLocal::new(inner.clone()));
        MixedVersion { shared: Arc::clone(&self.shared), inner }
    }
}

/// An API server that is a member of a cluster of mixed versions.
#[derive(Debug, Clone)]
pub struct MixedVersion<S> {
    shared: Arc<Shared>,
    inner: S,
}

impl<S, R, B> Service<Request<B>> for MixedVersion<S>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone stays behind, unready; the one that was polled ready takes the request.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Some(identity) = parts.extensions.get::<Identity>().cloned() else {
                return Ok(status::internal("the request was not authenticated"));
            };
            let reserved =
                parts.extensions.get::<Arc<RemoteHeaders>>().cloned().unwrap_or_default();
            let origin = parts.extensions.get::<Origin>().copied().unwrap_or(Origin::Client);
            let exchange = Exchange {
                shared: &shared,
                arrived: shared.reader.now(),
                body: Replay::new(Body::new(body), reserved),
                origin,
                identity,
                parts,
            };
            let mut response = exchange.serve(inner).await;
            if let (Origin::Peer, Some(instance)) = (origin, &shared.instance) {
                response.headers_mut().insert(INSTANCE, instance.clone());
            }
            Ok(response)
        })
    }
}

/// One request on its way.
struct Exchange<'a> {
    shared: &'a Shared,
    parts: Parts,
    body: Replay,
    identity: Identity,
    origin: Origin,
    arrived: Timestamp,
}

impl Exchange<'_> {
    /// The data path.
    async fn serve<S, R>(&self, mut local: S) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let info = self.resolve();
        let mut snapshot = self.shared.reader.load();
        let lasting = lasting(&info, &snapshot, self.body.is_empty());
        let outgoing = Outgoing { parts: &self.parts, body: &self.body, lasting };
        let Some(peers) = &self.shared.peers else {
            let response = self.ask_local(&mut local, &outgoing, false).await;
            return response.unwrap_or_else(body_is_gone);
        };
        peers.note_request();
        let nopeer = self.accepts_only_local(&info);
        let mut replays = Replays::IfRead(&info, &self.parts);
        let mut denied = Denied::default();
        let mut held_back = None;
        let mut refreshed = false;
        let mut sent_for_good = false;
        // Nobody can have processed anything of it so far.
        let mut untouched = true;
        // The local server gave this request no answer, and it goes on after that.
        let mut local_lost = None;

        loop {
            let denials = denied.as_denials();
            let health = self.local_health(local_lost);
            let decision = decide(&info, &snapshot, self.asked(nopeer, health, &denials));
            let sends =
                !matches!(decision.action, Action::Answer | Action::PassNotFound | Action::Refuse);
            if sends && sent_for_good {
                return self.refuse(&info, &refused(&decision), &denied.names());
            }
            let (member, response) = match decision.action {
                Action::Answer => {
                    // In a box: it would make every request larger.
                    let answer = Box::pin(self.answer(&info, &snapshot, peers, &mut local));
                    let response = answer.await;
                    self.record(&info, &decision, None, response.status());
                    return response;
                }
                Action::Local { nopeer } => {
                    (local_id(&snapshot), self.ask_local(&mut local, &outgoing, nopeer).await)
                }
                Action::AskLocal => {
                    (local_id(&snapshot), self.ask_local(&mut local, &outgoing, false).await)
                }
                Action::Peers(candidates) => {
                    let sent = peers.send(&candidates, &info, &outgoing, &mut replays).await;
                    self.shared.metrics.failed_over(local_lost, sent.is_ok());
                    let unready = decision.reason == Reason::LocalNotReady;
                    match sent {
                        Ok((member, response)) => (Some(member), Some(response)),
                        // A server that is not ready may still answer where nobody else does.
                        Err(failed) if unready && !failed.sent_for_good => (
                            local_id(&snapshot),
                            self.ask_local(&mut local, &outgoing, false).await,
                        ),
                        Err(failed) => return self.refuse(&info, &decision, &failed.tried),
                    }
                }
                Action::AskAny => match peers.send_any(&snapshot, &outgoing, &mut replays).await {
                    Ok((member, response)) => (Some(member), Some(response)),
                    Err(failed) => return self.refuse(&info, &decision, &failed.tried),
                },
                Action::PassNotFound => {
                    self.record(&info, &decision, None, StatusCode::NOT_FOUND);
                    return held_back.unwrap_or_else(|| status::internal("no 404 was held back"));
                }
                Action::Refuse => {
                    let named = match decision.reason {
                        Reason::Unconfirmed => self.quiet(&info, &snapshot),
                        Reason::Recorded => ids(snapshot.recorded(&info)),
                        _ => denied.names(),
                    };
                    let mut response = self.refuse(&info, &decision, &named);
                    // What was not processed here, a peer may ask another for.
                    match self.origin {
                        Origin::Peer if untouched => mark_refused(&mut response, decision.reason),
                        Origin::Peer if local_lost.is_some() => mark_lost(&mut response),
                        _ => {}
                    }
                    return response;
                }
            };
            let Some(response) = response else {
                let response = body_is_gone();
                self.record(&info, &refused(&decision), member.as_deref(), response.status());
                return response;
            };
            // Row 9: the local server went away, or just came. Where the request may, it goes to a peer.
            if let Some(stage) = self.lost(&response).or_else(|| {
                let premature = self.is_premature(&outgoing, &info, &response);
                (premature && member == local_id(&snapshot)).then_some(Stage::Refused)
            })
                && local_lost.is_none()
                && replays.take(stage)
                // One that was not sent is a new decision; one that was costs somebody twice.
                && (stage.is_unprocessed() || peers.may_fail_over())
            {
                untouched &= stage.is_unprocessed();
                local_lost = Some(Failover::after(stage));
                continue;
            }
            match self.doubt(&decision, response).await {
                Doubt::None(mut response) => {
                    self.record(&info, &decision, member.as_deref(), response.status());
                    self.body.release();
                    let lost = response.extensions().get::<Unreachable>().is_some();
                    if lost && self.origin == Origin::Peer {
                        mark_lost(&mut response);
                    }
                    return response;
                }
                Doubt::NotFound { response, of_routing } => {
                    held_back = Some(response);
                    // Only a 404 of routing proves that nothing was processed.
                    untouched &= of_routing;
                    sent_for_good = !of_routing && (!reads(&info) || is_asked_for(&self.parts));
                }
            }

            // A 404 that proves nothing yet.
            let Some(member) = member else {
                return status::internal("nobody is known to have answered");
            };
            let listed = decision.listed;
            let refresh = decision.on_not_found != OnNotFound::NextIfUnrouted && !refreshed;
            denied.push(member, self.shared.reader.now(), listed);
            if refresh {
                refreshed = true;
                let health = self.local_health(local_lost);
                snapshot = Box::pin(self.refresh(&info, nopeer, health, &denied)).await;
            }
        }
    }

    fn asked<'d>(&self, nopeer: bool, local: LocalHealth, denials: &'d [Denial<'d>]) -> Asked<'d> {
        Asked { origin: self.origin, nopeer, arrived: self.arrived, local, denials }
    }

    /// Whether the local server can be asked, by this request.
    fn local_health(&self, lost: Option<Failover>) -> LocalHealth {
        match (lost, &self.shared.local_state) {
            (Some(_), _) => LocalHealth::Unreachable,
            (None, Some(state)) => match state.get() {
                // Nobody else does it.
                LocalHealth::Unready if self.insists() => LocalHealth::Ready,
                health => health,
            },
            (None, None) => LocalHealth::Ready,
        }
    }

    /// Whether a peer asks for it although the local server is not ready.
    fn insists(&self) -> bool {
        self.origin == Origin::Peer && self.parts.headers.contains_key(INSISTS)
    }

    /// How far a request came that the local server gave no answer to.
    fn lost(&self, response: &Response<Body>) -> Option<Stage> {
        let Unreachable(stage) = response.extensions().get()?;
        if let Some(state) = &self.shared.local_state {
            state.failed(*stage);
        }
        Some(*stage)
    }

    /// Whether the local server forbids it because it has only just started: until it has read its
    /// rules, it forbids what may be done, too. It looked no further.
    fn is_premature(
        &self,
        outgoing: &Outgoing<'_>,
        info: &RequestInfo<'_>,
        response: &Response<Body>,
    ) -> bool {
        response.status() == StatusCode::FORBIDDEN
            // A backend can say it, too.
            && outgoing.lasting != Some(Lasting::Relayed)
            && matches!(info, RequestInfo::Resource(_))
            && self.shared.local_state.as_ref().is_some_and(LocalState::is_starting)
    }

    /// The members that have not said since this request came what they serve.
    fn quiet(&self, info: &RequestInfo<'_>, snapshot: &Snapshot) -> Vec<String> {
        let part = match info {
            RequestInfo::Resource(request) => Part::of_group(&request.group),
            RequestInfo::Discovery(DiscoveryPath::Api) => Part::Api,
            RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, _)) => Part::of_group(group),
            _ => Part::Apis,
        };
        ids(snapshot.unconfirmed(part, self.arrived))
    }

    fn resolve(&self) -> RequestInfo<'_> {
        let uri = &self.parts.uri;
        RequestInfo::parse(self.parts.method.as_str(), uri.path(), uri.query())
    }

    /// Whether the local server's own document is to be passed on. Its older lists are not: during
    /// skew they are false, and what we know of it says better what it serves.
    fn accepts_only_local(&self, info: &RequestInfo<'_>) -> bool {
        let headers = &self.parts.headers;
        match info {
            RequestInfo::Discovery(path) => {
                answer::accepted(headers, path).is_some_and(|accepted| {
                    accepted.nopeer && accepted.form != Form::Legacy && path.aggregated().is_none()
                })
            }
            RequestInfo::OpenApi(_) => asks_nopeer(answer::accept(headers)),
            _ => false,
        }
    }

    /// Sends the request to the local server; nothing where its body is no longer at hand.
    async fn ask_local<S, R>(
        &self,
        local: &mut S,
        outgoing: &Outgoing<'_>,
        nopeer: bool,
    ) -> Option<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let request = || {
            outgoing.attempt_with(|parts| {
                if nopeer {
                    answer::add_nopeer(&mut parts.headers);
                }
            })
        };
        let response = call(local, request()?).await;
        // A server that is leaving may give a request back; a new connection may find its successor.
        let given_back = matches!(response.extensions().get(), Some(Unreachable(Stage::NotSent)));
        if !given_back {
            return Some(response);
        }
        match request() {
            Some(request) => Some(call(local, request).await),
            None => Some(response),
        }
    }

    /// Whether a response is a 404 that the decision tells us to doubt.
    async fn doubt(&self, decision: &Decision<'_>, response: Response<Body>) -> Doubt {
        if response.status() != StatusCode::NOT_FOUND {
            return Doubt::None(response);
        }
        let always = match decision.on_not_found {
            OnNotFound::PassThrough => return Doubt::None(response),
            OnNotFound::Refresh => true,
            // There is no body to tell by: the view has to.
            _ => self.parts.method == Method::HEAD && !decision.listed,
        };
        let Inspected { response, is_it: of_routing } = Box::pin(inspect_not_found(response)).await;
        if always || of_routing {
            Doubt::NotFound { response, of_routing }
        } else {
            Doubt::None(response)
        }
    }

    /// Has the views refreshed until it is settled what to do.
    async fn refresh(
        &self,
        info: &RequestInfo<'_>,
        nopeer: bool,
        health: LocalHealth,
        denied: &Denied,
    ) -> Arc<Snapshot> {
        let settled = |snapshot: &Snapshot| {
            let denials = denied.as_denials();
            match decide(info, snapshot, self.asked(nopeer, health, &denials)).reason {
                Reason::Unconfirmed | Reason::LocalViewUnknown | Reason::NobodyReachable => false,
                // Whoever denied what it lists has to say first that it still does.
                Reason::ViewSuspect => denied.confirmed_since(snapshot),
                _ => true,
            }
        };
        self.shared.reader.refresh(REFRESH_WAIT, settled).await
    }

    fn refuse(
        &self,
        info: &RequestInfo<'_>,
        decision: &Decision<'_>,
        tried: &[String],
    ) -> Response<Body> {
        let reason = match decision.action {
            Action::Refuse => decision.reason,
            _ => Reason::NobodyReachable,
        };
        let response = refuse::refuse(info, reason, tried, &self.identity);
        let refused = Decision { action: Action::Refuse, reason, ..*decision };
        self.record(info, &refused, None, response.status());
        response
    }

    fn record(
        &self,
        info: &RequestInfo<'_>,
        decision: &Decision<'_>,
        member: Option<&str>,
        status: StatusCode,
    ) {
        let parts = &self.parts;
        let outcome = Outcome { info, decision, member, status, arrived: self.arrived, parts };
        self.shared.metrics.record(&outcome, self.shared.reader.now());
    }
}

fn ids<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<String> {
    members.map(|member| member.id.to_string()).collect()
}

/// The response of a service that is ready to be called.
async fn call<S, R>(service: &mut S, request: Request<Body>) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    let ready = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
    match ready {
        Ok(()) => match service.call(request).await {
            Ok(mut response) => {
                unmark(&mut response);
                response.map(Body::new)
            }
            Err(never) => match never {},
        },
        Err(never) => match never {},
    }
}

/// Whether a response is the answer.
enum Doubt {
    /// It is.
    None(Response<Body>),
    /// It is a 404 that must not be passed on yet.
    NotFound { response: Response<Body>, of_routing: bool },
}

/// What becomes of a request that must not be sent again.
fn refused<'a>(decision: &Decision<'a>) -> Decision<'a> {
    Decision { action: Action::Refuse, reason: Reason::ViewSuspect, ..*decision }
}

/// Whether the response lasts, or is not the server's own.
fn lasting(info: &RequestInfo<'_>, snapshot: &Snapshot, no_body: bool) -> Option<Lasting> {
    let request = match info {
        RequestInfo::Resource(request) => request,
        RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, version)) => {
            return snapshot.is_extension(group, version).then_some(Lasting::Relayed);
        }
        _ => return None,
    };
    if request.is_relayed() || snapshot.is_extension(&request.group, &request.version) {
        return Some(Lasting::Relayed);
    }
    // Servers do not read the body of a read: its unread frames could end a shared connection.
    if request.verb.is_read() && !no_body {
        return Some(Lasting::Relayed);
    }
    (request.verb == Verb::Watch).then_some(Lasting::Watch)
}

fn reads(info: &RequestInfo<'_>) -> bool {
    match info {
        RequestInfo::Resource(request) => request.verb.is_read(),
        _ => true,
    }
}

fn local_id(snapshot: &Snapshot) -> Option<Arc<str>> {
    snapshot.local().map(|local| Arc::clone(&local.id))
}

fn body_is_gone() -> Response<Body> {
    status::unavailable("the request cannot be sent again: too much of its body was sent before")
}
