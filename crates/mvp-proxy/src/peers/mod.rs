//! Peers: which of them gets a request, and which one is next when that fails. Entry item: [`Peers`].
//!
//! A request that no member can have processed is sent to each candidate in turn. One that a member
//! may have processed is sent to one more, and only if it is a read. Retries are paid from a budget.

mod budget;
mod fair;
mod flow;
mod gate;
mod health;
mod order;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use mvp_core::decide::Candidates;
use mvp_core::member::{Member, MemberKind, Presence};
use mvp_core::{RequestInfo, Snapshot};
use mvp_net::ConnectionInfo;

use budget::Budget;
pub(crate) use health::{Answered, Health};
use health::{MemberHealth, Standing};
use order::{Choice, Kind, order};
use turn::Call;
pub use turn::PeerLimits;

use crate::body::Body;
use crate::envelope::Envelope;
use crate::error::{SendError, Stage};
use crate::gateway::{self, Refusal};
use crate::metrics::Metrics;
use crate::trace::{Forward, Trace};
use crate::upstream::client::Client;
use crate::upstream::{Delivery, Forwarder, Opened, Outgoing, Target};

/// The peers of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    forwarder: Arc<Forwarder>,
    health: Health,
    metrics: Arc<Metrics>,
    budget: Arc<Budget>,
    next: Arc<AtomicUsize>,
}

/// No peer responded.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// All that could be asked were, or the request must not be sent again. The IDs of those tried.
    Tried(Vec<String>),
    /// The request could not be sent again: its body is not kept.
    BodyGone,
}

/// The response, and the ID of the member that sent it.
type Sent = Result<(Arc<str>, Response<Body>), Unanswered>;

impl Peers {
    /// Peers that are reached through `forwarder`.
    pub(crate) fn new(forwarder: Arc<Forwarder>, health: Health, metrics: Arc<Metrics>) -> Peers {
        Peers { forwarder, health, metrics, budget: Arc::default(), next: Arc::default() }
    }

    /// Notes a request of any kind: it adds to the retry budget.
    pub(crate) fn note_request(&self) {
        self.budget.request();
    }

    /// Takes a retry from the budget. A refusal is counted.
    pub(crate) fn may_fail_over(&self) -> bool {
        let may = self.budget.take(self.health.now());
        if !may {
            self.metrics.over_budget();
        }
        may
    }

    /// Sends a request to the best candidate, and to the next one where `delivery` allows that.
    pub(crate) async fn send(
        &self,
        candidates: &Candidates<'_>,
        info: &RequestInfo<'_>,
        outgoing: &Outgoing<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Sent {
        let kind = Kind::of(info);
        let connection = outgoing.parts.extensions.get::<ConnectionInfo>();
        let sticky = connection.and_then(Client::of).map(|client| &client.sticky);
        let sticky = sticky.and_then(|sticky| Some((sticky, sticky.resource(info)?)));
        let stays = sticky.and_then(|(sticky, resource)| sticky.member(resource));
        let choices = self.order(candidates.iter(), kind, stays.as_deref(), delivery);
        let request = |_: &Member| outgoing.attempt();
        let call = Call { sticky, ..Call::of(outgoing, kind) };
        self.send_to(&choices, call, delivery, request).await
    }

    /// Sends a request to any member.
    pub(crate) async fn send_any(
        &self,
        snapshot: &Snapshot,
        outgoing: &Outgoing<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Sent {
        let request = |_: &Member| outgoing.attempt();
        let choices = self.order(present(snapshot), Kind::Read, None, delivery);
        self.send_to(&choices, Call::of(outgoing, Kind::Read), delivery, request).await
    }

    /// Asks any peer in place of the local server. The request may depend on the member.
    pub(crate) async fn ask_any(
        &self,
        snapshot: &Snapshot,
        trace: Option<&Trace>,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let local = snapshot.local().map(|local| &local.id);
        let others = present(snapshot).filter(|member| Some(&member.id) != local);
        self.ask(others, trace, request).await
    }

    /// Asks one peer.
    pub(crate) async fn ask_one(
        &self,
        member: &Member,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        self.ask(std::iter::once(member), None, request).await
    }

    async fn ask<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        trace: Option<&Trace>,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let mut delivery = Delivery::of_read();
        let choices = self.order(members, Kind::Read, None, &delivery);
        let own = Call { kind: Kind::Read, client: None, lasting: None, sticky: None };
        let request = |member: &Member| Some(Envelope { trace, ..request(member).into() });
        self.send_to(&choices, own, &mut delivery, request).await
    }

    /// Whether a member is neither ejected nor unready.
    pub(crate) fn is_healthy(&self, member: &Member) -> bool {
        let standing = self.health.of(&member.id).standing(|| false, self.health.now());
        standing == Standing::Healthy
    }

    /// The connections to peers, and their health.
    pub(crate) fn ways(&self) -> (Arc<Forwarder>, Health) {
        (Arc::clone(&self.forwarder), self.health.clone())
    }

    fn order<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        kind: Kind,
        sticky: Option<&str>,
        delivery: &Delivery<'_>,
    ) -> Vec<Choice<'a>> {
        // Reads are spread where nothing else decides.
        let turn = if kind == Kind::Write { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let may_try = || delivery.may_retry();
        order(members, &self.health, kind, sticky, may_try, turn, self.health.now())
    }

