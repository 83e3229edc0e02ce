//! The data path of one request: decide → act → absorb, until it is served. Entry item:
//! [`Exchange::serve`].

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
#[cfg(not(test))]
use mvp_core::decide;
use mvp_core::decide::{Action, Asked, Decision, Denial, LocalHealth, OnNotFound, Origin, Reason};
use mvp_core::discovery::negotiate::{Form, asks_nopeer};
use mvp_core::member::Member;
use mvp_core::not_found::NotFound;
use mvp_core::{RequestInfo, Snapshot, Timestamp};

use super::answer;
use super::denied::Denied;
use super::outgoing::outgoing;
use super::progress::{
    Attempt, MAX_ROUNDS, Mark, Next, Outcome, Progress, Served, body_gone, health_for, is_believed,
};
use super::refuse::refuse;
use super::traced;
use crate::body::Body;
use crate::control::SnapshotReader;
use crate::envelope::Lasting;
use crate::error::{SendError, Stage};
use crate::gateway::{INSISTS, mark_lost, mark_refused};
use crate::identity::Identity;
use crate::local::{Local, LocalSlot};
use crate::metrics::{Metrics, Record, ServedBy};
#[cfg(test)]
use crate::missing::decide;
use crate::peers::{Peers, Unanswered};
use crate::probe::LocalState;
use crate::status;
use crate::trace::Trace;
use crate::upstream::{Delivery, Outgoing, Replay, inspect_not_found};

/// What all requests of a layer share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) reader: SnapshotReader,
    /// Without peers, the layer passes every request to the local server.
    pub(super) peers: Option<Peers>,
    pub(super) slot: LocalSlot,
    /// Without one, the local server counts as ready.
    pub(super) local_state: Option<LocalState>,
    /// Tells peers which process responds.
    pub(super) instance: Option<HeaderValue>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether requests can have a trace.
    pub(super) traced: bool,
}

/// A request as it arrived.
pub(super) struct Arrived {
    pub(super) parts: Parts,
    pub(super) body: Replay,
    pub(super) identity: Identity,
    pub(super) origin: Origin,
    pub(super) at: Timestamp,
    /// The trace that it belongs to, if it is traced.
    pub(super) trace: Option<Trace>,
}

/// One request on its way.
pub(super) struct Exchange<'a> {
    pub(super) shared: &'a Shared,
    pub(super) peers: &'a Peers,
    pub(super) request: &'a Arrived,
    pub(super) info: RequestInfo<'a>,
    /// The client accepts only what the local server itself serves (`profile=nopeer`).
    nopeer: bool,
}

/// Serves a request.
pub(super) async fn serve(shared: &Shared, request: &Arrived, mut local: Local) -> Response<Body> {
    let parts = &request.parts;
    let info = RequestInfo::parse(parts.method.as_str(), parts.uri.path(), parts.uri.query());
    let Some(peers) = &shared.peers else {
        let outgoing = outgoing(request, &info, &shared.reader.load());
        let sent = send_local(&mut local, &outgoing, false).await;
        return sent.map_or_else(body_gone, |sent| sent.unwrap_or_else(no_response));
    };
    peers.note_request();
    let nopeer = accepts_only_local(parts, &info);
    if nopeer && matches!(info, RequestInfo::Discovery(_)) {
        shared.metrics.nopeer_requested();
    }
    Exchange { shared, peers, request, info, nopeer }.serve(&mut local).await
}

