//! The result of a decision. Entry item: [`Decision`].

use super::{Candidates, Reason};

/// What to do with a request, and why.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// What to do first.
    pub action: Action<'a>,
    /// What to do with a 404 in response.
    pub on_not_found: OnNotFound,
    /// The reason, for logs, metrics and refusals.
    pub reason: Reason,
    /// Whether the members that the action sends to list the request.
    pub listed: bool,
}

impl Decision<'_> {
    /// The part of the decision that is still needed after its action was taken, without the borrows.
    pub fn summary(&self) -> Summary {
        let Decision { action, on_not_found, reason, listed } = *self;
        Summary { action: action.kind(), on_not_found, reason, listed }
    }
}

/// A [`Decision`] without the members to send to: it borrows neither the snapshot nor the denials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The kind of the action.
    pub action: ActionKind,
    /// What to do with a 404 in response.
    pub on_not_found: OnNotFound,
    /// The reason, for logs, metrics and refusals.
    pub reason: Reason,
    /// Whether the members that the action sends to list the request.
    pub listed: bool,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Answer from the snapshot.
    Answer,
    /// Send it to the local server.
    Local {
        /// Whether to add `profile=nopeer`, for discovery.
        nopeer: bool,
    },
    /// No member is known to serve it. Send it to the local server and pass any response through,
    /// except a 404, which proves nothing yet.
    AskLocal,
    /// As [`Action::AskLocal`], but there is no local server: send it to the least loaded ready
    /// member.
    AskAny,
    /// Send it to the best of these peers, with failover to the next.
    Peers(Candidates<'a>),
    /// No member serves it: pass the withheld 404 through.
    PassNotFound,
    /// Answer 503.
    Refuse,
}

impl Action<'_> {
    /// The kind of the action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Action::Answer => ActionKind::Answer,
            Action::Local { .. } => ActionKind::Local,
            Action::AskLocal => ActionKind::AskLocal,
            Action::AskAny => ActionKind::AskAny,
            Action::Peers(_) => ActionKind::Peers,
            Action::PassNotFound => ActionKind::PassNotFound,
            Action::Refuse => ActionKind::Refuse,
        }
    }
}

/// An [`Action`] without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// [`Action::Answer`]
    Answer,
    /// [`Action::Local`]
    Local,
    /// [`Action::AskLocal`]
    AskLocal,
    /// [`Action::AskAny`]
    AskAny,
    /// [`Action::Peers`]
    Peers,
    /// [`Action::PassNotFound`]
    PassNotFound,
    /// [`Action::Refuse`]
    Refuse,
}

impl ActionKind {
    /// Whether the action sends the request to a server.
    pub fn sends(self) -> bool {
        match self {
            ActionKind::Local | ActionKind::AskLocal | ActionKind::AskAny | ActionKind::Peers => {
                true
            }
            ActionKind::Answer | ActionKind::PassNotFound | ActionKind::Refuse => false,
        }
    }
}

/// What to do with a 404 in response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNotFound {
    /// Pass it through.
    PassThrough,
    /// Pass it through if its body is that of an [object 404](crate::not_found::NotFound::Object).
    /// Else withhold it, record the denial, decide again. Only an unrouted 404 proves that nothing was
    /// processed: a write must not be sent again after any other.
    NextUnlessObject,
    /// As [`OnNotFound::NextUnlessObject`], but join the next refresh (once for each request) before
    /// deciding again.
    RefreshUnlessObject,
    /// As [`OnNotFound::RefreshUnlessObject`], whatever its body.
    Refresh,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_keeps_all_but_the_members() {
        let decision = Decision {
            action: Action::Local { nopeer: true },
            on_not_found: OnNotFound::Refresh,
            reason: Reason::Unlisted,
            listed: true,
        };
        let expected = Summary {
            action: ActionKind::Local,
            on_not_found: OnNotFound::Refresh,
            reason: Reason::Unlisted,
            listed: true,
        };
        assert_eq!(decision.summary(), expected);
        assert!(expected.action.sends() && !ActionKind::PassNotFound.sends());
    }
}
