//! The flags of `mvp callers`.

use clap::Args;

use crate::cli::Output;
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp callers`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  Who called which API through the gateway on this host:
    mvp callers")]
pub(crate) struct CallersArgs {
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}
