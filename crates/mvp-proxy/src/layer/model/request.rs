//! One request at a gateway: the shipped decision, [`Progress`] and the wait for fresh views, with the
//! glue of `Exchange::act` and `Peers::send_to` written again without I/O. Entry items:
//! [`Request::decide`] and [`Request::answered`].

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use mvp_core::decide::{Action, ActionKind, Asked, Denial, LocalHealth, Origin, Reason, Summary};
use mvp_core::member::Presence;
use mvp_core::not_found::NotFound;
use mvp_core::{RequestInfo, Snapshot, Timestamp};

use super::super::progress::{Next, Progress, health_for, is_believed};
use super::super::refresh;
use super::bits::Bits;
use super::cluster::{Ask, IDS, Reply, index};
use super::invariants::{Invariant, Violation, check_writer};
use super::outcome::{Came, End, Failure, Made, Round, Sending, described, name_of};
use super::rules::Rules;
use crate::error::Stage;
use crate::metrics::ServedBy;

/// A member is asked at most twice, and the local server is lost once.
const MOST_ROUNDS: usize = 2 * IDS.len() + 2;

/// What a gateway knows when it does something for a request.
pub(super) struct Gateway<'a> {
    pub(super) rules: Rules,
    pub(super) now: Timestamp,
    /// The index of its own server.
    pub(super) local: Option<usize>,
    pub(super) health: Cell<LocalHealth>,
    pub(super) published: &'a Arc<Snapshot>,
    /// Notes for the trace of a counterexample.
    pub(super) notes: Option<&'a RefCell<Vec<String>>>,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) ask: &'static Ask,
    pub(super) origin: Origin,
    /// Whether the sender insists on an unready server.
    pub(super) insists: bool,
    pub(super) arrived: Timestamp,
    pub(super) snapshot: Arc<Snapshot>,
    /// What was absorbed. [`Progress`] cannot be copied, so it is made again from this.
    pub(super) rounds: Vec<Round>,
    /// The failures of peers in this round.
    pub(super) failures: Vec<Stage>,
    pub(super) phase: Phase,
    /// How many servers processed it.
    pub(super) processed: u8,
    /// The live members that have served it all the time.
    pub(super) throughout: Bits,
    /// The members that are down, would serve it, and were seen when they did.
    pub(super) remembered: Bits,
    /// The live members that the gateway knew to serve it when it arrived, all the time since.
    pub(super) promised: Bits,
    /// Where it was sent and got no response, although the server may have processed it.
    pub(super) lost: Vec<usize>,
    /// Whether a fault, a change or a delay may have affected it.
    pub(super) disturbed: bool,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Arrived,
    /// One of these members gets it next.
    Choosing {
        summary: Summary,
        sending: Sending,
    },
    /// It was sent. `seen` are the states of the server since then.
    Sent {
        summary: Summary,
        to: usize,
        seen: Bits,
        sending: Option<Sending>,
    },
    /// It waits for fresh views.
    Refreshing {
        health: LocalHealth,
    },
    Done(End),
}

type Checked = Result<(), Violation>;

impl Request {
    pub(super) fn new(
        ask: &'static Ask,
        origin: Origin,
        arrived: Timestamp,
        snapshot: &Arc<Snapshot>,
    ) -> Request {
        Request {
            ask,
            origin,
            insists: false,
            arrived,
            snapshot: Arc::clone(snapshot),
            rounds: Vec::new(),
            failures: Vec::new(),
            phase: Phase::Arrived,
            processed: 0,
            throughout: Bits::default(),
            remembered: Bits::default(),
            promised: Bits::default(),
            lost: Vec::new(),
            disturbed: false,
        }
    }

    pub(super) fn end(&self) -> Option<End> {
        match self.phase {
            Phase::Done(end) => Some(end),
            _ => None,
        }
    }

