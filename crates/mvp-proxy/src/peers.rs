//! Peers: which of them gets a request, and the next one when that fails. Entry item: [`Peers`].
//!
//! What a member cannot have processed goes to each other one in turn. What it may have processed
//! goes to one other, and only if it changes nothing. Both are paid for out of a budget.

mod budget;
mod health;
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
use crate::data::tunnel::is_asked_for;
use crate::data::{Forwarder, Opened, Replay, Target, broken_off, server_name};
use crate::error::{SendError, Stage};
use crate::metrics::{Failover, Metrics};
use budget::Budget;
pub use health::Health;
use health::{Answered, MemberHealth};
use order::{Choice, Kind, order};
pub use reach::{Reachable, Reached};
use sticky::{Resource, Sticky};

/// Says to a peer that its request was refused, why, and that nothing of it was processed.
pub(crate) const REFUSED: HeaderName = HeaderName::from_static("x-mvp-refused");

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
    /// Whether a request that came so far may go to somebody else.
    pub(crate) fn take(&mut self, stage: Stage) -> bool {
        stage.is_unprocessed()
            || match std::mem::replace(self, Replays::Used) {
                Replays::IfRead(info, parts) => is_read(info, parts),
                Replays::Allowed => true,
                Replays::Used => false,
            }
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
        parts: &Parts,
        body: &Replay,
        replays: &mut Replays<'_>,
    ) -> Sent {
        let kind = match info {
            RequestInfo::Resource(request) if request.verb == Verb::Watch => Kind::Watch,
            RequestInfo::Resource(request) if request.verb.is_read() => Kind::Read,
            _ => Kind::Write,
        };
        let connection = parts.extensions.get::<ConnectionInfo>();
        let sticky = connection.and_then(ConnectionInfo::note::<Sticky>).zip(Resource::of(info));
        let stays = sticky.and_then(|(sticky, resource)| sticky.member(resource));
        let choices = self.order(candidates.iter(), kind, stays.as_deref());
        let request = |_: &Member| body.attempt(parts.clone());
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
        parts: &Parts,
        body: &Replay,
        replays: &mut Replays<'_>,
    ) -> Sent {
        let request = |_: &Member| body.attempt(parts.clone());
        let choices = self.order(present(snapshot), Kind::Read, None);
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
        let choices = self.order(peers, Kind::Read, None);
        let mut replays = Replays::Allowed;
        self.send_to(&choices, Kind::Read, &mut replays, |member| Some(request(member))).await
    }

    fn order<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        kind: Kind,
        sticky: Option<&str>,
    ) -> Vec<Choice<'a>> {
        // Reads are spread where nothing else decides.
        let turn = if kind == Kind::Write { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        order(members, &self.health, kind, sticky, turn, self.health.now())
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
        let mut choices = choices.iter();
        let mut next = choices.next();
        while let Some(Choice { member, health }) = next {
            let Some(target) = target(member) else {
                next = choices.next();
                continue;
            };
            if failover.is_some() && !self.may_fail_over() {
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
            // Nobody can mend what the client sends.
            if error.stage == Stage::Client {
                return Ok((Arc::clone(&member.id), broken_off()));
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
            if !again {
                next = choices.next();
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
        match (sent, refused) {
            (Ok(mut response), None) => {
                response.headers_mut().remove(REFUSED);
                if kind == Kind::Read && response.extensions().get::<Opened>().is_none() {
                    let now = self.health.now();
                    health.measure(now.since(began), now);
                }
                self.health.answered(&target.id, health, Answered::Request);
                Ok(response.map(|body| body.keeping(under_way)))
            }
            (Ok(_), Some(refused)) => {
                if refused.is_down {
                    self.health.failed(&target.id, health, Stage::Refused);
                }
                Err(SendError::new(target, Stage::Refused, refused.reason))
            }
            (Err(error), _) => {
                // That we cannot say who the caller is, is no fault of the member's, nor what he sends.
                if !matches!(error.stage, Stage::Identity | Stage::Client) {
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
    /// The server behind it is down: it will refuse others too.
    is_down: bool,
}

/// Whether a response is such a refusal. Only a gateway is believed.
pub(crate) fn refused_by(kind: MemberKind, response: &Response<Body>) -> Option<RefusedBy> {
    let reason = response.headers().get(REFUSED).filter(|_| kind == MemberKind::Mvp)?;
    let reason = String::from_utf8_lossy(reason.as_bytes()).into_owned();
    Some(RefusedBy { is_down: reason == Reason::LocalDown.as_str(), reason })
}

/// Says in a refusal to a peer that nothing was processed.
pub(crate) fn mark_refused(response: &mut Response<Body>, reason: Reason) {
    response.headers_mut().insert(REFUSED, HeaderValue::from_static(reason.as_str()));
}

fn present(snapshot: &Snapshot) -> impl Iterator<Item = &Member> {
    snapshot.members().filter(|member| member.presence == Presence::Present)
}

fn target(member: &Member) -> Option<Target> {
    Some(Target {
        id: Arc::clone(&member.id),
        address: Arc::clone(member.address.as_ref()?),
        server_name: server_name(),
        kind: member.kind,
        local: false,
    })
}
