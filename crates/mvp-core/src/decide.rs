//! The decision: what to do with a request, what to do with a 404 in response, and why.
//!
//! [`decide`] is a pure function of the request, one snapshot and the circumstances of the request.
//! If a server answers with a 404 that the decision tells the caller to withhold, the data path
//! records a [`Denial`], refreshes the views if told to, and decides again. In this way
//! the same function also tells a true 404 from a false one. The loop ends, because every round adds
//! a denial and a member is asked at most twice. The row numbers are those of the table in
//! ARCHITECTURE.md.

mod asked;
mod candidates;
mod decision;
mod described;
mod reason;

pub use asked::{Asked, Denial, LocalHealth, Origin};
use candidates::AfterDenial;
pub use candidates::Candidates;
pub use decision::{Action, ActionKind, Decision, OnNotFound, Summary};
pub use reason::Reason;

use crate::discovery::{Part, Scope};
use crate::request::ResourceRequest;
use crate::snapshot::Route;
use crate::{RequestInfo, Snapshot, Verb};

/// Decides what to do with a request. It does not allocate.
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
        RequestInfo::Resource(request) if request.is_unrouted() => case.non_resource(),
        RequestInfo::Resource(request) => case.resource(request),
        RequestInfo::Discovery(path) => case.discovery(path),
        RequestInfo::OpenApi(path) => case.openapi(path),
        RequestInfo::NonResource(_) | RequestInfo::Malformed => case.non_resource(),
    }
}

/// Whether the local server is known to answer a request with 404, because it does not list the
/// resource or subresource. If it lists that without the verb, it answers with 405. False without a
/// local server, and while nothing is known of it.
pub fn local_lacks(request: &ResourceRequest<'_>, snapshot: &Snapshot) -> bool {
    let part = request.part();
    let route = snapshot.route(request).filter(|route| fits(route.scope, request));
    let listing = Candidates::new(snapshot, route, &request.subresource, &[], part);
    let seen = snapshot.local().is_some_and(|local| local.view.part(part).is_some());
    seen && !listing.local_lists()
}

/// The arguments of one decision.
struct Case<'a> {
    request: &'a RequestInfo<'a>,
    snapshot: &'a Snapshot,
    asked: Asked<'a>,
}

