//! The flags of `mvp status`.

use clap::{Args, ValueEnum};

use crate::cli::Output;
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp status`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  The gateway on this host:
    mvp status
  Every member of the cluster, asked by the gateway on this host:
    mvp status --all
  Follow an upgrade, until Ctrl-C:
    mvp status --all --watch
  The checks that fail, for a script:
    mvp status -o json | jq '.gateways[].status.readiness[] | select(.problem)'
  In a probe of kubelet, in the same container as the gateway:
    mvp status --probe=readyz

Counts are since the start of the gateway.

Exit codes: 0 if the gateway is ready, its view of every present member is fresh, and (with --steer)
no connection is from before the steering, 3 if not (with
--all: if that is not so for any gateway, or one does not answer or was not asked), 1 if the gateway on this host cannot be asked, 2 for an error in flags.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Show every member: the gateway asks the others over their API ports.
    #[arg(long)]
    pub all: bool,
    /// Show it again every two seconds, on a terminal.
    #[arg(long, conflicts_with = "output")]
    pub watch: bool,
    /// Print one health check of the gateway and nothing else; exit code 0 if it passes, 3 if not.
    #[arg(long, value_name = "CHECK", conflicts_with_all = ["all", "watch", "output"])]
    pub probe: Option<Probe>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// A health check of the admin endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Probe {
    /// Whether mvp can receive traffic
    Readyz,
    /// Whether every thread makes progress
    Livez,
}
