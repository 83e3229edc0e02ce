//! The flags of `mvp doctor`.

use clap::Args;

/// The flags of `mvp doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  Check the configuration and the cluster:
    mvp doctor")]
pub(crate) struct DoctorArgs {}