impl<'a> Case<'a> {
    /// Rows 4 to 13, in the order in which they apply.
    fn resource(&self, request: &'a ResourceRequest<'_>) -> Decision<'a> {
        let (snapshot, asked, part) = (self.snapshot, self.asked, request.part());
        let route = snapshot.route(request);
        let listing = Candidates::new(snapshot, route, &request.subresource, asked.denials, part);
        let exact = listing.with_verb(request.verb, route.is_none_or(|r| fits(r.scope, request)));
        let opaque = self.is_opaque(request, route);
        let unless_opaque =
            |on_not_found| if opaque { OnNotFound::PassThrough } else { on_not_found };
        // For a subresource that a custom resource lacks, servers answer as if the object were
        // missing. For anything else that they do not serve, they name no object.
        let unlisted_not_found = unless_opaque(match request.subresource.is_empty() {
            true => OnNotFound::RefreshUnlessObject,
            false => OnNotFound::Refresh,
        });
        let unseen = self.local_is_unseen(part);
        let local_lists = exact.local_lists();
        if request.has_unusual_path()
            && let Some(decision) = after_denied_path(&exact)
        {
            return decision;
        }
        // Rows 4 and 9: served locally; or maybe, by a server that is down and has no view yet.
        if (local_lists && exact.believes_local())
            || (unseen && asked.local == LocalHealth::Unreachable)
        {
            let on_not_found = unless_opaque(OnNotFound::RefreshUnlessObject);
            let local = to_local(on_not_found, Reason::ServedLocally, true);
            return match asked.local {
                LocalHealth::Ready => local,
                _ => self.while_local_is_down(request, exact, local),
            };
        }
        // Row 8: the local server has no view yet, so it may serve this.
        if unseen && !self.denied_by_local() && !(opaque && exact.any()) {
            return self.ask_local(Reason::LocalViewUnknown, unlisted_not_found);
        }
        // A server older than the local one would erase the fields that it does not know.
        let exact = match snapshot.local() {
            Some(local) if local_lists && !request.is_read() => {
                exact.not_older_than(local.view.release)
            }
            _ => exact,
        };
        // Row 6: the sender may have a newer view of the local server than this gateway.
        let is_proxied = asked.origin != Origin::Client;
        if is_proxied && exact.listed_by_anyone() && !opaque && !self.denied_by_local() {
            // The 404 for a subresource that the local server lacks may name the object.
            let on_not_found = match request.subresource.is_empty() {
                true => OnNotFound::NextUnlessObject,
                false => OnNotFound::Refresh,
            };
            return self.ask_local(Reason::ServedElsewhere, on_not_found);
        }
        // Rows 5 and 6: served by peers.
        if exact.any() {
            let on_not_found = unless_opaque(on_peer_not_found(request));
            return self.to_peers(exact, on_not_found, Reason::ServedByPeer, true);
        }
        // Rows 10 and 11, and members that left or have no address: listed, but no member to ask.
        if exact.listed_by_anyone() {
            let denied = asked.denials.iter().any(|denial| denial.listed);
            return refuse(if denied { Reason::ViewSuspect } else { Reason::NobodyReachable });
        }
        // Row 13: listed with other verbs or at another path. A member that lists it writes the error.
        let on_not_found = unless_opaque(OnNotFound::RefreshUnlessObject);
        if listing.local_serves() && asked.local != LocalHealth::Unreachable {
            return to_local(on_not_found, Reason::VerbUnlisted, false);
        }
        if listing.any() && !listing.local_lists() {
            return self.to_peers(listing, on_not_found, Reason::VerbUnlisted, false);
        }
        if listing.any_unreachable() {
            return refuse(Reason::NobodyReachable);
        }
        // Rows 7 and 8: no member lists it. An opaque 404 passes through, so it is refused beforehand if
        // a member may still serve it.
        match opaque.then(|| self.why_unconfirmed(part)).flatten() {
            Some(reason) => refuse(reason),
            None => self.unlisted(part, unlisted_not_found),
        }
    }

    /// The reason to doubt that no member serves this.
    fn why_unconfirmed(&self, part: Part) -> Option<Reason> {
        if self.snapshot.awaits_members() || self.snapshot.blocking(part).next().is_some() {
            return Some(Reason::Unconfirmed);
        }
        self.is_recorded().then_some(Reason::Recorded)
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
        // An older server would erase the fields that it does not know.
        let release = self.snapshot.local().and_then(|local| local.view.release);
        let usable = if request.is_read() { peers } else { peers.not_older_than(release) };
        match self.asked.origin {
            Origin::Client if usable.any() => {
                let on_not_found = match local.on_not_found {
                    OnNotFound::PassThrough => OnNotFound::PassThrough,
                    _ => on_peer_not_found(request),
                };
                return self.to_peers(usable, on_not_found, reason, true);
            }
            // The sender can ask one of them.
            Origin::Peer if usable.any() => return refuse(reason),
            _ => {}
        }
        // No peer can serve it. A server that is not ready may still respond.
        match self.asked.local {
            LocalHealth::Unreachable if self.asked.origin == Origin::Client && peers.any() => {
                refuse(Reason::PeersTooOld)
            }
            LocalHealth::Unreachable => refuse(Reason::LocalDown),
            LocalHealth::Unready | LocalHealth::Ready => local,
        }
    }

    /// Rows 7 and 8: no member lists it. The local server is asked anyway. Its 404 is true once every
    /// member has confirmed, after the request arrived, that it does not serve it.
    fn unlisted(&self, part: Part, on_not_found: OnNotFound) -> Decision<'a> {
        let asked = self.asked;
        // The local server confirms it by a 404 to this request, or by a fetch after it arrived.
        let local_confirmed = self.denied_by_local()
            || self.snapshot.local().is_some_and(|local| {
                local.view.part(part).is_some_and(|seen| seen.confirmed >= asked.arrived)
            });
        let has_local = self.snapshot.local().is_some();
        if asked.denials.is_empty() || (has_local && !local_confirmed) {
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
        pass_not_found()
    }

    /// Row 3: only the local server can answer for itself.
    fn non_resource(&self) -> Decision<'a> {
        let mut decision = self.ask_local(Reason::NonResource, OnNotFound::PassThrough);
        if let Action::AskLocal = decision.action {
            decision.action = Action::Local { nopeer: false };
        }
        decision
    }

    /// Sends the request to the local server or, without one, to any member (row 12).
    fn ask_local(&self, reason: Reason, on_not_found: OnNotFound) -> Decision<'a> {
        let action = match (self.snapshot.local(), self.asked.local) {
            (None, _) => Action::AskAny,
            (Some(_), LocalHealth::Unreachable) => return refuse(Reason::LocalDown),
            (Some(_), _) => Action::AskLocal,
        };
        Decision { action, on_not_found, reason, listed: false }
    }

    /// Sends the request to peers, unless it comes from one: a request is proxied once.
    fn to_peers(
        &self,
        peers: Candidates<'a>,
        on_not_found: OnNotFound,
        reason: Reason,
        listed: bool,
    ) -> Decision<'a> {
        match self.asked.origin {
            Origin::Client => {
                Decision { action: Action::Peers(peers), on_not_found, reason, listed }
            }
            Origin::Peer | Origin::Marked => refuse(Reason::ServedElsewhere),
        }
    }

    /// Whether a kubelet, a backend or an extension server writes the response, so that its 404s
    /// cannot be told from the server's own.
    fn is_opaque(&self, request: &ResourceRequest<'_>, route: Option<&Route>) -> bool {
        request.is_connect()
            || match route {
                Some(route) => route.extension,
                None => self.snapshot.is_extension(&request.group, &request.version),
            }
    }

    /// Whether a StorageVersion records the request for a member that could never be asked. Rare, so
    /// it is kept out of line.
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

