//! The flags of `mvp skew`.

use clap::Args;

/// The flags of `mvp skew`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  Which APIs differ between the servers:
    mvp skew")]
pub(crate) struct SkewArgs {}
