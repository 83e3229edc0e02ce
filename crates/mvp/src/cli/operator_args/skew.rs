//! The flags of `mvp skew`.

use clap::Args;

/// The flags of `mvp skew`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct SkewArgs {}
