//! The flags of `mvp callers`.

use clap::Args;

use crate::cli::Output;
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp callers`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallersArgs {
    /// Only this resource, or the resources below a group, version or resource: jobs, jobs.batch,
    /// batch, batch/v1 or batch/v1/jobs.
    #[arg(value_name = "API")]
    pub api: Option<String>,
    /// Only APIs that Kubernetes has deprecated.
    #[arg(long)]
    pub deprecated: bool,
    /// Only APIs that this release of Kubernetes, or one before it, removes.
    #[arg(long, value_name = "VERSION")]
    pub removed_in: Option<String>,
    /// Show the address of each caller's last request, too.
    #[arg(long)]
    pub addresses: bool,
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

const EXAMPLES: &str = "\
Examples:
  Who calls what through the gateway on this host:
    mvp callers

  Who would notice an upgrade to 1.38:
    mvp callers --removed-in=1.38

  Who calls deprecated versions of one group, and from where:
    mvp callers resource.k8s.io --deprecated --addresses

A gateway knows only the callers that connect to it: ask each one. It must run with
--record-callers, which is the default. Run this as the user that runs mvp serve, or as root.

Exit codes: 0 also if there are no callers, 1 for a failure, 2 for an error in flags.";
