//! Peers: which of them gets a request, and the next one when that fails. Entry item: [`Peers`].
//!
//! What a member cannot have processed goes to each other one in turn. What it may have processed
//! goes to one other, and only if it changes nothing. Both are paid for out of a budget.

mod any;
mod budget;
mod health;
mod instance;
mod order;
mod reach;
mod sticky;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use mvp_core::decide::{Candidates, Reason};
use mvp_core::member::{Member, MemberKind, Presence};
use mvp_core::{RequestInfo, Snapshot, Verb};
use mvp_net::ConnectionInfo;

use crate::body::Body;
use crate::client::Client;
use crate::data::tunnel::is_asked_for;
use crate::data::{Forwarder, Opened, Outgoing, Target, server_name};
use crate::error::{SendError, Stage};
use crate::metrics::{Failover, Metrics};
pub use any::AnyMember;
use budget::Budget;
pub use health::Health;
use health::{Answered, MemberHealth};
pub(crate) use instance::{INSTANCE, who};
pub use instance::{Instance, unique};
use order::{Choice, Kind, order};
pub use reach::{Reachable, Reached};
use sticky::Resource;
pub(crate) use sticky::Sticky;

/// Says to a peer that its request was refused, why, and that nothing of it was processed.
pub(crate) const REFUSED: HeaderName = HeaderName::from_static("x-mvp-refused");

/// Says to a peer that the server got its request and gave no answer: it may have been processed.
pub(crate) const LOST: HeaderName = HeaderName::from_static("x-mvp-lost");

/// Asks a peer for what it would rather not do, its server not being ready: nobody else does it.
pub(crate) const INSISTS: HeaderName = HeaderName::from_static("x-mvp-insists");

/// A request that insists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Insists;

/// The way to peers.
#[derive(Debug, Clone)]
pub struct Peers {
    forwarder: Arc<Forwarder>,
    health: Health,
    metrics: Arc<Metrics>,
    budget: Arc<Budget>,
    next: Arc<AtomicUsize>,
}

/// Nobody answered.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// The IDs of those who were tried.
    pub(crate) tried: Vec<String>,
    /// It may have been processed, and must not be sent again.
    pub(crate) sent_for_good: bool,
}

type Sent = Result<(Arc<str>, Response<Body>), Unanswered>;

/// Whether a request that got no answer may be sent again although it may have been processed: once,
/// if at all. Looked into only when it matters.
#[derive(Debug)]
pub(crate) enum Replays<'a> {
    /// It may if this is a read.
    IfRead(&'a RequestInfo<'a>, &'a Parts),
    /// It may.
    Allowed,
    /// It was.
    Used,
}

impl Replays<'_> {
    /// Whether a request may be sent again although it may have been processed.
    fn allow(&self) -> bool {
        match self {
            Replays::IfRead(info, parts) => is_read(info, parts),
            Replays::Allowed => true,
            Replays::Used => false,
        }
    }

    /// Whether a request that came so far may go to somebody else.
    pub(crate) fn take(&mut self, stage: Stage) -> bool {
        stage.is_unprocessed() || std::mem::replace(self, Replays::Used).allow()
    }
}

/// Reads may be sent again; but what opens a way to a container or a backend is no read.
fn is_read(info: &RequestInfo<'_>, parts: &Parts) -> bool {
    let read = matches!(info, RequestInfo::Resource(request)
        if request.verb.is_read()
            && !matches!(&*request.subresource, "exec" | "attach" | "portforward" | "proxy"));
    read && !is_asked_for(parts)
}

impl Peers {
    /// Peers over these connections.
    pub fn new(forwarder: Arc<Forwarder>, health: Health, metrics: Arc<Metrics>) -> Peers {
        Peers { forwarder, health, metrics, budget: Arc::default(), next: Arc::default() }
    }

    /// A request came, whoever will serve it: it adds to what failovers are paid from.
    pub(crate) fn note_request(&self) {
        self.budget.request();
    }

    /// Whether a request may be sent once more; counted if not.
    pub(crate) fn may_fail_over(&self) -> bool {
        let may = self.budget.take(self.health.now());
        if !may {
            self.metrics.over_budget();
        }
        may
    }

