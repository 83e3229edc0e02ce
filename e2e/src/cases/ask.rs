//! What operators ask a cluster.

mod skew;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "ask/skew",
            skew::differences,
            "mvp skew and kubectl mvp skew find what differs, and what is lost without a server"
        ),
        case!(
            Cable,
            "ask/skew-endpoints",
            skew::endpoints,
            "kubectl mvp skew asks every endpoint of the cluster behind one context"
        ),
    ]
}
