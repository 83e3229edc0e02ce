//! The reason of a decision. Entry item: [`Reason`].

use std::fmt;

/// The reason of a decision: a label for metrics ([`Reason::as_str`]) and a phrase for messages
/// (`Display`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Row 1: discovery of the whole cluster.
    DiscoveryMerged,
    /// Row 1: a member has no view yet, shortly after the start.
    Starting,
    /// Row 2: discovery of the local server alone.
    DiscoveryLocal,
    /// Row 3: not an API resource.
    NonResource,
    /// Row 4: the local server serves it.
    ServedLocally,
    /// Row 5: a peer serves it.
    ServedByPeer,
    /// Row 5: all members that serve it left, have no address or did not respond.
    NobodyReachable,
    /// Row 6: a peer serves it, but the request comes from a peer, or claims to.
    ServedElsewhere,
    /// Row 7: no member is known to serve it.
    Unlisted,
    /// Row 7: every member confirmed that it does not serve it.
    ConfirmedNotFound,
    /// Row 8: a member that may serve it could not be asked.
    Unconfirmed,
    /// Row 8: a StorageVersion records it for a member without a view.
    Recorded,
    /// Row 8: the local server has no view yet.
    LocalViewUnknown,
    /// Row 9: the local server is down.
    LocalDown,
    /// Row 9: the local server responds, but is not ready.
    LocalNotReady,
    /// Row 9: the local server is down, and the peers that serve it are too old for a write.
    PeersTooOld,
    /// Rows 10 and 11: the members that list it answer 404.
    ViewSuspect,
    /// Row 12: the request comes from a peer, and there is no local server.
    NotPassedOn,
    /// Row 13: the resource is served, but not with this verb or at this path.
    VerbUnlisted,
    /// The request cannot be retried: its body is too large to keep.
    BodyGone,
}

impl Reason {
    /// Every reason, in the order of the type.
    pub const ALL: [Reason; 20] = [
        Reason::DiscoveryMerged,
        Reason::Starting,
        Reason::DiscoveryLocal,
        Reason::NonResource,
        Reason::ServedLocally,
        Reason::ServedByPeer,
        Reason::NobodyReachable,
        Reason::ServedElsewhere,
        Reason::Unlisted,
        Reason::ConfirmedNotFound,
        Reason::Unconfirmed,
        Reason::Recorded,
        Reason::LocalViewUnknown,
        Reason::LocalDown,
        Reason::LocalNotReady,
        Reason::PeersTooOld,
        Reason::ViewSuspect,
        Reason::NotPassedOn,
        Reason::VerbUnlisted,
        Reason::BodyGone,
    ];

    /// The reasons for which a request is refused.
    pub const REFUSALS: [Reason; 12] = [
        Reason::Starting,
        Reason::NotPassedOn,
        Reason::ServedElsewhere,
        Reason::NobodyReachable,
        Reason::Unconfirmed,
        Reason::Recorded,
        Reason::LocalViewUnknown,
        Reason::ViewSuspect,
        Reason::LocalDown,
        Reason::LocalNotReady,
        Reason::BodyGone,
        Reason::PeersTooOld,
    ];

    /// The reason with that label; `None` for an unknown one, as a newer gateway may send it.
    pub fn from_label(label: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == label)
    }

    /// The reason as a label, for metrics, logs and the header that gateways exchange.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::DiscoveryMerged => "discovery-merged",
            Reason::Starting => "starting",
            Reason::DiscoveryLocal => "discovery-local",
            Reason::NonResource => "non-resource",
            Reason::ServedLocally => "served-locally",
            Reason::ServedByPeer => "served-by-peer",
            Reason::NobodyReachable => "nobody-reachable",
            Reason::ServedElsewhere => "served-elsewhere",
            Reason::Unlisted => "unlisted",
            Reason::ConfirmedNotFound => "confirmed-not-found",
            Reason::Unconfirmed => "unconfirmed",
            Reason::Recorded => "recorded",
            Reason::LocalViewUnknown => "local-view-unknown",
            Reason::LocalDown => "local-down",
            Reason::LocalNotReady => "local-not-ready",
            Reason::PeersTooOld => "peers-too-old",
            Reason::ViewSuspect => "view-suspect",
            Reason::NotPassedOn => "not-passed-on",
            Reason::VerbUnlisted => "verb-unlisted",
            Reason::BodyGone => "body-gone",
        }
    }
}

/// The reason as a phrase, for the message of a refusal.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::DiscoveryMerged => "discovery covers all members",
            Reason::Starting => "the APIs of some members are not known yet",
            Reason::DiscoveryLocal => "the client asked for discovery of the local server only",
            Reason::NonResource => "the path is not an API resource",
            Reason::ServedLocally => "the local server serves it",
            Reason::ServedByPeer => "a peer serves it",
            Reason::NobodyReachable => "no member that serves it responds",
            Reason::ServedElsewhere => {
                "another member serves it, and a request is proxied only once"
            }
            Reason::Unlisted => "no member is known to serve it",
            Reason::ConfirmedNotFound => "every member confirmed that it does not serve it",
            Reason::Unconfirmed => "a member that may serve it could not be asked",
            Reason::Recorded => {
                "a StorageVersion records it for a server that could never be asked; run mvp in \
                 front of that server, or delete the StorageVersion"
            }
            Reason::LocalViewUnknown => "the APIs of the local server are not known yet",
            Reason::LocalDown => "the local server is down",
            Reason::LocalNotReady => "the local server is not ready",
            Reason::PeersTooOld => "the local server is down, and its peers are too old to write",
            Reason::ViewSuspect => "the members that list it answer 404",
            Reason::NotPassedOn => "a request from a peer is not proxied again",
            Reason::VerbUnlisted => {
                "the resource is served, but not with this verb or at this path"
            }
            Reason::BodyGone => "its body is too large to keep for a retry",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_label_parses_to_its_reason() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place, "{reason:?}");
            assert_eq!(Reason::from_label(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::ALL.last(), Some(&Reason::BodyGone), "the last reason of the type");
        for unknown in ["", "Local-Not-Ready", "local-not-ready ", "from-a-newer-gateway"] {
            assert_eq!(Reason::from_label(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn every_refusal_says_why_in_words_of_its_own() {
        let phrases: BTreeSet<String> = Reason::REFUSALS.iter().map(ToString::to_string).collect();
        assert_eq!(phrases.len(), Reason::REFUSALS.len(), "{phrases:?}");
        assert!(phrases.iter().all(|phrase| phrase.contains(' ')), "{phrases:?}");
    }
}