    /// Sends a request to the best candidate, and to the next where it may.
    pub(crate) async fn send(
        &self,
        candidates: &Candidates<'_>,
        info: &RequestInfo<'_>,
        outgoing: &Outgoing<'_>,
        replays: &mut Replays<'_>,
    ) -> Sent {
        let kind = match info {
            RequestInfo::Resource(request) if request.verb == Verb::Watch => Kind::Watch,
            RequestInfo::Resource(request) if request.verb.is_read() => Kind::Read,
            _ => Kind::Write,
        };
        let connection = outgoing.parts.extensions.get::<ConnectionInfo>();
        let sticky = connection.and_then(Client::of).map(|client| &client.sticky);
        let sticky = sticky.zip(Resource::of(info));
        let stays = sticky.and_then(|(sticky, resource)| sticky.member(resource));
        let choices = self.order(candidates.iter(), kind, stays.as_deref(), replays);
        let request = |_: &Member| outgoing.attempt();
        let sent = self.send_to(&choices, kind, replays, request).await;
        if let (Ok((member, _)), Some((sticky, resource))) = (&sent, sticky) {
            sticky.stay(resource, member);
        }
        sent
    }

    /// Sends a request to any member at all.
    pub(crate) async fn send_any(
        &self,
        snapshot: &Snapshot,
        outgoing: &Outgoing<'_>,
        replays: &mut Replays<'_>,
    ) -> Sent {
        let request = |_: &Member| outgoing.attempt();
        let choices = self.order(present(snapshot), Kind::Read, None, replays);
        self.send_to(&choices, Kind::Read, replays, request).await
    }

    /// Asks any peer in place of the local server, in words that may depend on whom.
    pub(crate) async fn ask_any(
        &self,
        snapshot: &Snapshot,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let local = snapshot.local().map(|local| &local.id);
        let peers = present(snapshot).filter(|member| Some(&member.id) != local);
        let mut replays = Replays::Allowed;
        let choices = self.order(peers, Kind::Read, None, &replays);
        self.send_to(&choices, Kind::Read, &mut replays, |member| Some(request(member))).await
    }

    /// Asks one peer.
    pub(crate) async fn ask_one(
        &self,
        member: &Member,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let mut replays = Replays::Allowed;
        let choices = self.order(std::iter::once(member), Kind::Read, None, &replays);
        self.send_to(&choices, Kind::Read, &mut replays, |member| Some(request(member))).await
    }

    /// How the control loop, or whoever asks in its stead, reaches them.
    pub(crate) fn ways(&self) -> (Arc<Forwarder>, Health) {
        (Arc::clone(&self.forwarder), self.health.clone())
    }

    fn order<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        kind: Kind,
        sticky: Option<&str>,
        replays: &Replays<'_>,
    ) -> Vec<Choice<'a>> {
        // Reads are spread where nothing else decides.
        let turn = if kind == Kind::Write { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let may_try = || replays.allow();
        order(members, &self.health, kind, sticky, may_try, turn, self.health.now())
    }

    /// Sends a request to the first, and to the next where that gave no answer and it may.
    async fn send_to(
        &self,
        choices: &[Choice<'_>],
        kind: Kind,
        replays: &mut Replays<'_>,
        request: impl Fn(&Member) -> Option<Request<Body>>,
    ) -> Sent {
        let mut unanswered = Unanswered::default();
        let mut failover: Option<Failover> = None;
        let mut refused = false;
        let mut reluctant = None;
        let mut choices = choices.iter();
        let mut next = choices.next();
        while let Some(choice @ Choice { member, health }) = next {
            let Some(target) = target(member) else {
                next = choices.next();
                continue;
            };
            // A refusal has cost nobody anything.
            let costs = failover.is_some() && !refused;
            if costs && !self.may_fail_over() {
                break;
            }
            let Some(request) = request(member) else { break };
            let error = match self.exchange(&target, health, kind, request).await {
                Ok(response) => {
                    self.metrics.failed_over(failover, true);
                    return Ok((Arc::clone(&member.id), response));
                }
                Err(error) => error,
            };
            // Another member would fare no better.
            if let Some(response) = error.response() {
                return Ok((Arc::clone(&member.id), response));
            }
            self.metrics.failed_over(failover, false);
            tracing::debug!(%error, "a peer gave no answer");
            // What a leaving server gave back may go to its successor, once.
            let again = error.stage == Stage::NotSent
                && !unanswered.tried.iter().any(|id| **id == *member.id);
            unanswered.tried.push(error.member.to_string());
            unanswered.sent_for_good = !replays.take(error.stage);
            if unanswered.sent_for_good {
                break;
            }
            failover = Some(Failover::after(error.stage));
            refused = error.stage == Stage::Refused;
            if refused && error.cause == Reason::LocalNotReady.as_str() {
                reluctant = reluctant.or(Some(choice));
            }
            if !again {
                next = choices.next();
            }
        }
        // Nobody is ready: one of them has to, all the same.
        if let Some(Choice { member, health }) = reluctant.filter(|_| !unanswered.sent_for_good)
            && let (Some(target), Some(mut request)) = (target(member), request(member))
        {
            request.extensions_mut().insert(Insists);
            match self.exchange(&target, health, kind, request).await {
                Ok(response) => return Ok((Arc::clone(&member.id), response)),
                Err(error) => unanswered.sent_for_good = !replays.take(error.stage),
            }
        }
        unanswered.tried.dedup();
        Err(unanswered)
    }

    /// One request to one member. How it ends tells how the member does.
    async fn exchange(
        &self,
        target: &Target,
        health: &Arc<MemberHealth>,
        kind: Kind,
        request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let under_way = (self.metrics.passed_on(), health.begin(kind == Kind::Watch));
        let began = self.health.now();
        let sent = self.forwarder.send(target, request).await;
        let refused = sent.as_ref().ok().and_then(|response| refused_by(target.kind, response));
        let sent = sent.and_then(|response| unless_lost(target, response));
        match (sent, refused) {
            (Ok(mut response), None) => {
                unmark(&mut response);
                if kind == Kind::Read && response.extensions().get::<Opened>().is_none() {
                    let now = self.health.now();
                    health.measure(now.since(began), now);
                }
                self.health.answered(&target.id, health, Answered::Request);
                Ok(response.map(|body| body.keeping(under_way)))
            }
            (Ok(_), Some(refused)) => {
                match refused.of_whom {
                    OfWhom::Down => self.health.failed(&target.id, health, Stage::Refused),
                    OfWhom::NotReady => health.is_reluctant(self.health.now()),
                    OfWhom::ThisRequest => {}
                }
                Err(SendError::new(target, Stage::Refused, refused.reason))
            }
            (Err(error), _) => {
                if error.stage.is_of_server() {
                    self.health.failed(&target.id, health, error.stage);
                }
                Err(error)
            }
        }
    }
}

