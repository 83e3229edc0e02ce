//! One member as the control loop tracks it. Entry item: [`Tracked`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use mvp_core::Timestamp;
use mvp_core::discovery::{DocumentError, Part};
use mvp_core::member::{Member, MemberKind, Presence, View};

use super::super::fetch::Known;
use super::super::membership::MemberName;
use super::super::report_once::ReportOnce;
use super::effect::{FetchRequest, Ticket};
use super::polling::{LastFetch, Polling};
use crate::gateway::Who;

/// A member: what snapshots show of it, and what the next step depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) name: MemberName,
    pub(super) member: Member,
    pub(super) known: Known,
    pub(super) standing: Standing,
    pub(super) polling: Polling,
    pub(super) contact: Contact,
    /// Whether this is what a member served at an address that it moved away from.
    pub(super) is_former: bool,
    pub(super) reports: Reports,
    /// The faults of its documents that were reported.
    pub(super) problems: Vec<DocumentError>,
}

/// Whether the sources name a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// They do. A source without heartbeats vouches for its members.
    Present { vouched: bool },
    /// They do not, since this time: the member is remembered until its time is over.
    Left { since: Timestamp },
}

/// Whether a member has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contact {
    /// It never has.
    Never,
    /// It has, but not since it joined, came back or moved.
    Before(Answer),
    /// It has since then.
    Current(Answer),
}

/// Who answered, and at which address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) address: Arc<str>,
    pub(super) who: Who,
}

/// Conditions of a member that are reported once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reports {
    pub(super) discovery_failed: Causes,
    pub(super) openapi_failed: ReportOnce,
    pub(super) timed_out: ReportOnce,
    pub(super) other_id: ReportOnce,
    pub(super) no_gateway: ReportOnce,
}

/// The causes of failed fetches that were reported since the last success, each once: the status of
/// the server, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Causes(BTreeSet<Option<StatusCode>>);

impl Causes {
    /// A fetch failed. Returns whether to report it. After a status, failures without one are not
    /// news: kube-apiserver closes the connection after a 401, on which other requests then fail.
    pub(super) fn report(&mut self, status: Option<StatusCode>) -> bool {
        let is_news = status.is_some() || self.0.is_empty();
        is_news && self.0.insert(status)
    }

    /// A fetch succeeded. Returns whether a failure had been reported.
    pub(super) fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// What a member can be recognised by when its name has changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trace {
    Address(Arc<str>),
    Process(Arc<str>),
    /// The server behind a gateway, by its ID.
    Server(Arc<str>),
}

/// What is known about the server at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knowledge {
    view: View,
    known: Known,
    answer: Answer,
}