    /// Sends a request to the first member, and to the next ones where `delivery` allows that.
    async fn send_to<'a>(
        &self,
        choices: &[Choice<'_>],
        call: Call<'_>,
        delivery: &mut Delivery<'_>,
        request: impl Fn(&Member) -> Option<Envelope<'a>>,
    ) -> Sent {
        let mut tried: Vec<String> = Vec::new();
        let mut failed: Option<Stage> = None;
        let mut unready = None;
        let mut choices = choices.iter();
        let mut next = choices.next();
        while let Some(choice @ Choice { member, health }) = next {
            let Some(target) = Target::peer(member) else {
                next = choices.next();
                continue;
            };
            // A refusal has cost nobody anything; other retries are paid from the budget.
            if failed.is_some_and(|stage| !stage.is_refusal()) && !self.may_fail_over() {
                break;
            }
            let Some(request) = request(member) else { return Err(Unanswered::BodyGone) };
            let sent = match self.exchange(&target, health, call, request).await {
                Ok(response) => {
                    self.metrics.failed_over(failed, true);
                    Ok(response)
                }
                Err(error) => error.into_response(),
            };
            let error = match sent {
                Ok(response) => return Ok((Arc::clone(&member.id), response)),
                Err(error) => error,
            };
            self.metrics.failed_over(failed, false);
            tracing::debug!(%error, "peer sends no response");
            // A server that is leaving gives requests back; its successor may listen there already.
            let again = error.stage == Stage::NotSent && !tried.iter().any(|id| **id == *member.id);
            tried.push(error.member.to_string());
            if !delivery.failed(error.stage) {
                return Err(Unanswered::by(tried));
            }
            failed = Some(error.stage);
            if error.stage == Stage::Unready {
                unready = unready.or(Some(choice));
            }
            if !again {
                next = choices.next();
            }
        }
        match unready {
            Some(choice) => match self.insist(choice, call, delivery, request).await {
                Some(response) => Ok((Arc::clone(&choice.member.id), response)),
                None => Err(Unanswered::by(tried)),
            },
            None => Err(Unanswered::by(tried)),
        }
    }

