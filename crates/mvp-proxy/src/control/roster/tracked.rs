//! One member as the control loop tracks it. Entry item: [`Tracked`].

use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::discovery::Part;
use mvp_core::member::{Member, MemberKind, Presence, Seen, View};
use mvp_core::openapi::Index;

use super::super::fetch::{Fetched, Known, OpenApiOutcome, Outcome};
use super::super::membership::{MemberName, Who};
use super::super::report_once::ReportOnce;
use super::effect::{Effect, FetchRequest, Report, Ticket};

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
}

/// Whether the sources name a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// They do. A source without heartbeats vouches for its members.
    Present { vouched: bool },
    /// They do not, since this time: the member is remembered until its time is over.
    Left { since: Timestamp },
}

/// When a member is fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Polling {
    pub(super) due: Timestamp,
    pub(super) last: LastFetch,
}

/// The last fetch from a member, by its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastFetch {
    Never,
    Running(Timestamp),
    Ended(Timestamp),
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reports {
    discovery_failed: ReportOnce,
    openapi_failed: ReportOnce,
    pub(super) timed_out: ReportOnce,
}

/// What a member can be recognised by when its name has changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trace {
    Address(Arc<str>),
    Process(Arc<str>),
    /// The server behind a gateway, by its ID.
    Server(Arc<str>),
}

/// What is known about whoever answers at an address.
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
            polling: Polling { due: now, last: LastFetch::Never },
            contact: Contact::Never,
            is_former: false,
            reports: Reports::default(),
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

    /// Moves it to another address. `there` is what is known about whoever answers there. Gives the
    /// entry that remembers what it served at its former address: whoever answers at the new one may
    /// be another server.
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

    /// Starts a fetch.
    pub(super) fn begin(&mut self, now: Timestamp, due: Timestamp) -> FetchRequest {
        self.polling = Polling { due, last: LastFetch::Running(now) };
        let Member { id, address, .. } = &self.member;
        let ticket = Ticket { id: Arc::clone(id), address: address.clone(), begun: now };
        FetchRequest { member: self.member.clone(), known: self.known.clone(), ticket }
    }

    /// Takes the result of a fetch over, if it is that of the current one.
    pub(super) fn finish(&mut self, ticket: Ticket, mut fetched: Fetched) -> Vec<Effect> {
        let Ticket { address, begun, .. } = ticket;
        // It may have been forgotten and be back, or have moved, since the fetch began.
        if self.polling.last != LastFetch::Running(begun) || self.member.address != address {
            return Vec::new();
        }
        self.polling.last = LastFetch::Ended(begun);
        if let (Some(who), Some(address)) = (fetched.who.take(), address) {
            self.contact = Contact::Current(Answer { address, who });
        }
        self.apply(fetched, begun)
    }

    fn apply(&mut self, fetched: Fetched, begun: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Fetched { parts, openapi, release, .. } = fetched;
        self.member.view.release = release;
        self.known.release = release;
        let openapi_error = self.apply_openapi(openapi);
        let mut errors = Vec::new();
        for (part, outcome) in Part::ALL.into_iter().zip(parts) {
            match self.apply_part(part, outcome, begun) {
                Ok(reports) => effects.extend(reports.into_iter().map(Effect::Report)),
                Err(error) => errors.push(error),
            }
        }
        let failures = errors.len() + usize::from(openapi_error.is_some());
        if failures > 0 {
            effects.push(Effect::CountFailures(failures));
        }
        if errors.len() < Part::ALL.len() {
            self.member.heard = self.member.heard.max(begun);
        }
        effects.extend(self.report_failures(&errors, openapi_error).map(Effect::Report));
        effects
    }

    /// Gives what failed.
    fn apply_openapi(&mut self, outcome: OpenApiOutcome) -> Option<String> {
        let view = &mut self.member.view;
        match outcome {
            OpenApiOutcome::Unchanged => {}
            OpenApiOutcome::Changed(index, known) => {
                if view.openapi.as_deref() != Some(&*index) {
                    view.openapi = Some(index);
                }
                self.known.openapi = Some(known);
            }
            OpenApiOutcome::None => {
                if view.openapi.as_deref() != Some(&Index::default()) {
                    view.openapi = Some(Arc::default());
                }
                self.known.openapi = None;
            }
            OpenApiOutcome::Failed(error) => return Some(error),
        }
        None
    }

    fn apply_part(
        &mut self,
        part: Part,
        outcome: Outcome,
        begun: Timestamp,
    ) -> Result<Vec<Report>, String> {
        let [api, apis] = &mut self.known.etags;
        let (seen, known) = match part {
            Part::Api => (&mut self.member.view.api, api),
            Part::Apis => (&mut self.member.view.apis, apis),
        };
        let (list, etag, problems) = match outcome {
            Outcome::Failed(error) => return Err(error),
            Outcome::Unchanged => {
                if let Some(seen) = seen {
                    seen.confirmed = begun;
                }
                return Ok(Vec::new());
            }
            Outcome::Changed { list, etag, complaints } => (list, etag, complaints),
        };
        *known = etag;
        match seen {
            Some(seen) if seen.list == list => {
                seen.confirmed = begun;
                Ok(Vec::new())
            }
            _ => {
                let id = &self.member.id;
                let problem = |problem| Report::DocumentProblem { id: Arc::clone(id), problem };
                let mut reports: Vec<Report> = problems.into_iter().map(problem).collect();
                let (document, groups) = (part.path(), list.groups.len());
                reports.push(Report::ViewChanged { id: Arc::clone(id), document, groups });
                *seen = Some(Seen { list, confirmed: begun });
                Ok(reports)
            }
        }
    }

    /// What changed about failures since the last fetch.
    fn report_failures(
        &mut self,
        errors: &[String],
        openapi_error: Option<String>,
    ) -> impl Iterator<Item = Report> + use<> {
        let id = || Arc::clone(&self.member.id);
        let Reports { discovery_failed, openapi_failed, .. } = &mut self.reports;
        let discovery = if errors.is_empty() {
            discovery_failed.clear().then(|| Report::DiscoveryRecovered { id: id() })
        } else {
            let vouched = self.standing == Standing::Present { vouched: true };
            let may_not_exist = !vouched && self.contact == Contact::Never;
            let error = errors.join("; ");
            let report = Report::DiscoveryFailed { id: id(), may_not_exist, error };
            discovery_failed.report().then_some(report)
        };
        let openapi = match openapi_error {
            None => openapi_failed.clear().then(|| Report::OpenApiRecovered { id: id() }),
            // The failure of everything is reported already.
            Some(_) if !errors.is_empty() => None,
            Some(error) => {
                openapi_failed.report().then(|| Report::OpenApiFailed { id: id(), error })
            }
        };
        discovery.into_iter().chain(openapi)
    }
}