impl Exchange<'_> {
    /// The data path.
    async fn serve(&self, local: &mut Local) -> Response<Body> {
        let Exchange { shared, request, info, .. } = self;
        let mut snapshot = shared.reader.load();
        let outgoing = outgoing(request, info, &snapshot);
        let mut progress = Progress::new(info, &request.parts);
        for _ in 0..MAX_ROUNDS {
            let denials = progress.denied.as_denials();
            let health = progress.local_health(self.local_health());
            let began = self.step_begins();
            let decision = decide(info, &snapshot, self.asked(health, &denials));
            let summary = decision.summary();
            self.step_ends(began, |trace, began| trace.decided(began, &summary));
            let is_answer = matches!(decision.action, Action::Answer);
            let round = Round { decision, snapshot: &snapshot, outgoing: &outgoing };
            let lost = progress.local_lost;
            let attempt = self.act(&round, &mut progress.delivery, lost, local).await;
            drop(denials);
            let budget = || self.peers.may_fail_over();
            match progress.absorb(summary, attempt, shared.reader.now(), budget) {
                Next::Done(served) => return self.finish(served, &snapshot, &progress.denied),
                // A document was fetched again, and nobody lists what it is about any more.
                Next::Again if is_answer => snapshot = shared.reader.load(),
                Next::Again => {}
                Next::Refresh => {
                    let health = progress.local_health(self.local_health());
                    let began = self.step_begins();
                    snapshot = Box::pin(self.refresh(&progress.denied, health)).await;
                    self.step_ends(began, Trace::refreshed);
                }
            }
        }
        self.finish(progress.give_up(), &snapshot, &progress.denied)
    }

    /// Carries out a decision.
    async fn act(
        &self,
        round: &Round<'_>,
        delivery: &mut Delivery<'_>,
        local_lost: Option<Stage>,
        local: &mut Local,
    ) -> Attempt {
        let Round { decision, snapshot, outgoing } = round;
        if decision.action.kind().sends() && !delivery.may_send() {
            return Attempt::MustNotSend;
        }
        match decision.action {
            Action::Local { nopeer } => self.ask_local(round, ServedBy::Local, nopeer, local).await,
            Action::AskLocal => self.ask_local(round, ServedBy::AskedLocal, false, local).await,
            Action::Peers(candidates) => {
                // In a box: it would make the future of every request larger.
                let sent = self.peers.send(&candidates, &self.info, outgoing, delivery);
                let sent = Box::pin(sent).await;
                self.shared.metrics.failed_over(local_lost, sent.is_ok());
                let unready = decision.reason == Reason::LocalNotReady;
                match sent {
                    Ok((member, response)) => {
                        self.doubt(decision, ServedBy::Peer, Some(member), response).await
                    }
                    // An unready server may still answer where nobody else does.
                    Err(_) if unready && delivery.may_send() => {
                        self.ask_local(round, ServedBy::Local, false, local).await
                    }
                    Err(failed) => failed.into(),
                }
            }
            Action::AskAny => {
                match Box::pin(self.peers.send_any(snapshot, outgoing, delivery)).await {
                    Ok((member, response)) => {
                        self.doubt(decision, ServedBy::AnyMember, Some(member), response).await
                    }
                    Err(failed) => failed.into(),
                }
            }
            Action::Answer => Box::pin(self.answer(snapshot, local)).await,
            Action::PassNotFound => Attempt::Confirmed,
            Action::Refuse => Attempt::Refused { named: self.at_fault(decision.reason, snapshot) },
        }
    }

    /// Sends the request to the local server.
    async fn ask_local(
        &self,
        round: &Round<'_>,
        by: ServedBy,
        nopeer: bool,
        local: &mut Local,
    ) -> Attempt {
        let Some(sent) = send_local(local, round.outgoing, nopeer).await else {
            return Attempt::BodyGone;
        };
        let member = local_id(round.snapshot);
        match sent.or_else(SendError::into_response) {
            Ok(response) if self.is_premature(round.outgoing, &response) => {
                Attempt::Lost { by, member, stage: Stage::Refused, response }
            }
            Ok(response) => self.doubt(&round.decision, by, member, response).await,
            Err(error) => {
                self.local_failed(&error);
                Attempt::Lost { by, member, stage: error.stage, response: no_response(error) }
            }
        }
    }

    /// Withholds a response if it is a 404 that the decision does not believe.
    async fn doubt(
        &self,
        decision: &Decision<'_>,
        by: ServedBy,
        member: Option<Arc<str>>,
        response: Response<Body>,
    ) -> Attempt {
        let doubts = decision.on_not_found != OnNotFound::PassThrough;
        if response.status() != StatusCode::NOT_FOUND || !doubts {
            return Attempt::Answered { by, member, response };
        }
        let (response, found) = Box::pin(inspect_not_found(response)).await;
        #[cfg(test)]
        let found = crate::missing::found(found);
        let is_head = self.request.parts.method == Method::HEAD;
        match is_believed(decision.summary(), is_head, found) {
            true => Attempt::Answered { by, member, response },
            false => Attempt::NotFound { member, response, unrouted: found == NotFound::Unrouted },
        }
    }

    /// Whether the local server forbids the request because it has only just started: until it has
    /// read its rules, it forbids everything. It processed nothing.
    fn is_premature(&self, outgoing: &Outgoing<'_>, response: &Response<Body>) -> bool {
        response.status() == StatusCode::FORBIDDEN
            // A backend can send a 403, too.
            && outgoing.lasting != Some(Lasting::Relayed)
            && matches!(self.info, RequestInfo::Resource(_))
            && self.shared.local_state.as_ref().is_some_and(LocalState::is_starting)
    }

    /// Notes that the local server sent no response.
    pub(super) fn local_failed(&self, error: &SendError) {
        if let Some(state) = &self.shared.local_state {
            state.failed(error.stage);
        }
    }

    pub(super) fn asked<'d>(&self, local: LocalHealth, denials: &'d [Denial<'d>]) -> Asked<'d> {
        let Arrived { origin, at, .. } = *self.request;
        Asked { origin, nopeer: self.nopeer, arrived: at, local, denials }
    }

    /// The health of the local server.
    pub(super) fn local_health(&self) -> LocalHealth {
        let known = self.shared.local_state.as_ref().map_or(LocalHealth::Ready, LocalState::get);
        health_for(&self.info, known, || self.is_insistent())
    }

    fn is_insistent(&self) -> bool {
        self.request.origin == Origin::Peer && self.request.parts.headers.contains_key(INSISTS)
    }

    /// The members that a refusal names; `None` for those that denied the request.
    fn at_fault(&self, reason: Reason, snapshot: &Snapshot) -> Option<Vec<String>> {
        let ids = |members: &mut dyn Iterator<Item = &Member>| {
            members.map(|member| member.id.to_string()).collect()
        };
        match reason {
            Reason::Unconfirmed => {
                let unconfirmed = snapshot.unconfirmed(self.info.part(), self.request.at);
                Some(ids(&mut { unconfirmed }))
            }
            Reason::Recorded => Some(ids(&mut snapshot.recorded(&self.info))),
            _ => None,
        }
    }

    /// Records how the request ended, and makes its response.
    fn finish(&self, served: Served, snapshot: &Snapshot, denied: &Denied) -> Response<Body> {
        let Served { by, reason, member, outcome, mark } = served;
        let Arrived { parts, body, identity, origin, at, .. } = self.request;
        body.release();
        let (mut response, at_fault) = match outcome {
            Outcome::Response(response) => (response, Vec::new()),
            Outcome::Refusal(named) => (refuse(&self.info, reason, &named, identity), named),
        };
        let record = Record {
            info: &self.info,
            by,
            reason,
            member: member.as_deref(),
            at_fault: &at_fault,
            local_denied: snapshot.local().is_some_and(|local| denied.has(&local.id)),
            snapshot,
            identity,
            status: response.status(),
            arrived: *at,
            parts,
            response: response.headers(),
        };
        if let Some(trace) = &self.request.trace {
            trace.served(traced::served(&record));
        }
        self.shared.metrics.record(&record, self.shared.reader.now());
        if *origin == Origin::Peer {
            match mark {
                Some(Mark::Refused) => mark_refused(&mut response, reason),
                Some(Mark::Lost) => mark_lost(&mut response),
                None => {}
            }
        }
        response
    }
}

