//! The result of a fetch, applied to its member. Entry item: [`Tracked::finish`].

use std::sync::Arc;

use http::StatusCode;
use mvp_core::Timestamp;
use mvp_core::discovery::{DocumentError, Part};
use mvp_core::member::{Member, MemberKind, Seen, ViewDocument};
use mvp_core::openapi::Index;

use super::super::fetch::{Fetched, OpenApiOutcome, Outcome};
use super::super::membership::MemberName;
use super::effect::{Effect, Report, Ticket};
use super::polling::LastFetch;
use super::tracked::{Answer, Contact, Reports, Standing, Tracked};
use crate::gateway::Who;

impl Tracked {
    /// Applies the result of a fetch, if that fetch is still the current one.
    pub(super) fn finish(
        &mut self,
        ticket: Ticket,
        mut fetched: Fetched,
        now: Timestamp,
    ) -> Vec<Effect> {
        let Ticket { address, begun, .. } = ticket;
        // It may have been forgotten and be back, or have moved, since the fetch began.
        if self.polling.last != LastFetch::Running(begun) || self.member.address != address {
            return Vec::new();
        }
        self.polling.last = LastFetch::Ended(begun);
        if fetched.error().is_none() && fetched.is_whole() {
            self.member.view.fetched_in = now.since(begun);
        }
        let mismatch = match &fetched.who {
            // A server that refuses may do so before it tells its ID.
            Some(who) if fetched.error().is_none() => self.report_mismatch(who),
            _ => None,
        };
        let answered = fetched.who.is_some();
        if let (Some(who), Some(address)) = (fetched.who.take(), address) {
            self.contact = Contact::Current(Answer { address, who });
        }
        let mut effects = self.apply(fetched, answered, begun);
        effects.extend(mismatch.map(Effect::Report));
        effects
    }

    fn apply(&mut self, fetched: Fetched, answered: bool, begun: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let whole = fetched.is_whole();
        let Fetched { parts, openapi, release, refused, .. } = fetched;
        self.member.view.release = release;
        self.known.release = release;
        if openapi != OpenApiOutcome::NotAsked {
            *self.member.view.asked.of_mut(ViewDocument::OpenApi) = begun;
        }
        let openapi_error = self.apply_openapi(openapi);
        let (mut errors, mut confirmed) = (Vec::new(), false);
        for (part, outcome) in Part::ALL.into_iter().zip(parts) {
            if outcome == Outcome::NotAsked {
                continue;
            }
            *self.member.view.asked.of_mut(part.into()) = begun;
            match self.apply_part(part, outcome, begun) {
                Ok(reports) => {
                    confirmed = true;
                    effects.extend(reports.into_iter().map(Effect::Report));
                }
                Err(error) => errors.push(error),
            }
        }
        let failures = errors.len() + usize::from(openapi_error.is_some());
        if failures > 0 {
            effects.push(Effect::CountFailures(failures));
        }
        if confirmed {
            self.member.heard = self.member.heard.max(begun);
        }
        // A part of the documents does not tell whether a failure is over.
        if whole {
            let reports = self.report_failures(&errors, refused, openapi_error, answered);
            effects.extend(reports.map(Effect::Report));
        }
        effects
    }

