//! Whether a client would have got a false 404 from the local server alone, and how often that was
//! averted. Entry items: [`is_averted`], [`Averted`].

use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use mvp_core::RequestInfo;
use mvp_core::decide::{Origin, Reason, local_lacks};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::by_resource::ByResource;
use super::register;
use super::requests::{Record, ServedBy};

/// The most resources that are labels. Resources come and go with custom resource definitions, but
/// labels stay.
const MAX_LABELS: usize = 2048;

/// Counts false 404s that were averted, by resource.
#[derive(Debug)]
pub(super) struct Averted {
    counts: Family<ResourceLabels, Counter>,
    known: ByResource,
    /// The number of resources that are labels. Requests at the same time can count one twice.
    labels: AtomicUsize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: String,
    version: String,
    resource: String,
}

impl Averted {
    pub(super) fn registered(registry: &mut Registry) -> Averted {
        let counts: Family<ResourceLabels, Counter> = register(
            registry,
            "mvp_false_not_found_averted",
            "Requests that got no 404, although the local server does not serve them",
        );
        // From 0 on, so that a gateway without any differs from one that does not count them.
        drop(counts.get_or_create(&ResourceLabels::default()));
        Averted { counts, known: ByResource::default(), labels: AtomicUsize::new(0) }
    }

    /// Counts one for a resource. After 2,048 resources, others are counted without their names.
    pub(super) fn count(&self, (group, version, resource): (&str, &str, &str)) {
        let known = self.known.get((group, version, resource, 0), || {
            if self.labels.fetch_add(1, Ordering::Relaxed) >= MAX_LABELS {
                return None;
            }
            let (group, version, resource) =
                (group.to_owned(), version.to_owned(), resource.to_owned());
            Some(self.counts.get_or_create_owned(&ResourceLabels { group, version, resource }))
        });
        match known {
            Some(count) => count.inc(),
            None => self.counts.get_or_create(&ResourceLabels::default()).inc(),
        };
    }
}

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
    /// The local server is known, and does not list the resource or subresource.
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

    #[test]
    fn counts_begin_with_0_and_have_bounded_labels() {
        let mut registry = Registry::default();
        let averted = Averted::registered(&mut registry);
        let samples = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples.map(str::to_owned).collect::<Vec<_>>()
        };
        let without_name = |count| {
            let labels = r#"group="",version="",resource="""#;
            format!("mvp_false_not_found_averted_total{{{labels}}} {count}")
        };
        assert_eq!(samples(), [without_name(0)]);
        for number in 0..3000 {
            averted.count(("g", "v1", &format!("kind-{number}")));
        }
        averted.count(("g", "v1", "kind-0"));
        let samples = samples();
        assert_eq!(samples.len(), 2049);
        assert!(samples.contains(&without_name(952)));
        assert!(samples.iter().any(|s| s.contains("\"kind-0\"") && s.ends_with(" 2")));
    }

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
            // It lists the resource without the verb, and would have said 405.
            (Peer, ServedByPeer, 200, false, false, false),
            (Nobody, ServedElsewhere, 503, false, false, false),
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
