//! The control loop: membership → fetch → roster → publish.
//!
//! - `run`: the loop itself
//! - [`Membership`]: where members come from. Embedders implement it. A new source of `mvp` sends
//!   claims instead: `Combined` of `mvp-membership` merges them, and implements this trait
//! - [`SnapshotReader`]: what the loop publishes
//!
//! `fetch` asks a member what it serves, and `roster` is the state between rounds, as a state
//! machine without I/O. `extensions` and `storage_versions` add what the cluster's own objects say.
//! `request_headers` runs beside the loop: it keeps the headers that servers read users from.

mod any;
mod extensions;
mod fetch;
#[cfg(fuzzing)]
pub mod fuzzing;
mod membership;
mod publish;
mod reach;
mod report_once;
mod request_headers;
mod roster;
mod run;
mod schemas;
mod storage_versions;

use std::sync::Arc;
use std::time::Duration;

use mvp_core::discovery::Limits;
use mvp_core::snapshot::Policy;

pub use any::AnyMember;
pub(crate) use fetch::{ACCEPT_DISCOVERY, get};
pub use membership::{
    MemberName, MemberRecord, Membership, Roster, StaticMembership, WatchedMembership,
};
pub(crate) use publish::channel;
pub use publish::{SnapshotReader, SnapshotWriter};
pub(crate) use reach::{Reach, Reachable};
pub use report_once::ReportOnce;
pub(crate) use request_headers::watch as watch_request_headers;
pub(crate) use run::{first_snapshot, run};
pub(crate) use schemas::{Schema, content_type as v2_media_type};

/// What the model checker (`layer::model`) drives.
#[cfg(test)]
pub(crate) mod model {
    use mvp_core::Timestamp;
    use mvp_core::snapshot::Inputs;

    pub(crate) use super::ControlSettings;
    use super::extensions::Extensions;
    pub(crate) use super::extensions::Found;
    pub(crate) use super::fetch::{Fetched, Known, OpenApiOutcome, Outcome};
    pub(crate) use super::roster::facts::Facts;
    pub(crate) use super::roster::{Effect, Event, RosterState, Ticket};

    /// What the control loop builds a snapshot from, without extension servers.
    pub(crate) fn inputs(
        roster: &RosterState,
        settings: &ControlSettings,
        started: Timestamp,
        now: Timestamp,
    ) -> Inputs {
        super::run::inputs(roster, settings, &Extensions::default(), started, now)
    }
}

pub use crate::ask::{Ask, AskError, is_watch};
pub use crate::clock::Clock;
use crate::gateway::Instance;
pub use crate::gateway::Who;

/// The settings of the control loop.
#[derive(Debug, Clone)]
pub(crate) struct ControlSettings {
    /// The ID of the local server. `None` for a load balancer.
    pub(crate) local: Option<Arc<str>>,
    /// How often what a member serves is fetched.
    pub(crate) interval: Duration,
    /// How often a member is asked at most because requests need it.
    pub(crate) wanted_interval: Duration,
    /// The limits of members' documents.
    pub(crate) documents: Limits,
    /// How long a member that left is remembered.
    pub(crate) forget_after: Duration,
    /// The time limits of decisions.
    pub(crate) policy: Policy,
    /// This process as peers know it, to recognise its own answers. `None` only in tests.
    pub(crate) instance: Option<Instance>,
}

impl Default for ControlSettings {
    fn default() -> Self {
        ControlSettings {
            local: None,
            interval: Duration::from_secs(1),
            wanted_interval: Duration::from_millis(50),
            documents: Limits::default(),
            forget_after: Duration::from_secs(600),
            policy: Policy::default(),
            instance: None,
        }
    }
}