/// Whether servers route the path of a request to a resource of this scope.
fn fits(scope: Scope, request: &ResourceRequest<'_>) -> bool {
    match scope {
        Scope::Namespaced => {
            !request.namespace.is_empty()
                || (matches!(request.verb, Verb::List | Verb::Watch) && !request.is_named_by_path())
        }
        Scope::Cluster => {
            request.namespace.is_empty()
                || (request.group.is_empty() && request.resource == "namespaces")
        }
        Scope::Unknown => true,
    }
}

/// Rows 10 and 11: the path is at fault if a member still lists the resource after its 404.
fn after_denied_path<'a>(exact: &Candidates<'_>) -> Option<Decision<'a>> {
    match exact.listed_after_denial() {
        AfterDenial::Listed => Some(pass_not_found()),
        AfterDenial::Unconfirmed => Some(refuse(Reason::ViewSuspect)),
        AfterDenial::Unlisted => None,
    }
}

/// What to do with a 404 of a peer that lists the request. Mostly the next peer is asked.
fn on_peer_not_found(request: &ResourceRequest<'_>) -> OnNotFound {
    match request.has_unusual_path() {
        true => OnNotFound::RefreshUnlessObject,
        false => OnNotFound::NextUnlessObject,
    }
}

fn pass_not_found<'a>() -> Decision<'a> {
    Decision {
        action: Action::PassNotFound,
        on_not_found: OnNotFound::PassThrough,
        reason: Reason::ConfirmedNotFound,
        listed: false,
    }
}

fn to_local<'a>(on_not_found: OnNotFound, reason: Reason, listed: bool) -> Decision<'a> {
    Decision { action: Action::Local { nopeer: false }, on_not_found, reason, listed }
}

fn refuse<'a>(reason: Reason) -> Decision<'a> {
    Decision {
        action: Action::Refuse,
        on_not_found: OnNotFound::PassThrough,
        reason,
        listed: false,
    }
}