    /// Decides, and acts up to the next thing that takes time.
    pub(super) fn decide(&mut self, gateway: &Gateway<'_>) -> Checked {
        if self.rounds.len() > MOST_ROUNDS {
            let text = format!("{} rounds", self.rounds.len());
            return Err(Invariant::Ends.broken(text));
        }
        let progress = self.progress();
        let denials = progress.denied.as_denials();
        let health = self.health(gateway, &progress);
        let asked = self.asked(health, &denials);
        let decision = gateway.rules.decide(self.ask, &self.snapshot, asked);
        let summary = decision.summary();
        gateway.note(|| format!("decides {:?} ({})", summary.action, summary.reason.as_str()));
        let may_send = progress.delivery.may_send();
        let members = match decision.action {
            Action::Peers(candidates) => candidates.iter().map(|m| index(&m.id)).collect(),
            Action::AskAny => askable(&self.snapshot),
            _ => Bits::default(),
        };
        let action = summary.action;
        drop(denials);
        if self.origin != Origin::Client && !members.is_empty() {
            return Err(Invariant::OneHop.broken("a request that was proxied is proxied again"));
        }
        if action.sends() && !may_send {
            return self.absorb(gateway, summary, Made::MustNotSend, None);
        }
        match action {
            ActionKind::Local | ActionKind::AskLocal => {
                let to = gateway.local.expect("a local server");
                self.phase = Phase::Sent { summary, to, seen: Bits::default(), sending: None };
                Ok(())
            }
            ActionKind::Peers | ActionKind::AskAny => {
                let any = action == ActionKind::AskAny;
                let sending = Sending { left: members, unready: None, insists: false, any };
                if members.is_empty() {
                    return self.unanswered(gateway, summary, sending);
                }
                self.phase = Phase::Choosing { summary, sending };
                Ok(())
            }
            ActionKind::Answer => {
                let made = Made::Answered { by: ServedBy::Snapshot, status: 200 };
                let document = Some(described(&self.snapshot));
                self.absorb_with(gateway, summary, made, None, document)
            }
            ActionKind::PassNotFound => self.absorb(gateway, summary, Made::Confirmed, None),
            ActionKind::Refuse => self.absorb(gateway, summary, Made::Refused, None),
        }
    }

    /// Sends it to one of the members that are left.
    pub(super) fn send(&mut self, gateway: &Gateway<'_>, to: usize) -> Checked {
        let Phase::Choosing { summary, sending } = self.phase else { return Ok(()) };
        check_writer(self, gateway.local, to)?;
        let sending = Sending { left: sending.left.without(to), ..sending };
        let seen = Bits::default();
        self.phase = Phase::Sent { summary, to, seen, sending: Some(sending) };
        Ok(())
    }

    /// Takes what came of sending it.
    pub(super) fn answered(&mut self, gateway: &Gateway<'_>, came: Came) -> Checked {
        let Phase::Sent { summary, to, sending, .. } = self.phase else { return Ok(()) };
        self.processed += u8::from(came.is_processed());
        if self.ask.is_write && self.processed > 1 {
            return Err(Invariant::WriteOnce.broken("two servers processed a write"));
        }
        if let Came::Failed { stage: Failure::Exchange, .. } | Came::Unmarked { .. } = came {
            self.lost.push(to);
        }
        let by = match sending {
            None => ServedBy::Local,
            Some(_) => ServedBy::Peer,
        };
        let answered = |status| Made::Answered { by, status };
        let made = match came {
            Came::Reply(Reply::Served(version)) => {
                let document = Some(version.bits());
                return self.absorb_with(gateway, summary, answered(200), Some(to), document);
            }
            Came::Reply(Reply::NotAllowed) => answered(405),
            Came::Reply(reply @ (Reply::Unrouted | Reply::Vague)) => {
                let found = match reply {
                    Reply::Unrouted => NotFound::Unrouted,
                    _ => gateway.rules.found_in_vague(),
                };
                let unrouted = found == NotFound::Unrouted;
                match is_believed(summary, false, found) {
                    true => answered(404),
                    false => Made::NotFound { member: to, unrouted },
                }
            }
            // `Exchange::is_premature`
            Came::Reply(Reply::Forbidden) => {
                let premature = sending.is_none() && gateway.health.get() != LocalHealth::Ready;
                match premature && matches!(self.ask.info, RequestInfo::Resource(_)) {
                    true => Made::Lost { stage: Stage::Refused },
                    false => answered(403),
                }
            }
            Came::Unmarked { .. } => answered(503),
            Came::Failed { stage, .. } => match sending {
                Some(sending) => {
                    return self.peer_failed(gateway, summary, sending, to, stage.into());
                }
                None => {
                    // `LocalState::failed`
                    if stage == Failure::Connect {
                        gateway.health.set(LocalHealth::Unreachable);
                    }
                    Made::Lost { stage: gateway.rules.stage(stage.into()) }
                }
            },
        };
        self.absorb(gateway, summary, made, Some(to))
    }

