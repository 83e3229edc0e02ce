//! Why a request was treated as it was.

use std::fmt;

/// Why a request was treated as it was; one word for metrics, one sentence for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Row 1: discovery is answered for the whole cluster.
    DiscoveryMerged,
    /// Row 1: a member's APIs are not known yet, shortly after the start.
    Starting,
    /// Row 2: discovery of the local server alone was asked for.
    DiscoveryLocal,
    /// Row 3: no API resource.
    NonResource,
    /// Row 4: the local server serves it.
    ServedLocally,
    /// Row 5: a peer serves it.
    ServedByPeer,
    /// Row 5: only members serve it that left or cannot be reached.
    NobodyReachable,
    /// Row 6: a peer serves it, but the request came from a peer already, or says so.
    ServedElsewhere,
    /// Row 7: nobody is known to serve it.
    Unlisted,
    /// Row 7: every member confirmed that it does not serve it.
    ConfirmedNotFound,
    /// Row 8: a member that may serve it could not be asked.
    Unconfirmed,
    /// Row 8: a member that was never seen is recorded to serve it.
    Recorded,
    /// Row 8: what the local server serves was never seen.
    LocalViewUnknown,
    /// Row 9: the local server is down.
    LocalDown,
    /// Row 9: the local server answers, but is not ready.
    LocalNotReady,
    /// Row 9: the local server is down, and those who could take the write are older.
    PeersTooOld,
    /// Rows 10 and 11: whoever lists it answers that it is not there.
    ViewSuspect,
    /// Row 12: from a peer, and there is no local server.
    NotPassedOn,
    /// Row 13: the resource is served, but not with this verb or at this path.
    VerbUnlisted,
    /// The request cannot be retried: its body is too large to keep.
    BodyGone,
}

/// Every reason, in the order of the type.
const ALL: [Reason; 20] = [
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

impl Reason {
    /// The reason with that label; `None` for an unknown one, as a newer gateway may send it.
    pub fn from_label(label: &str) -> Option<Reason> {
        ALL.into_iter().find(|reason| reason.as_str() == label)
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

/// The reason as half a sentence, for the message of a refusal.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::DiscoveryMerged => "discovery is answered for all members together",
            Reason::Starting => "the APIs of some members are not known yet",
            Reason::DiscoveryLocal => "discovery of the local server alone was asked for",
            Reason::NonResource => "the path is no API resource",
            Reason::ServedLocally => "the local server serves it",
            Reason::ServedByPeer => "a peer serves it",
            Reason::NobodyReachable => "no member that serves it gives an answer",
            Reason::ServedElsewhere => "another member serves it, and a request is passed on once",
            Reason::Unlisted => "no member is known to serve it",
            Reason::ConfirmedNotFound => "every member confirmed that it does not serve it",
            Reason::Unconfirmed => "a member that may serve it could not be asked",
            Reason::Recorded => {
                "a StorageVersion records it for a server that could never be asked; put a gateway \
                 before that server, or delete what is recorded"
            }
            Reason::LocalViewUnknown => "it is not known yet what the local server serves",
            Reason::LocalDown => "the local server is down",
            Reason::LocalNotReady => "the local server is not ready",
            Reason::PeersTooOld => "the local server is down, and its peers are too old to write",
            Reason::ViewSuspect => "the members that list it answer that it is not there",
            Reason::NotPassedOn => "a request from a peer is not passed on",
            Reason::VerbUnlisted => "the resource is served, but not in this way",
            Reason::BodyGone => "its body is too large to be sent again",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_parses_to_its_reason() {
        for (place, reason) in ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place, "{reason:?}");
            assert_eq!(Reason::from_label(reason.as_str()), Some(reason));
        }
        assert_eq!(ALL.last(), Some(&Reason::BodyGone), "the last reason of the type");
        for unknown in ["", "Local-Not-Ready", "local-not-ready ", "from-a-newer-gateway"] {
            assert_eq!(Reason::from_label(unknown), None, "{unknown:?}");
        }
    }
}
