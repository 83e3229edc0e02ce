//! What to do about a refusal. Entry: [`advice`].

use mvp_core::decide::Reason;

/// What to do about requests that are refused for this reason; none for a reason that never refuses.
/// docs/operate.md has the same words.
pub(crate) fn advice(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Starting => {
            "wait: not all members were seen yet. This lasts at most 30 s after the start"
        }
        Reason::NotPassedOn => {
            "nothing: a load balancer (--servers) is not a peer, and does not accept requests from peers"
        }
        Reason::ServedElsewhere => {
            "nothing: a request that was proxied once, or is marked so, is not proxied again"
        }
        Reason::NobodyReachable => {
            "look at the members that serve it: they left, or are unreachable. A write may have been \
             processed"
        }
        Reason::Unconfirmed => {
            "no member is known to serve it, but the members in the message could not be asked, or the \
             members are not known yet: see /readyz?verbose, mvp_view_age_seconds and /debug/snapshot"
        }
        Reason::Recorded => {
            "a StorageVersion records that the server in the message serves it, but that server could \
             never be asked: run a gateway beside it, or add it with --peer. If it is gone for good: \
             mvp forget ID; if the record is wrong: kubectl delete storageversion GROUP.RESOURCE"
        }
        Reason::LocalViewUnknown => {
            "the discovery of the local server was never fetched: see the log for the reason"
        }
        Reason::ViewSuspect => {
            "the server that lists it answers with a 404 that names no object; mostly passes within a \
             second. A write may have been processed"
        }
        Reason::LocalDown => {
            "the local server does not respond, and no peer serves this; non-resource paths such as \
             /readyz are never proxied to peers"
        }
        Reason::LocalNotReady => {
            "from a peer: the local server is not ready, and another member serves this, too"
        }
        Reason::BodyGone => {
            "the request must be sent to another member, but its body is larger than the 128 KiB that \
             are kept for a retry: retry it"
        }
        Reason::PeersTooOld => {
            "the local server is down, and the members that could process this write are older than it \
             was: they would drop fields"
        }
        Reason::DiscoveryMerged
        | Reason::DiscoveryLocal
        | Reason::NonResource
        | Reason::ServedLocally
        | Reason::ServedByPeer
        | Reason::Unlisted
        | Reason::ConfirmedNotFound
        | Reason::VerbUnlisted => return None,
    })
}

/// The advice for a reason by its label; empty for labels that only another version knows.
pub(crate) fn named(label: &str) -> &'static str {
    let reason = Reason::REFUSALS.into_iter().find(|reason| reason.as_str() == label);
    reason.and_then(advice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The labels and the advice of the table in docs/operate.md.
    fn documented() -> BTreeMap<String, String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_, section) = text.split_once("\n## Reasons of a 503\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let row = |row: &str| {
            let plain = row.replace('`', "");
            let cells: Vec<&str> = plain.trim_matches('|').split(" | ").map(str::trim).collect();
            let [label, _, advice] = cells[..] else { panic!("{cells:?}") };
            (label.to_owned(), advice.to_owned())
        };
        rows.map(row).collect()
    }

    #[test]
    fn the_documentation_gives_the_same_advice() {
        let given = Reason::ALL.into_iter().filter_map(|reason| Some((reason, advice(reason)?)));
        let given = given.map(|(reason, advice)| (reason.as_str().to_owned(), advice.to_owned()));
        assert_eq!(given.collect::<BTreeMap<String, String>>(), documented());
    }
}
