//! What operators ask a cluster.

mod status;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "ask/status",
        status::one_gateway_and_all,
        "mvp status shows members, decisions and refusals with advice, of one gateway and of all"
    )]
}