impl Tracked {
    pub(super) fn new(name: MemberName, now: Timestamp, heard: Timestamp) -> Tracked {
        let member = Member {
            id: name.label(),
            kind: MemberKind::Bare,
            address: None,
            presence: Presence::Present,
            joined: now,
            heard,
            awaited: true,
            view: View::default(),
        };
        Tracked {
            name,
            member,
            known: Known::default(),
            standing: Standing::Present { vouched: false },
            polling: Polling::new(now),
            contact: Contact::Never,
            is_former: false,
            reports: Reports::default(),
            problems: Vec::new(),
        }
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.standing, Standing::Present { .. })
    }

    /// When it left.
    pub(super) fn left_since(&self) -> Option<Timestamp> {
        match self.standing {
            Standing::Present { .. } => None,
            Standing::Left { since } => Some(since),
        }
    }

    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
        self.member.presence = match standing {
            Standing::Present { .. } => Presence::Present,
            Standing::Left { .. } => Presence::Left,
        };
    }

    /// Whether it may not exist: no source vouches for it, and it has not answered since it joined.
    pub(super) fn is_unverified(&self) -> bool {
        let vouched = self.standing == Standing::Present { vouched: true };
        !vouched && !matches!(self.contact, Contact::Current(_))
    }

    /// Whether anything is known about what it serves, by its own word or by StorageVersions.
    pub(super) fn is_known(&self) -> bool {
        let View { api, apis, recorded, .. } = &self.member.view;
        api.is_some() || apis.is_some() || recorded.is_some()
    }

    /// When it last confirmed a document.
    pub(super) fn last_confirmed(&self) -> Option<Timestamp> {
        let View { api, apis, .. } = &self.member.view;
        api.iter().chain(apis).map(|seen| seen.confirmed).max()
    }

    /// Since when it has not confirmed one of its documents, or not since it joined.
    pub(super) fn unconfirmed_since(&self) -> Timestamp {
        let since = |part| {
            let seen = self.member.view.part(part).map(|seen| seen.confirmed);
            seen.unwrap_or_default().max(self.member.joined)
        };
        since(Part::Api).min(since(Part::Apis))
    }

    /// It is back, or somewhere else: what it serves now is unknown until it answers.
    pub(super) fn rejoin(&mut self, now: Timestamp) {
        self.member.joined = now;
        if let Contact::Current(answer) = &self.contact {
            self.contact = Contact::Before(answer.clone());
        }
    }

    /// Moves it to another address. `there` is what is known about the server at that address.
    /// Returns the entry that remembers what it served at its former address: the server at the new
    /// one may be another.
    pub(super) fn move_to(
        &mut self,
        address: Option<&Arc<str>>,
        there: Option<Knowledge>,
        now: Timestamp,
    ) -> Option<Tracked> {
        let former = self.former(now).filter(|_| address.is_some());
        self.member.address = address.cloned();
        self.polling.due = now;
        // A result from the former address must not be taken for one from the new address.
        if let LastFetch::Running(begun) = self.polling.last {
            self.polling.last = LastFetch::Ended(begun);
        }
        self.rejoin(now);
        if let Some(Knowledge { view, known, answer }) = there {
            (self.member.view, self.known) = (view, known);
            self.contact = Contact::Before(answer);
        }
        former
    }

    /// What is known about it at its present address, as the member `ID@ADDRESS` that has left.
    fn former(&self, now: Timestamp) -> Option<Tracked> {
        let answer = self.answer_here().filter(|_| self.is_known())?;
        let MemberName::Id(id) = &self.name else { return None };
        let name = MemberName::At { id: Arc::clone(id), address: Arc::clone(&answer.address) };
        let mut former = Tracked::new(name, now, self.member.heard);
        former.member = Member { id: Arc::clone(&former.member.id), ..self.member.clone() };
        former.stand(Standing::Left { since: now });
        (former.known, former.contact) = (self.known.clone(), Contact::Before(answer.clone()));
        former.is_former = true;
        Some(former)
    }

    fn answer(&self) -> Option<&Answer> {
        match &self.contact {
            Contact::Never => None,
            Contact::Before(answer) | Contact::Current(answer) => Some(answer),
        }
    }

    /// The last answer, if it came from its present address.
    fn answer_here(&self) -> Option<&Answer> {
        self.answer().filter(|answer| Some(&answer.address) == self.member.address.as_ref())
    }

    /// What is known about it, if it answered at this address.
    pub(super) fn knowledge_at(&self, address: &Arc<str>) -> Option<Knowledge> {
        let answer =
            self.answer().filter(|answer| answer.address == *address && self.is_known())?;
        let (view, known) = (self.member.view.clone(), self.known.clone());
        Some(Knowledge { view, known, answer: answer.clone() })
    }

    /// What it can be recognised by.
    pub(super) fn traces(&self) -> Vec<Trace> {
        let Some(Answer { address, who }) = self.answer_here() else { return Vec::new() };
        let mut traces = vec![Trace::Address(Arc::clone(address))];
        if let Who::Gateway { instance, .. } = who {
            traces.push(Trace::Process(Arc::clone(instance)));
        }
        match (who, &self.name) {
            // A gateway speaks for its server.
            (Who::Gateway { id, .. }, name) if *name == MemberName::Id(Arc::clone(id)) => {
                traces.push(Trace::Server(Arc::clone(id)));
            }
            (who, MemberName::At { id, .. }) if *who == Who::Server || self.is_former => {
                traces.push(Trace::Server(Arc::clone(id)));
            }
            _ => {}
        }
        traces
    }

    /// Starts a fetch of what is due, if no other one is running.
    pub(super) fn begin(&mut self, now: Timestamp, interval: Duration) -> Option<FetchRequest> {
        if !self.is_present() {
            return None;
        }
        let scope = self.polling.begin(now, interval)?;
        let Member { id, address, .. } = &self.member;
        let ticket = Ticket { id: Arc::clone(id), address: address.clone(), begun: now };
        Some(FetchRequest { member: self.member.clone(), known: self.known.clone(), scope, ticket })
    }
}
