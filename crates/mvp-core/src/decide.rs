//! The decision: what to do with a request, what to do with a 404 that may come back, and why.
//!
//! [`decide`] is a pure function of the request, one snapshot and how the request came. When a
//! server answers 404 although it was not believed, or although its view said otherwise, the data
//! path notes a [`Denial`], has the views refreshed where the decision says so, and decides again;
//! so the same function also tells a true 404 from a false one. It ends: every round adds a denial,
//! and a member is asked twice at the most. The numbers are the rows of the table in
//! ARCHITECTURE.md.

mod asked;
mod candidates;
mod decision;
mod reason;

pub use asked::{Asked, Denial, LocalHealth, Origin};
pub use candidates::Candidates;
pub use decision::{Action, ActionKind, Decision, OnNotFound, Summary};
pub use reason::Reason;

use crate::discovery::{Part, Scope};
use crate::request::{DiscoveryPath, OpenApiPath, ResourceRequest};
use crate::{RequestInfo, Snapshot, Verb};

/// Decides what to do with a request.
pub fn decide<'a>(
    request: &'a RequestInfo<'_>,
    snapshot: &'a Snapshot,
    asked: Asked<'a>,
) -> Decision<'a> {
    let case = Case { request, snapshot, asked };
    if snapshot.local().is_none() && asked.origin != Origin::Client {
        return refuse(Reason::NotPassedOn);
    }
    match request {
        RequestInfo::Resource(request) => case.resource(request),
        RequestInfo::Discovery(path) => case.discovery(path),
        RequestInfo::OpenApi(path) => case.openapi(path),
        RequestInfo::NonResource(_) | RequestInfo::Malformed => case.own_business(),
    }
}

struct Case<'a> {
    request: &'a RequestInfo<'a>,
    snapshot: &'a Snapshot,
    asked: Asked<'a>,
}

impl<'a> Case<'a> {
    /// Rows 4 to 13.
    fn resource(&self, request: &'a ResourceRequest<'_>) -> Decision<'a> {
        let (snapshot, asked) = (self.snapshot, self.asked);
        let part = request.part();
        let route = snapshot.route(request);
        let listing = Candidates::new(snapshot, route, &request.subresource, asked.denials, part);
        let exact = listing.with_verb(request.verb, route.is_none_or(|r| fits(r.scope, request)));
        // Answers of backends and extension servers cannot be told from a server's own.
        let opaque = request.subresource == "proxy"
            || route.map_or_else(
                || snapshot.is_extension(&request.group, &request.version),
                |route| route.extension,
            );
        let unless_opaque = |on_not_found| {
            if opaque { OnNotFound::PassOn } else { on_not_found }
        };

        // For a subresource that a custom resource lacks, servers answer as if the object were
        // missing; for all else that they do not route, the shape of their 404 tells.
        let unlisted_not_found = unless_opaque(if request.subresource.is_empty() {
            OnNotFound::RefreshIfRouting
        } else {
            OnNotFound::Refresh
        });

        // Rows 4 and 9: served here; or perhaps, by a server that is down and was never seen.
        let unseen = self.local_is_unseen(part);
        let local_lists = exact.local_lists();
        if (local_lists && exact.believes_local())
            || (unseen && asked.local == LocalHealth::Unreachable)
        {
            let local = Decision {
                action: Action::Local { nopeer: false },
                on_not_found: unless_opaque(OnNotFound::RefreshIfRouting),
                reason: Reason::ServedLocally,
                listed: true,
            };
            return match asked.local {
                LocalHealth::Ready => local,
                _ => self.while_local_is_down(request, exact, local),
            };
        }
        // What the local server serves was never seen. It may well serve this.
        if unseen && !self.denied_by_local() && !(opaque && exact.any()) {
            return self.ask_local(Reason::LocalViewUnknown, unlisted_not_found);
        }
        // A server that is older than local would erase what it does not know of an object.
        let exact = match snapshot.local() {
            Some(local) if local_lists && !request.is_read() => {
                exact.not_older_than(local.view.release)
            }
            _ => exact,
        };
        // Row 6: whoever sent it here may have seen more of the local server than we did yet.
        let passed_on = asked.origin != Origin::Client;
        if passed_on && exact.listed_by_anyone() && !opaque && !self.denied_by_local() {
            // A subresource that local lacks may look like a missing object.
            let on_not_found = match request.subresource.is_empty() {
                true => OnNotFound::NextIfRouting,
                false => OnNotFound::Refresh,
            };
            return self.ask_local(Reason::ServedElsewhere, on_not_found);
        }
        // Rows 5 and 6: served elsewhere.
        if exact.any() {
            if asked.origin != Origin::Client {
                return refuse(Reason::ServedElsewhere);
            }
            return Decision {
                action: Action::Peers(exact),
                on_not_found: unless_opaque(OnNotFound::NextIfRouting),
                reason: Reason::ServedByPeer,
                listed: true,
            };
        }
        // Rows 10 and 11, and members that left or cannot be reached: listed, yet nobody to ask.
        if exact.listed_by_anyone() {
            let denied = asked.denials.iter().any(|denial| denial.listed);
            return refuse(if denied { Reason::ViewSuspect } else { Reason::NobodyReachable });
        }