/// A refusal of another gateway, of a request of which it processed nothing.
pub(crate) struct RefusedBy {
    reason: String,
    of_whom: OfWhom,
}

impl RefusedBy {
    pub(crate) fn is_down(&self) -> bool {
        self.of_whom == OfWhom::Down
    }
}

/// What a refusal tells of other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfWhom {
    /// The server behind the gateway is down: it will refuse all.
    Down,
    /// It is not ready: it will refuse what others serve, too.
    NotReady,
    /// Nothing.
    ThisRequest,
}

/// Whether a response is such a refusal. Only a gateway is believed.
pub(crate) fn refused_by(kind: MemberKind, response: &Response<Body>) -> Option<RefusedBy> {
    let reason = response.headers().get(REFUSED).filter(|_| kind == MemberKind::Mvp)?;
    let reason = String::from_utf8_lossy(reason.as_bytes()).into_owned();
    let of_whom = match &*reason {
        reason if reason == Reason::LocalDown.as_str() => OfWhom::Down,
        reason if reason == Reason::LocalNotReady.as_str() => OfWhom::NotReady,
        _ => OfWhom::ThisRequest,
    };
    Some(RefusedBy { of_whom, reason })
}

/// The response, unless a gateway says in it that the server behind it gave none.
fn unless_lost(target: &Target, response: Response<Body>) -> Result<Response<Body>, SendError> {
    if target.kind == MemberKind::Mvp && response.headers().contains_key(LOST) {
        let cause = "the server behind the gateway gave no answer";
        return Err(SendError::new(target, Stage::Exchange, cause));
    }
    Ok(response)
}

/// Says to a peer that its request may have been processed, but got no answer.
pub(crate) fn mark_lost(response: &mut Response<Body>) {
    response.headers_mut().insert(LOST, HeaderValue::from_static("exchange"));
}

/// Takes away what only a gateway may say, of what it did itself.
pub(crate) fn unmark<B>(response: &mut Response<B>) {
    response.headers_mut().remove(REFUSED);
    response.headers_mut().remove(LOST);
    response.headers_mut().remove(INSTANCE);
}

/// Says in a refusal to a peer that nothing was processed.
pub(crate) fn mark_refused(response: &mut Response<Body>, reason: Reason) {
    response.headers_mut().insert(REFUSED, HeaderValue::from_static(reason.as_str()));
}

/// Whoever can be asked for what any member knows. Who never said anything may be nobody.
fn present(snapshot: &Snapshot) -> impl Iterator<Item = &Member> {
    let present = |member: &&Member| member.presence == Presence::Present;
    let seen = |member: &&Member| member.view.api.is_some() || member.view.apis.is_some();
    let any_seen = snapshot.members().filter(present).any(|member| seen(&member));
    snapshot.members().filter(present).filter(move |member| !any_seen || seen(member))
}

pub(crate) fn target(member: &Member) -> Option<Target> {
    Some(Target {
        id: Arc::clone(&member.id),
        address: Arc::clone(member.address.as_ref()?),
        server_name: server_name(),
        kind: member.kind,
        local: false,
    })
}
