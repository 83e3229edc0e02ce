//! The flags of `mvp doctor`.

use clap::Args;

/// The flags of `mvp doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct DoctorArgs {}
