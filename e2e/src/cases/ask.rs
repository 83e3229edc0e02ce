//! What operators ask: alerts, and the canary step of the upgrade runbook.

mod alerts;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "ask/alerts",
        alerts::a_killed_peer,
        "Prometheus with the rules of deploy/: a killed peer fires alerts, which resolve when it is back"
    )]
}
