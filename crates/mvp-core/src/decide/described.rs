//! Rows 1 and 2 of the decision: discovery and OpenAPI.

use super::{Action, Case, Decision, LocalHealth, OnNotFound, Origin, Reason, refuse};
use crate::discovery::Part;
use crate::request::{DiscoveryPath, OpenApiPath};

impl<'a> Case<'a> {
    /// Rows 1 and 2 for discovery.
    pub(super) fn discovery(&self, path: &DiscoveryPath<'_>) -> Decision<'a> {
        let part = path.part();
        if let Some(decision) = self.described_locally(&[part]) {
            return decision;
        }
        // Without a view of the local server, the merged document would lack all that it serves. Its
        // own document is better.
        let reachable = self.asked.local != LocalHealth::Unreachable;
        let local_unseen = self.local_is_unseen(part) && reachable && !self.denied_by_local();
        // Without any view, clients would believe an empty list.
        let seen = self.snapshot.members().any(|member| member.view.part(part).is_some());
        if local_unseen || (!seen && self.asked.denials.is_empty()) {
            return self.ask_local(Reason::LocalViewUnknown, OnNotFound::Refresh);
        }
        if seen && self.snapshot.describes(path) {
            return answer();
        }
        self.unlisted(part, OnNotFound::Refresh)
    }

    /// Rows 1 and 2 for OpenAPI. Its index describes both halves, so both must be complete.
    pub(super) fn openapi(&self, path: &OpenApiPath<'_>) -> Decision<'a> {
        if let Some(decision) = self.described_locally(&Part::ALL) {
            return decision;
        }
        match path {
            OpenApiPath::V3Document(key) if self.snapshot.openapi().entry(key).is_none() => {
                let part = path.part();
                // A member whose index was never fetched may have this document.
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
            let mut decision = self.ask_local(Reason::DiscoveryLocal, OnNotFound::PassThrough);
            if let Action::AskLocal = decision.action {
                decision.action = Action::Local { nopeer: from_peer };
            }
            return Some(decision);
        }
        let incomplete = parts.iter().any(|part| self.snapshot.is_incomplete_start(*part));
        incomplete.then(|| refuse(Reason::Starting))
    }
}

fn answer<'a>() -> Decision<'a> {
    Decision {
        action: Action::Answer,
        on_not_found: OnNotFound::PassThrough,
        reason: Reason::DiscoveryMerged,
        listed: true,
    }
}