    /// Makes a member serve a request although its server is unready: nobody is ready.
    async fn insist<'a>(
        &self,
        Choice { member, health }: &Choice<'_>,
        call: Call<'_>,
        delivery: &mut Delivery<'_>,
        request: impl Fn(&Member) -> Option<Envelope<'a>>,
    ) -> Option<Response<Body>> {
        let target = Target::peer(member)?;
        let request = Envelope { insists: true, ..request(member)? };
        let sent = self.exchange(&target, health, call, request).await;
        match sent.or_else(SendError::into_response) {
            Ok(response) => Some(response),
            Err(error) => {
                delivery.failed(error.stage);
                None
            }
        }
    }

    /// Sends one request to one member, and notes what that says about its health.
    async fn exchange(
        &self,
        target: &Target,
        health: &Arc<MemberHealth>,
        call: Call<'_>,
        mut request: Envelope<'_>,
    ) -> Result<Response<Body>, SendError> {
        let place = match health.gate(call.lasts()).try_enter() {
            Some(place) => place,
            // In a box: it is rare, and would make the future of every request larger.
            None => Box::pin(self.take_turn(target, health, call)).await?,
        };
        let forwarded = self.metrics.forwarded();
        let began = self.health.now();
        let member = Some((&*target.id, &*target.address));
        let traced = Forward::begin(request.trace, &mut request.request, member);
        let sent = self.forwarder.forward(target, request).await;
        let sent = sent.and_then(|response| self.unless_refused(target, health, response));
        if let Some(traced) = traced {
            traced.end(sent.as_ref(), Opened::of(&sent));
        }
        match sent {
            Ok(mut response) => {
                gateway::unmark(&mut response);
                self.note_load(health, call, &place, &response);
                // Not for a response of our own, such as the 429 of a full member.
                if let Some((sticky, resource)) = call.sticky {
                    sticky.stay(resource, &target.id);
                }
                if call.kind == Kind::Read && response.extensions().get::<Opened>().is_none() {
                    let now = self.health.now();
                    health.measure(now.since(began), now);
                }
                self.health.answered(&target.id, health, Answered::Request);
                Ok(response.map(|body| body.with_guard((forwarded, place))))
            }
            Err(error) => {
                if error.stage.is_of_server() {
                    self.health.failed(&target.id, health, error.stage);
                }
                Err(error)
            }
        }
    }

    /// The response, unless a gateway says in it that it refused the request or that its server
    /// sent none.
    fn unless_refused(
        &self,
        target: &Target,
        health: &MemberHealth,
        response: Response<Body>,
    ) -> Result<Response<Body>, SendError> {
        if target.kind != MemberKind::Mvp {
            return Ok(response);
        }
        let error = |stage, cause| Err(SendError::new(&target.id, stage, cause));
        match Refusal::of(response.headers()) {
            Some(Refusal::Down) => {
                self.health.failed(&target.id, health, Stage::Refused);
                error(Stage::Refused, "its server is down")
            }
            Some(Refusal::Unready) => {
                health.mark_unready(self.health.now());
                error(Stage::Unready, "its server is unready")
            }
            Some(Refusal::ThisRequest) => error(Stage::Refused, "it refused this request"),
            None if gateway::is_lost(response.headers()) => {
                error(Stage::Exchange, "its server sent no response")
            }
            None => Ok(response),
        }
    }
}

impl Unanswered {
    fn by(mut tried: Vec<String>) -> Unanswered {
        tried.dedup();
        Unanswered::Tried(tried)
    }

    /// The IDs of the members that were tried.
    pub(crate) fn tried(self) -> Vec<String> {
        match self {
            Unanswered::Tried(tried) => tried,
            Unanswered::BodyGone => Vec::new(),
        }
    }
}

/// The members that can be asked for what any member knows. One that was never seen may not exist,
/// so it is asked only if none was seen.
fn present(snapshot: &Snapshot) -> impl Iterator<Item = &Member> {
    let present = |member: &&Member| member.presence == Presence::Present;
    let seen = |member: &&Member| member.view.api.is_some() || member.view.apis.is_some();
    let any_seen = snapshot.members().filter(present).any(|member| seen(&member));
    snapshot.members().filter(present).filter(move |member| !any_seen || seen(member))
}
