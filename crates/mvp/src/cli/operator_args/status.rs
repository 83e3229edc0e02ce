//! The flags of `mvp status`.

use clap::Args;

use crate::cli::Output;
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp status`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}
