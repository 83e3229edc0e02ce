//! When a member is fetched from, and what is asked of it then. Entry item: [`Polling`].

use std::collections::BTreeSet;
use std::time::Duration;

use mvp_core::Timestamp;
use mvp_core::member::{PerDocument, ViewDocument};

use super::super::fetch::Scope;

/// How far apart fetches of one document begin, of one member or of all, if requests may make a
/// member be asked once in `interval`.
pub(super) fn spacing(interval: Duration, of_all: bool) -> Duration {
    if of_all { 4 * interval } else { interval }
}

/// When a member is fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Polling {
    /// When everything is fetched next.
    pub(super) due: Timestamp,
    pub(super) last: LastFetch,
    /// When a document is fetched by itself before that, because a request needs it.
    early: PerDocument<Option<Timestamp>>,
    /// The start of the last fetch of each document.
    begun: PerDocument<Option<Timestamp>>,
}

/// The last fetch from a member, by its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastFetch {
    Never,
    Running(Timestamp),
    Ended(Timestamp),
}

impl Polling {
    pub(super) fn new(due: Timestamp) -> Polling {
        let (early, begun) = (PerDocument::default(), PerDocument::default());
        Polling { due, last: LastFetch::Never, early, begun }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.last, LastFetch::Running(_))
    }

    /// When the next fetch is due.
    pub(super) fn next_due(&self) -> Timestamp {
        let early = ViewDocument::ALL.into_iter().filter_map(|document| *self.early.of(document));
        early.min().map_or(self.due, |early| early.min(self.due))
    }

    /// A request needs everything. A running fetch began too early. No two begin closer together than
    /// `spacing`, however many requests need it. Returns whether it has to wait for that.
    pub(super) fn want_all(&mut self, spacing: Duration, now: Timestamp) -> bool {
        self.due = match self.last {
            LastFetch::Never => now,
            LastFetch::Running(begun) | LastFetch::Ended(begun) => now.max(begun.after(spacing)),
        };
        self.due > now
    }

    /// The same for one document.
    pub(super) fn want(
        &mut self,
        document: ViewDocument,
        spacing: Duration,
        now: Timestamp,
    ) -> bool {
        let begun = *self.begun.of(document);
        let due = begun.map_or(now, |begun| now.max(begun.after(spacing)));
        let early = self.early.of_mut(document);
        *early = Some(early.map_or(due, |known| known.min(due)));
        due > now
    }

    /// Begins a fetch of what is due, if no fetch is running. Returns what to ask for.
    pub(super) fn begin(&mut self, now: Timestamp, interval: Duration) -> Option<Scope> {
        let scope = self.scope(now).filter(|_| !self.is_running())?;
        self.last = LastFetch::Running(now);
        if scope == Scope::Everything {
            self.due = now.after(interval);
        }
        for document in ViewDocument::ALL.into_iter().filter(|document| scope.has(*document)) {
            *self.early.of_mut(document) = None;
            *self.begun.of_mut(document) = Some(now);
        }
        Some(scope)
    }

    /// There is no way to the member: it is tried again later.
    pub(super) fn put_off(&mut self, due: Timestamp) {
        *self = Polling::new(due);
    }

    /// What is due now.
    fn scope(&self, now: Timestamp) -> Option<Scope> {
        if self.due <= now {
            return Some(Scope::Everything);
        }
        let due = |document: &ViewDocument| self.early.of(*document).is_some_and(|due| due <= now);
        let documents: BTreeSet<_> = ViewDocument::ALL.into_iter().filter(due).collect();
        (!documents.is_empty()).then_some(Scope::Only(documents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);
    const SPACING: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Timestamp {
        Timestamp::after_start(Duration::from_millis(millis))
    }

    fn only(documents: &[ViewDocument]) -> Option<Scope> {
        Some(Scope::Only(documents.iter().copied().collect()))
    }

    /// A member whose last fetch of everything began at 0 and has ended.
    fn idle() -> Polling {
        let mut polling = Polling::new(at(0));
        assert_eq!(polling.begin(at(0), INTERVAL), Some(Scope::Everything));
        polling.last = LastFetch::Ended(at(0));
        polling
    }

    #[test]
    fn a_wanted_document_is_fetched_by_itself_and_delays_nothing_else() {
        let mut polling = idle();
        polling.want(ViewDocument::Apis, SPACING, at(300));
        assert_eq!(polling.next_due(), at(300));
        assert_eq!(polling.begin(at(300), INTERVAL), only(&[ViewDocument::Apis]));
        polling.last = LastFetch::Ended(at(300));
        assert_eq!(polling.next_due(), at(1000), "everything, as before");
        assert_eq!(polling.begin(at(999), INTERVAL), None);
        assert_eq!(polling.begin(at(1000), INTERVAL), Some(Scope::Everything));
    }

    #[test]
    fn however_many_requests_want_a_document_it_is_fetched_at_a_bounded_rate() {
        for (of_all, most) in [(false, 20), (true, 5)] {
            let spacing = spacing(SPACING, of_all);
            let mut polling = idle();
            polling.due = at(60_000);
            let mut fetches = 0;
            for now in (1000..11_000).map(at) {
                polling.want(ViewDocument::Apis, spacing, now);
                if polling.begin(now, INTERVAL).is_some() {
                    fetches += 1;
                    polling.last = LastFetch::Ended(now);
                }
            }
            assert_eq!(fetches, most * 10, "in 10 s");
        }
    }

    #[test]
    fn a_request_that_has_to_wait_is_told() {
        let mut polling = idle();
        assert!(polling.want_all(SPACING, at(49)) && !polling.want_all(SPACING, at(50)));
        assert!(!polling.want(ViewDocument::Api, SPACING, at(50)));
        assert!(polling.want(ViewDocument::Api, 4 * SPACING, at(100)));
    }

    #[test]
    fn a_request_does_not_wait_for_the_round_of_another_document() {
        let mut polling = idle();
        polling.want(ViewDocument::Api, SPACING, at(500));
        assert_eq!(polling.begin(at(500), INTERVAL), only(&[ViewDocument::Api]));
        polling.want(ViewDocument::Apis, SPACING, at(501));
        assert_eq!(polling.begin(at(501), INTERVAL), None, "one fetch at a time");
        polling.last = LastFetch::Ended(at(500));
        assert_eq!(polling.begin(at(502), INTERVAL), only(&[ViewDocument::Apis]));
    }

    #[test]
    fn a_document_wanted_during_a_fetch_is_fetched_again() {
        let mut polling = idle();
        polling.want(ViewDocument::Apis, SPACING, at(500));
        assert!(polling.begin(at(500), INTERVAL).is_some());
        polling.want(ViewDocument::Apis, SPACING, at(520));
        polling.last = LastFetch::Ended(at(500));
        assert_eq!(polling.begin(at(530), INTERVAL), None);
        assert_eq!(polling.begin(at(550), INTERVAL), only(&[ViewDocument::Apis]));
    }
}
