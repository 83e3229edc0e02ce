//! The state of one request between rounds: the servers that it was sent to, their outcomes, and what
//! may still be done with it. [`Progress::absorb`] takes the outcome of one round and returns what
//! comes next. There is no I/O here. [`Delivery`] prevents a second send of a write.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use mvp_core::decide::{LocalHealth, OnNotFound, Reason, Summary};
use mvp_core::not_found::NotFound;
use mvp_core::{RequestInfo, Timestamp};

use super::denied::Denied;
use crate::body::Body;
use crate::error::Stage;
use crate::metrics::ServedBy;
use crate::status;
use crate::upstream::Delivery;

/// The number of rounds after which a request is refused. Each round adds a denial, except the one in
/// which the local server fails. This bounds the cost in a large cluster whose members all deny.
pub(super) const MAX_ROUNDS: u32 = 100;

/// The progress of one request.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    /// Members that sent a withheld 404.
    pub(super) denied: Denied,
    /// Whether the request may be sent.
    pub(super) delivery: Delivery<'a>,
    /// How the local server failed this request, if it did: a peer takes its place.
    pub(super) local_lost: Option<Stage>,
    /// The 404 to pass through if it proves true.
    withheld: Option<Response<Body>>,
    refreshed: bool,
}

/// What came of one round.
#[derive(Debug)]
pub(super) enum Attempt {
    /// A response to pass through.
    Answered { by: ServedBy, member: Option<Arc<str>>, response: Response<Body> },
    /// A 404 that proves nothing yet. `unrouted` is true if the server has no such API.
    NotFound { member: Option<Arc<str>>, response: Response<Body>, unrouted: bool },
    /// The local server sent no response, or refused because it has just started. `response` is
    /// what the client gets if nobody else may be asked.
    Lost { by: ServedBy, member: Option<Arc<str>>, stage: Stage, response: Response<Body> },
    /// No peer responded.
    Unanswered { tried: Vec<String> },
    /// The request cannot be sent: part of its body was sent before and is not kept.
    BodyGone,
    /// The request must not be sent again.
    MustNotSend,
    /// The withheld 404 is true.
    Confirmed,
    /// Nobody can serve the request. `named` are the members at fault, if it is not the deniers.
    Refused { named: Option<Vec<String>> },
}

/// What comes next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the largest is what nearly every request gets")]
pub(super) enum Next {
    /// The request is served.
    Done(Served),
    /// Decide again.
    Again,
    /// Refresh the views of members, then decide again.
    Refresh,
}

/// How a request ended.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) by: ServedBy,
    pub(super) reason: Reason,
    pub(super) member: Option<Arc<str>>,
    pub(super) outcome: Outcome,
    /// What a peer that sent the request must know.
    pub(super) mark: Option<Mark>,
}

/// The response, or what a refusal must say.
#[derive(Debug)]
pub(super) enum Outcome {
    Response(Response<Body>),
    /// A 503 that names these members.
    Refusal(Vec<String>),
}

/// A mark for the gateway that sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing of the request was processed.
    Refused,
    /// The server received the request and sent no response.
    Lost,
}