    /// Returns the error, if there is one.
    fn apply_openapi(&mut self, outcome: OpenApiOutcome) -> Option<String> {
        let view = &mut self.member.view;
        match outcome {
            OpenApiOutcome::Unchanged | OpenApiOutcome::NotAsked => {}
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

    /// Returns what to log, or the error.
    fn apply_part(
        &mut self,
        part: Part,
        outcome: Outcome,
        begun: Timestamp,
    ) -> Result<Vec<Report>, String> {
        let ([api_etag, apis_etag], [api, apis]) = (&mut self.known.etags, &mut self.known.lists);
        let (seen, known_etag, known_list) = match part {
            Part::Api => (&mut self.member.view.api, api_etag, api),
            Part::Apis => (&mut self.member.view.apis, apis_etag, apis),
        };
        let (list, etag, problems) = match outcome {
            Outcome::Failed(error) => return Err(error),
            Outcome::NotAsked => return Ok(Vec::new()),
            Outcome::Unchanged => {
                if let Some(seen) = seen {
                    seen.confirmed = begun;
                }
                return Ok(Vec::new());
            }
            Outcome::Changed { list, etag, complaints } => (list, etag, complaints),
        };
        *known_etag = etag;
        match seen {
            Some(seen) if seen.list == list => {
                seen.confirmed = begun;
                Ok(Vec::new())
            }
            _ => {
                let id = Arc::clone(&self.member.id);
                let (document, groups) = (part.path(), list.groups.len());
                *known_list = Some(Arc::clone(&list));
                *seen = Some(Seen { list, confirmed: begun });
                let mut reports = self.report_problems(document, problems);
                reports.push(Report::ViewChanged { id, document, groups });
                Ok(reports)
            }
        }
    }

    /// Reports a configured peer that is not what the configuration says. Members of other sources
    /// that answer as somebody else are named by what they answer.
    fn report_mismatch(&mut self, who: &Who) -> Option<Report> {
        let Member { id, address, kind, .. } = &self.member;
        let (id, address) = (Arc::clone(id), address.clone());
        let vouched = self.standing == Standing::Present { vouched: true };
        let Reports { other_id, no_gateway, .. } = &mut self.reports;
        let told = match (who, &self.name) {
            // A member without an ID is named by its address. IDs are escaped in headers.
            (Who::Gateway { id: told, .. }, MemberName::Id(id))
                if vouched
                    && !told.is_empty()
                    && **told != *id.escape_default().to_string()
                    && address.as_ref() != Some(id) =>
            {
                Some(Arc::clone(told))
            }
            _ => None,
        };
        let lacks_gateway = vouched && *kind == MemberKind::Mvp && *who == Who::Server;
        match (told, lacks_gateway) {
            (Some(told), _) => other_id.report().then_some(Report::OtherId { id, address, told }),
            (None, true) => no_gateway.report().then_some(Report::NoGateway { id, address }),
            (None, false) => {
                other_id.clear();
                no_gateway.clear();
                None
            }
        }
    }

    /// Reports the faults of a document that it did not have before: most changes of a document have
    /// nothing to do with them.
    fn report_problems(&mut self, document: &str, problems: Vec<DocumentError>) -> Vec<Report> {
        let is_new = |problem: &&DocumentError| {
            let same = |known: &DocumentError| {
                known.document == problem.document && known.problem == problem.problem
            };
            !self.problems.iter().any(same)
        };
        let report = |problem: &DocumentError| Report::DocumentProblem {
            id: Arc::clone(&self.member.id),
            problem: problem.clone(),
        };
        let reports = problems.iter().filter(is_new).map(report).collect();
        self.problems.retain(|known| &*known.document != document);
        self.problems.extend(problems);
        reports
    }

    /// Reports failures and recoveries since the last fetch.
    fn report_failures(
        &mut self,
        errors: &[String],
        refused: Option<StatusCode>,
        openapi_error: Option<String>,
        answered: bool,
    ) -> impl Iterator<Item = Report> + use<> {
        let id = || Arc::clone(&self.member.id);
        let Reports { discovery_failed, openapi_failed, .. } = &mut self.reports;
        let discovery = if errors.is_empty() {
            discovery_failed.clear().then(|| Report::DiscoveryRecovered { id: id() })
        } else {
            let vouched = self.standing == Standing::Present { vouched: true };
            let may_not_exist = !vouched && !answered && self.contact == Contact::Never;
            let by_its_server =
                matches!(self.contact, Contact::Current(Answer { who: Who::Gateway { .. }, .. }));
            discovery_failed.report(refused).then(|| match refused {
                Some(StatusCode::UNAUTHORIZED) => {
                    Report::ProxyCertificateRejected { id: id(), by_its_server }
                }
                _ => Report::DiscoveryFailed { id: id(), may_not_exist, error: errors.join("; ") },
            })
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
