//! Whether a client would have got a false 404 from the local server alone. Entry item:
//! [`is_averted`].

use http::StatusCode;
use mvp_core::RequestInfo;
use mvp_core::decide::{Origin, Reason, local_lacks};

use super::requests::{Record, ServedBy};

/// Whether the local server said or would have said 404, and the client got something else.
pub(super) fn is_averted(record: &Record<'_>) -> bool {
    // The ordinary request ends here.
    if !(record.local_denied || matches!(record.by, ServedBy::Peer | ServedBy::Nobody)) {
        return false;
    }
    let origin = record.parts.extensions.get().copied().unwrap_or(Origin::Client);
    let RequestInfo::Resource(request) = record.info else { return false };
    judge(Ended {
        // The gateway that the client connected to counts it.
        from_peer: origin == Origin::Peer,
        by: record.by,
        reason: record.reason,
        status: record.status,
        local_denied: record.local_denied,
        local_lacks: local_lacks(request, record.snapshot),
    })
}

/// How a request for a resource ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    from_peer: bool,
    by: ServedBy,
    reason: Reason,
    status: StatusCode,
    /// The local server sent a 404 that was withheld.
    local_denied: bool,
    /// The local server is known, and does not list the request.
    local_lacks: bool,
}

fn judge(ended: Ended) -> bool {
    let Ended { from_peer, by, reason, status, local_denied, local_lacks } = ended;
    // A 404 was true. Servers authenticate and authorize before they route: the local server would
    // have sent the same 401 or 403.
    let same_anyway =
        matches!(status, StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if from_peer || same_anyway {
        return false;
    }
    local_denied || (local_lacks && is_instead_of_local(by, reason))
}

/// Whether somebody answered in place of a local server that would have said 404. A local server that
/// is down would have said nothing.
fn is_instead_of_local(by: ServedBy, reason: Reason) -> bool {
    match by {
        ServedBy::Peer => true,
        ServedBy::Nobody => !matches!(
            reason,
            Reason::LocalDown
                | Reason::LocalNotReady
                | Reason::LocalViewUnknown
                | Reason::PeersTooOld
                | Reason::Starting
                | Reason::NotPassedOn
        ),
        ServedBy::Snapshot
        | ServedBy::Local
        | ServedBy::AskedLocal
        | ServedBy::AnyMember
        | ServedBy::Confirmed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table: who served the request, why, the status, whether the local server denied it,
    /// whether it lacks it; whether a false 404 was averted.
    #[test]
    fn only_what_the_local_server_lacks_or_denied_is_averted() {
        use Reason::*;
        use ServedBy::*;
        for (by, reason, status, local_denied, local_lacks, averted) in [
            // A peer serves what the local server lacks.
            (Peer, ServedByPeer, 200, false, true, true),
            (Peer, ServedByPeer, 201, false, true, true),
            (Peer, ServedByPeer, 409, false, true, true),
            (Peer, ServedByPeer, 500, false, true, true),
            (Peer, VerbUnlisted, 405, false, true, true),
            // What the client got is what the local server would have sent.
            (Peer, ServedByPeer, 404, false, true, false),
            (Peer, ServedByPeer, 403, false, true, false),
            (Peer, ServedByPeer, 401, false, true, false),
            // Failover: the local server serves it, but is down or not ready.
            (Peer, LocalDown, 200, false, false, false),
            (Peer, LocalNotReady, 200, false, false, false),
            (Nobody, LocalDown, 503, false, false, false),
            (Nobody, LocalNotReady, 503, false, false, false),
            (Nobody, PeersTooOld, 503, false, false, false),
            (Nobody, NobodyReachable, 503, false, false, false),
            (Nobody, BodyGone, 503, false, false, false),
            // It is down, and would have said nothing.
            (Nobody, LocalDown, 503, false, true, false),
            // Nothing is known of it.
            (Peer, ServedByPeer, 200, false, false, false),
            (Nobody, LocalViewUnknown, 503, false, false, false),
            // 503 in place of a 404.
            (Nobody, NobodyReachable, 503, false, true, true),
            (Nobody, ServedElsewhere, 503, false, true, true),
            (Nobody, ViewSuspect, 503, false, true, true),
            (Nobody, Unconfirmed, 503, true, true, true),
            (Nobody, Recorded, 503, true, true, true),
            (Nobody, ViewSuspect, 503, true, false, true),
            (Nobody, LocalViewUnknown, 503, true, false, true),
            // The local server denies what it lists, and somebody serves it after all.
            (Peer, ServedByPeer, 200, true, false, true),
            (Local, ServedLocally, 200, true, false, true),
            (Peer, ServedByPeer, 404, true, false, false),
            // Every member confirmed the 404.
            (Confirmed, ConfirmedNotFound, 404, true, true, false),
            // The ordinary case.
            (Local, ServedLocally, 200, false, false, false),
            (AskedLocal, Unlisted, 200, false, true, false),
            (AnyMember, Unlisted, 200, false, false, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let ended = Ended { from_peer: false, by, reason, status, local_denied, local_lacks };
            assert_eq!(judge(ended), averted, "{ended:?}");
            assert!(!judge(Ended { from_peer: true, ..ended }), "another gateway counts it");
        }
    }
}
