//! What operators ask a cluster.

mod doctor;

use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Rolling,
            "ask/doctor-sound",
            doctor::sound,
            "mvp doctor finds nothing on a sound cluster, planned and running, and writes nothing"
        ),
        case!(
            Rolling,
            "ask/doctor-faults",
            doctor::faults,
            "mvp doctor finds each planted fault, by the check that names it, and nothing else"
        ),
    ]
}
