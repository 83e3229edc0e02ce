//! The control loop: membership → fetch → roster → publish.
//!
//! - [`run`]: the loop itself
//! - [`Membership`]: where members come from; a new source implements it
//! - [`SnapshotReader`]: what the loop publishes
//!
//! `fetch` asks a member what it serves, and `roster` is the state between rounds, as a state
//! machine without I/O. `extensions` and `storage_versions` add what the cluster's own objects say.

mod ask;
mod extensions;
mod fetch;
mod health;
mod membership;
mod publish;
mod report_once;
mod roster;
mod run;
mod storage_versions;

use std::sync::Arc;
use std::time::Duration;

use mvp_core::snapshot::Policy;

pub use ask::{Ask, AskError, Reach};
pub(crate) use fetch::{get, gunzip};
pub use health::{LocalState, watch_local, watch_members};
pub use membership::{
    MemberName, MemberRecord, Membership, Roster, StaticMembership, WatchedMembership, Who,
};
pub use publish::{Clock, SnapshotReader, SnapshotWriter, channel};
pub use report_once::ReportOnce;
pub use run::{first_snapshot, run};

use crate::peers::Instance;

/// The settings of the control loop.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// The ID of the local server. `None` for a load balancer.
    pub local: Option<Arc<str>>,
    /// How often what a member serves is fetched.
    pub interval: Duration,
    /// How long a member that left is remembered.
    pub forget_after: Duration,
    /// The time limits of decisions.
    pub policy: Policy,
    /// This process as peers know it, to recognise its own answers. `None` only in tests.
    pub instance: Option<Instance>,
}

impl Default for ControlSettings {
    fn default() -> Self {
        ControlSettings {
            local: None,
            interval: Duration::from_secs(1),
            forget_after: Duration::from_secs(600),
            policy: Policy::default(),
            instance: None,
        }
    }
}
