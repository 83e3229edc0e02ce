//! The result of a fetch, applied to its member. Entry item: [`Tracked::finish`].

use std::sync::Arc;

use mvp_core::Timestamp;
use mvp_core::discovery::Part;
use mvp_core::member::Seen;
use mvp_core::openapi::Index;

use super::super::fetch::{Fetched, OpenApiOutcome, Outcome};
use super::effect::{Effect, Report, Ticket};
use super::tracked::{Answer, Contact, LastFetch, Reports, Standing, Tracked};

impl Tracked {
    /// Applies the result of a fetch, if that fetch is still the current one.
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

    /// Returns the error, if there is one.
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

    /// Returns what to log, or the error.
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

    /// Reports failures and recoveries since the last fetch.
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