impl From<Unanswered> for Attempt {
    fn from(unanswered: Unanswered) -> Attempt {
        match unanswered {
            Unanswered::Tried(tried) => Attempt::Unanswered { tried },
            Unanswered::BodyGone => Attempt::BodyGone,
        }
    }
}

/// A decision, and what it is carried out with.
struct Round<'a> {
    decision: Decision<'a>,
    snapshot: &'a Snapshot,
    outgoing: &'a Outgoing<'a>,
}

/// Sends a request to the local server; `None` if its body is gone. A server that is leaving may give
/// a request back; a new connection may reach its successor.
pub(super) async fn send_local(
    local: &mut Local,
    outgoing: &Outgoing<'_>,
    nopeer: bool,
) -> Option<Result<Response<Body>, SendError>> {
    let request = || {
        let mut envelope = outgoing.attempt()?;
        if nopeer {
            answer::add_nopeer(envelope.request.headers_mut());
        }
        Some(envelope)
    };
    let sent = local.send(request()?).await;
    match &sent {
        Err(error) if error.stage == Stage::NotSent => match request() {
            Some(request) => Some(local.send(request).await),
            None => Some(sent),
        },
        _ => Some(sent),
    }
}

/// The response to a request that the local server did not respond to.
pub(super) fn no_response(error: SendError) -> Response<Body> {
    let error = match error.into_response() {
        Ok(response) => return response,
        Err(error) => error,
    };
    status::unavailable(&format!("the API server {} sent no response", error.member))
}

/// Whether the local server's own document must be passed through. Its older lists are not: during
/// version skew they are false, and the snapshot says better what it serves.
fn accepts_only_local(parts: &Parts, info: &RequestInfo<'_>) -> bool {
    match info {
        RequestInfo::Discovery(path) => {
            answer::accepted(&parts.headers, path).is_some_and(|accepted| {
                accepted.nopeer && accepted.form != Form::Legacy && path.aggregated().is_none()
            })
        }
        RequestInfo::OpenApi(_) => asks_nopeer(answer::accept(&parts.headers)),
        _ => false,
    }
}

fn local_id(snapshot: &Snapshot) -> Option<Arc<str>> {
    snapshot.local().map(|local| Arc::clone(&local.id))
}