        // Row 13: the resource is there, but not so. Whoever lists it says what is wrong.
        if listing.local_serves() && asked.local != LocalHealth::Unreachable {
            return Decision {
                action: Action::Local { nopeer: false },
                on_not_found: unless_opaque(OnNotFound::RefreshIfRouting),
                reason: Reason::VerbUnlisted,
                listed: false,
            };
        }
        if listing.any() && !listing.local_lists() {
            if asked.origin != Origin::Client {
                return refuse(Reason::ServedElsewhere);
            }
            return Decision {
                action: Action::Peers(listing),
                on_not_found: unless_opaque(OnNotFound::RefreshIfRouting),
                reason: Reason::VerbUnlisted,
                listed: false,
            };
        }
        if listing.any_withheld() {
            return refuse(Reason::NobodyReachable);
        }
        // Rows 7 and 8: nobody lists it.
        let unconfirmed = snapshot.awaits_members() || snapshot.blocking(part).next().is_some();
        if opaque && unconfirmed {
            return refuse(Reason::Unconfirmed);
        }
        if opaque && self.is_recorded() {
            return refuse(Reason::Recorded);
        }
        self.unlisted(part, unlisted_not_found)
    }

    /// Row 9: clients of this address survive the restart of its server.
    fn while_local_is_down(
        &self,
        request: &ResourceRequest<'_>,
        peers: Candidates<'a>,
        local: Decision<'a>,
    ) -> Decision<'a> {
        let reason = match self.asked.local {
            LocalHealth::Unready => Reason::LocalNotReady,
            _ => Reason::LocalDown,
        };
        // An older server would erase what it does not know of an object.
        let release = self.snapshot.local().and_then(|local| local.view.release);
        let usable = if request.is_read() { peers } else { peers.not_older_than(release) };
        match self.asked.origin {
            Origin::Client if usable.any() => {
                return Decision {
                    action: Action::Peers(usable),
                    on_not_found: match local.on_not_found {
                        OnNotFound::PassOn => OnNotFound::PassOn,
                        _ => OnNotFound::NextIfRouting,
                    },
                    reason,
                    listed: true,
                };
            }
            // Its sender can ask one of them.
            Origin::Peer if usable.any() => return refuse(reason),
            _ => {}
        }
        // Nobody else may have it. A server that is not ready may still answer.
        match self.asked.local {
            LocalHealth::Unreachable if self.asked.origin == Origin::Client && peers.any() => {
                refuse(Reason::PeersTooOld)
            }
            LocalHealth::Unreachable => refuse(Reason::LocalDown),
            LocalHealth::Unready | LocalHealth::Ready => local,
        }
    }

    /// Rows 7 and 8: nobody lists it. The local server is asked all the same; its 404 is the truth
    /// once every member confirmed, after this request came, that it does not serve it.
    fn unlisted(&self, part: Part, on_not_found: OnNotFound) -> Decision<'a> {
        let asked = self.asked;
        // Local's word counts if it was given, by its own 404 or by a fetch, after the request came.
        let heard = self.denied_by_local()
            || self.snapshot.local().is_some_and(|local| {
                local.view.part(part).is_some_and(|seen| seen.confirmed >= asked.arrived)
            });
        let has_local = self.snapshot.local().is_some();
        if asked.denials.is_empty() || (has_local && !heard) {
            return self.ask_local(Reason::Unlisted, on_not_found);
        }
        if self.local_is_unseen(part) {
            return refuse(Reason::LocalViewUnknown);
        }
        let mut unconfirmed = self.snapshot.unconfirmed(part, asked.arrived);
        if self.snapshot.awaits_members() || unconfirmed.next().is_some() {
            return refuse(Reason::Unconfirmed);
        }
        if self.is_recorded() {
            return refuse(Reason::Recorded);
        }
        Decision {
            action: Action::PassNotFound,
            on_not_found: OnNotFound::PassOn,
            reason: Reason::ConfirmedNotFound,
            listed: false,
        }
    }

    /// Rows 1 and 2.
    fn discovery(&self, path: &DiscoveryPath<'_>) -> Decision<'a> {
        let part = path.part();
        if let Some(decision) = self.described_locally(&[part]) {
            return decision;
        }
        // What the local server serves was never seen; its own document is better than none of its.
        let reachable = self.asked.local != LocalHealth::Unreachable;
        if self.local_is_unseen(part) && reachable && !self.denied_by_local() {
            return self.ask_local(Reason::LocalViewUnknown, OnNotFound::Refresh);
        }
        // Nobody's view is known: an empty list would be believed.
        if !self.snapshot.members().any(|member| member.view.part(part).is_some()) {
            return self.ask_local(Reason::LocalViewUnknown, OnNotFound::Refresh);
        }
        if self.snapshot.describes(path) {
            return answer();
        }
        self.unlisted(part, OnNotFound::Refresh)
    }

    /// Rows 1 and 2 for OpenAPI, which describes both halves at once.
    fn openapi(&self, path: &OpenApiPath<'_>) -> Decision<'a> {
        if let Some(decision) = self.described_locally(&Part::ALL) {
            return decision;
        }
        match path {
            OpenApiPath::V3Document(key) if self.snapshot.openapi().entry(key).is_none() => {
                let part = path.part();
                // A member that serves something and never told of its schemas may have this one.
                let silent = self.snapshot.members().any(|member| {
                    member.view.openapi.is_none() && member.view.part(part).is_some()
                });
                match self.unlisted(part, OnNotFound::Refresh) {
                    Decision { action: Action::PassNotFound, .. } if silent => {
                        refuse(Reason::Unconfirmed)
                    }
                    decision => decision,
                }
            }
            _ => answer(),
        }
    }

    /// Row 2, and row 1 while a merged document would be incomplete.
    fn described_locally(&self, parts: &[Part]) -> Option<Decision<'a>> {
        let from_peer = self.asked.origin == Origin::Peer;
        if from_peer || self.asked.nopeer {
            let mut decision = self.ask_local(Reason::DiscoveryLocal, OnNotFound::PassOn);
            if let Action::AskLocal = decision.action {
                decision.action = Action::Local { nopeer: from_peer };
            }
            return Some(decision);
        }
        let incomplete = parts.iter().any(|part| self.snapshot.is_incomplete_start(*part));
        incomplete.then(|| refuse(Reason::Starting))
    }

    /// Row 3: what a server says of itself, no other can say for it.
    fn own_business(&self) -> Decision<'a> {
        let mut decision = self.ask_local(Reason::NonResource, OnNotFound::PassOn);
        if let Action::AskLocal = decision.action {
            decision.action = Action::Local { nopeer: false };
        }
        decision
    }

    /// Asks the local server, or, where there is none, any (row 12).
    fn ask_local(&self, reason: Reason, on_not_found: OnNotFound) -> Decision<'a> {
        let action = match (self.snapshot.local(), self.asked.local) {
            (None, _) => Action::AskAny,
            (Some(_), LocalHealth::Unreachable) => return refuse(Reason::LocalDown),
            (Some(_), _) => Action::AskLocal,
        };
        Decision { action, on_not_found, reason, listed: false }
    }

    /// Whether it is written down that somebody serves it who cannot be asked. Kept out of the way of
    /// what is decided for nearly every request.
    #[cold]
    #[inline(never)]
    fn is_recorded(&self) -> bool {
        self.snapshot.recorded(self.request).next().is_some()
    }

    fn local_is_unseen(&self, part: Part) -> bool {
        self.snapshot.local().is_some_and(|local| local.view.part(part).is_none())
    }

    fn denied_by_local(&self) -> bool {
        self.snapshot
            .local()
            .is_some_and(|local| self.asked.denials.iter().any(|d| *d.member == *local.id))
    }
}

/// Whether a server routes a request at this path to a resource of that scope.
fn fits(scope: Scope, request: &ResourceRequest<'_>) -> bool {
    match scope {
        Scope::Namespaced => {
            !request.namespace.is_empty() || matches!(request.verb, Verb::List | Verb::Watch)
        }
        Scope::Cluster => {
            request.namespace.is_empty()
                || (request.group.is_empty() && request.resource == "namespaces")
        }
        Scope::Unknown => true,
    }
}

fn answer<'a>() -> Decision<'a> {
    Decision {
        action: Action::Answer,
        on_not_found: OnNotFound::PassOn,
        reason: Reason::DiscoveryMerged,
        listed: true,
    }
}

fn refuse<'a>(reason: Reason) -> Decision<'a> {
    Decision { action: Action::Refuse, on_not_found: OnNotFound::PassOn, reason, listed: false }
}