    /// The loop of `Peers::send_to` after a failure.
    fn peer_failed(
        &mut self,
        gateway: &Gateway<'_>,
        summary: Summary,
        sending: Sending,
        member: usize,
        stage: Stage,
    ) -> Checked {
        let stage = gateway.rules.stage(stage);
        let may_go_on = self.progress().delivery.failed(stage);
        self.failures.push(stage);
        let unready = sending.unready.or((stage == Stage::Unready).then_some(member));
        let sending = Sending { unready, ..sending };
        match (may_go_on && !sending.insists, unready) {
            (true, _) if !sending.left.is_empty() => {
                self.phase = Phase::Choosing { summary, sending };
                Ok(())
            }
            // `Peers::insist`
            (true, Some(to)) => {
                let sending = Some(Sending { insists: true, ..sending });
                self.phase = Phase::Sent { summary, to, seen: Bits::default(), sending };
                Ok(())
            }
            _ => self.unanswered(gateway, summary, sending),
        }
    }

    /// The end of `Exchange::act` where no peer responded.
    fn unanswered(&mut self, gateway: &Gateway<'_>, summary: Summary, sending: Sending) -> Checked {
        let unready = summary.reason == Reason::LocalNotReady && !sending.any;
        match gateway.local {
            Some(to) if unready && self.progress().delivery.may_send() => {
                self.phase = Phase::Sent { summary, to, seen: Bits::default(), sending: None };
                Ok(())
            }
            _ => self.absorb(gateway, summary, Made::Unanswered, None),
        }
    }

    fn absorb(
        &mut self,
        gateway: &Gateway<'_>,
        summary: Summary,
        made: Made,
        from: Option<usize>,
    ) -> Checked {
        self.absorb_with(gateway, summary, made, from, None)
    }

    fn absorb_with(
        &mut self,
        gateway: &Gateway<'_>,
        summary: Summary,
        made: Made,
        from: Option<usize>,
        document: Option<Bits>,
    ) -> Checked {
        let mut progress = self.progress();
        let budget = || gateway.rules.has_budget();
        let next = progress.absorb(summary, made.attempt(), gateway.now, budget);
        gateway.note(|| format!("absorbs {made:?}: {}", name_of(&next)));
        let mut failures = [None; 4];
        for (place, stage) in failures.iter_mut().zip(self.failures.drain(..)) {
            *place = Some(stage);
        }
        self.rounds.push(Round { failures, summary, made, at: gateway.now });
        match next {
            Next::Done(served) => {
                self.phase = Phase::Done(End::of(served, from, document));
                Ok(())
            }
            Next::Again => {
                self.phase = Phase::Arrived;
                self.decide(gateway)
            }
            Next::Refresh => {
                let health = self.health(gateway, &progress);
                self.phase = Phase::Refreshing { health };
                Ok(())
            }
        }
    }

    /// A snapshot was published. Ends the wait for fresh views if it settles what to do.
    pub(super) fn published(&mut self, gateway: &Gateway<'_>) -> Checked {
        let Phase::Refreshing { health } = self.phase else { return Ok(()) };
        let progress = self.progress();
        let denials = progress.denied.as_denials();
        let (info, asked) = (&self.ask.info, self.asked(health, &denials));
        match refresh::wait(info, gateway.published, asked, &progress.denied) {
            Some(_) => Ok(()),
            None => {
                drop(denials);
                self.refreshed(gateway)
            }
        }
    }

    /// The wait for fresh views is over.
    pub(super) fn refreshed(&mut self, gateway: &Gateway<'_>) -> Checked {
        self.snapshot = Arc::clone(gateway.published);
        self.decide(gateway)
    }

    fn progress(&self) -> Progress<'static> {
        let mut progress = Progress::new(&self.ask.info, &self.ask.parts);
        for Round { failures, summary, made, at } in &self.rounds {
            for stage in failures.iter().flatten() {
                progress.delivery.failed(*stage);
            }
            // What came next was to go on, so there was a budget.
            progress.absorb(*summary, made.attempt(), *at, || true);
        }
        for stage in &self.failures {
            progress.delivery.failed(*stage);
        }
        progress
    }

    fn health(&self, gateway: &Gateway<'_>, progress: &Progress<'_>) -> LocalHealth {
        let known = health_for(&self.ask.info, gateway.health.get(), || self.insists);
        progress.local_health(known)
    }

    fn asked<'d>(&self, local: LocalHealth, denials: &'d [Denial<'d>]) -> Asked<'d> {
        Asked {
            origin: self.origin,
            nopeer: self.ask.nopeer,
            arrived: self.arrived,
            local,
            denials,
        }
    }
}

impl Gateway<'_> {
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(notes) = self.notes {
            notes.borrow_mut().push(text());
        }
    }
}

/// `peers::present`
fn askable(snapshot: &Snapshot) -> Bits {
    let present = || snapshot.members().filter(|member| member.presence == Presence::Present);
    let any_seen = present().any(|member| member.view.apis.is_some());
    let members = present().filter(|member| !any_seen || member.view.apis.is_some());
    members.map(|member| index(&member.id)).collect()
}