impl<'a> Progress<'a> {
    pub(super) fn new(info: &'a RequestInfo<'a>, parts: &'a Parts) -> Progress<'a> {
        Progress {
            denied: Denied::default(),
            delivery: Delivery::new(info, parts),
            local_lost: None,
            withheld: None,
            refreshed: false,
        }
    }

    /// The health of the local server, as this request found it.
    pub(super) fn local_health(&self, known: LocalHealth) -> LocalHealth {
        if self.local_lost.is_some() { LocalHealth::Unreachable } else { known }
    }

    /// Takes the outcome of a round. `now` is when it ended; `budget` takes a retry from the retry
    /// budget.
    pub(super) fn absorb(
        &mut self,
        decision: Summary,
        attempt: Attempt,
        now: Timestamp,
        budget: impl FnOnce() -> bool,
    ) -> Next {
        let reason = decision.reason;
        match attempt {
            Attempt::Answered { by, member, response } => {
                Next::Done(Served::response(by, reason, member, response))
            }
            Attempt::Lost { by, member, stage, response } => {
                if self.may_replace_local(reason, stage, budget) {
                    self.local_lost = Some(stage);
                    return Next::Again;
                }
                let mark = (stage != Stage::Refused).then_some(Mark::Lost);
                let served = Served::response(by, reason, member, response);
                Next::Done(Served { mark, ..served })
            }
            Attempt::NotFound { member: Some(member), response, unrouted } => {
                self.withheld = Some(response);
                self.delivery.not_found(unrouted);
                self.denied.push(member, now, decision.listed);
                let refresh = decision.on_not_found != OnNotFound::NextUnlessObject;
                if refresh && !std::mem::replace(&mut self.refreshed, true) {
                    return Next::Refresh;
                }
                Next::Again
            }
            // Nobody can confirm a 404 of an unknown member.
            Attempt::NotFound { member: None, .. } => {
                Next::Done(Served::refusal(Reason::ViewSuspect, self.denied.names()))
            }
            Attempt::Unanswered { tried } => {
                Next::Done(Served::refusal(Reason::NobodyReachable, tried))
            }
            Attempt::BodyGone => {
                Next::Done(Served::response(ServedBy::Nobody, Reason::BodyGone, None, body_gone()))
            }
            Attempt::MustNotSend => {
                Next::Done(Served::refusal(Reason::ViewSuspect, self.denied.names()))
            }
            Attempt::Confirmed => {
                let response = self.withheld.take();
                let response = response.unwrap_or_else(|| status::internal("no 404 is withheld"));
                Next::Done(Served::response(ServedBy::Confirmed, reason, None, response))
            }
            Attempt::Refused { named } => {
                Next::Done(self.refused(reason, named.unwrap_or_else(|| self.denied.names())))
            }
        }
    }

    /// The end of a request after [`MAX_ROUNDS`] rounds.
    pub(super) fn give_up(&self) -> Served {
        self.refused(Reason::ViewSuspect, self.denied.names())
    }

    /// Whether a peer may take the place of the local server, once.
    fn may_replace_local(
        &mut self,
        reason: Reason,
        stage: Stage,
        budget: impl FnOnce() -> bool,
    ) -> bool {
        // Rows 2 and 3: only the local server may be asked.
        let elsewhere = !matches!(reason, Reason::NonResource | Reason::DiscoveryLocal);
        self.local_lost.is_none()
            && self.delivery.failed(stage)
            // A request that was not sent is decided anew, which costs nobody anything.
            && (stage.is_unprocessed() || (elsewhere && budget()))
    }

    /// A refusal. A peer that sent the request may send it elsewhere where nothing was processed.
    fn refused(&self, reason: Reason, named: Vec<String>) -> Served {
        let mark = match self.delivery.is_untouched() {
            true => Some(Mark::Refused),
            false => self.local_lost.map(|_| Mark::Lost),
        };
        Served { mark, ..Served::refusal(reason, named) }
    }
}

impl Served {
    fn response(
        by: ServedBy,
        reason: Reason,
        member: Option<Arc<str>>,
        response: Response<Body>,
    ) -> Served {
        Served { by, reason, member, outcome: Outcome::Response(response), mark: None }
    }

    fn refusal(reason: Reason, named: Vec<String>) -> Served {
        let outcome = Outcome::Refusal(named);
        Served { by: ServedBy::Nobody, reason, member: None, outcome, mark: None }
    }
}

/// The health of the local server as the decision about this request takes it.
pub(super) fn health_for(
    info: &RequestInfo<'_>,
    known: LocalHealth,
    is_insistent: impl FnOnce() -> bool,
) -> LocalHealth {
    match known {
        // A peer insists: nobody else serves the request.
        LocalHealth::Unready if is_insistent() => LocalHealth::Ready,
        // Only the local server can answer, so it is asked: a slow server must not fail health
        // checks that it would pass if it were asked directly.
        LocalHealth::Unreachable if matches!(info, RequestInfo::NonResource(_)) => {
            LocalHealth::Unready
        }
        known => known,
    }
}

/// Whether a doubted 404 passes through.
pub(super) fn is_believed(decision: Summary, is_head: bool, found: NotFound) -> bool {
    match decision.on_not_found {
        OnNotFound::PassThrough => true,
        OnNotFound::Refresh => false,
        // There is no body to tell by: the view must.
        _ if is_head => decision.listed,
        _ => found == NotFound::Object,
    }
}

pub(super) fn body_gone() -> Response<Body> {
    status::unavailable("the request cannot be retried: its body is too large to keep")
}

#[cfg(test)]
mod tests;
