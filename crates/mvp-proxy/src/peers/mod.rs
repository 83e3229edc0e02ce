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

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use mvp_core::decide::Candidates;
use mvp_core::member::{Member, MemberKind, Presence};
use mvp_core::{RequestInfo, Snapshot};
use mvp_net::ConnectionInfo;

use budget::Budget;
use gate::Place;
pub(crate) use health::{Answered, Health};
use health::{MemberHealth, Standing};
use order::{Choice, Kind, order};

use crate::body::Body;
use crate::envelope::{Envelope, Lasting};
use crate::error::{SendError, Stage};
use crate::gateway::{self, Refusal};
use crate::metrics::Metrics;
use crate::upstream::client::{Client, Resource};
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

/// The limits of requests in flight to one member, of all workers together; 0 for none.
///
/// At a limit, users take turns: a request waits for up to a second, then it is refused with 429.
/// `system:masters` never wait, and `system:nodes` have another quarter and come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLimits {
    /// The limit of requests that end soon.
    pub requests: usize,
    /// The limit of watches, and of other requests that may last, such as logs that are followed.
    pub watches: usize,
}

impl PeerLimits {
    /// No limits.
    pub const NONE: PeerLimits = PeerLimits { requests: 0, watches: 0 };
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits { requests: 1000, watches: 10_000 }
    }
}

/// What is the same for all attempts of a request.
#[derive(Clone, Copy)]
struct Call<'a> {
    kind: Kind,
    /// The client's request; `None` for one of our own.
    client: Option<&'a Parts>,
    lasting: Option<Lasting>,
}

impl<'a> Call<'a> {
    fn of(outgoing: &Outgoing<'a>, kind: Kind) -> Call<'a> {
        Call { kind, client: Some(outgoing.parts), lasting: outgoing.lasting }
    }

    fn lasts(&self) -> bool {
        self.kind == Kind::Watch || self.lasting.is_some()
    }
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
        let sticky = sticky.zip(Resource::of(info));
        let stays = sticky.and_then(|(sticky, resource)| sticky.member(resource));
        let choices = self.order(candidates.iter(), kind, stays.as_deref(), delivery);
        let request = |_: &Member| outgoing.attempt();
        let sent = self.send_to(&choices, Call::of(outgoing, kind), delivery, request).await;
        if let (Ok((member, _)), Some((sticky, resource))) = (&sent, sticky) {
            sticky.stay(resource, member);
        }
        sent
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
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let local = snapshot.local().map(|local| &local.id);
        self.ask(present(snapshot).filter(|member| Some(&member.id) != local), request).await
    }

    /// Asks one peer.
    pub(crate) async fn ask_one(
        &self,
        member: &Member,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        self.ask(std::iter::once(member), request).await
    }

    async fn ask<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        request: impl Fn(&Member) -> Request<Body>,
    ) -> Sent {
        let mut delivery = Delivery::of_read();
        let choices = self.order(members, Kind::Read, None, &delivery);
        let own = Call { kind: Kind::Read, client: None, lasting: None };
        self.send_to(&choices, own, &mut delivery, |member| Some(request(member).into())).await
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
        match self.exchange(&target, health, call, request).await {
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
        request: Envelope<'_>,
    ) -> Result<Response<Body>, SendError> {
        let place = match health.gate(call.lasts()).try_enter() {
            Some(place) => place,
            // In a box: it is rare, and would make the future of every request larger.
            None => Box::pin(self.take_turn(target, health, call)).await?,
        };
        let forwarded = self.metrics.forwarded();
        let began = self.health.now();
        let sent = self.forwarder.forward(target, request).await;
        let sent = sent.and_then(|response| self.unless_refused(target, health, response));
        match sent {
            Ok(mut response) => {
                gateway::unmark(&mut response);
                self.note_load(health, call, &place, &response);
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

    /// A place in flight to a member, once it is the user's turn.
    async fn take_turn(
        &self,
        target: &Target,
        health: &MemberHealth,
        call: Call<'_>,
    ) -> Result<Place, SendError> {
        let flow = self.health.flows().of(call.client, &self.forwarder);
        let entered = health.gate(call.lasts()).enter(flow, self.health.now()).await;
        self.metrics.took_turn(entered.is_ok());
        entered.map_err(|refused| {
            let cause = format!("the API server {} is busy: {refused}", target.id);
            SendError::new(&target.id, Stage::Overloaded, cause)
        })
    }

    /// Notes whether a member has too many requests of this user.
    fn note_load(
        &self,
        health: &MemberHealth,
        call: Call<'_>,
        place: &Place,
        response: &Response<Body>,
    ) {
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            place.served();
        } else if !call.lasts() && response.headers().contains_key(RETRY_AFTER) {
            let flow = self.health.flows().of(call.client, &self.forwarder);
            health.gate(false).slow(flow, self.health.now());
            self.metrics.slowed();
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
