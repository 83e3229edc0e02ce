//! The flags of `mvp adopt`.

use std::time::Duration;

use clap::Args;

use crate::cli::Output;
use crate::cli::duration::{adopt_timeout, idle};
use crate::cli::values::{adopt_rate, peer_port};
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp adopt`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdoptArgs {
    /// The port of kube-apiserver. Without this flag it is that of the gateway; if none answers, 6443.
    #[arg(long, value_name = "PORT", value_parser = peer_port)]
    pub secure_port: Option<u16>,
    /// A connection is at rest if nothing was sent or received for this long.
    #[arg(long, value_name = "TIME", value_parser = idle, default_value = "1s")]
    pub idle: Duration,
    /// The most connections to end in a second.
    #[arg(long, value_name = "COUNT", value_parser = adopt_rate, default_value = "10")]
    pub rate: usize,
    /// The time after which busy connections are left as they are.
    #[arg(long, value_name = "TIME", value_parser = adopt_timeout, default_value = "5m")]
    pub timeout: Duration,
    /// List the connections, and end none.
    #[arg(long)]
    pub dry_run: bool,
    /// End connections although no gateway steers new ones: clients then come back to kube-apiserver.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

const EXAMPLES: &str = "\
Examples:
  Which connections would be ended:
    mvp adopt --dry-run

  End them, on the node:
    mvp adopt

  The same in the pod of that node:
    kubectl -n kube-system exec POD -- mvp adopt

Steering concerns new connections only. Clients that were connected before it began, such as
controllers and kubelets, stay connected to kube-apiserver, and do not profit from mvp. This command
ends their connections, so that they connect again, through mvp. It ends only connections at rest:
nothing is in a queue or unacknowledged, and nothing was sent or received for --idle. A request that
kube-apiserver processes for longer than that without sending anything looks the same. Its client
sees a connection reset, as at a restart of kube-apiserver. Loopback connections and those of
kube-apiserver with itself are never ended.

Exit codes: 0 if no connection from before is left, 3 if some are left, 1 for a failure such as
missing rights (it needs CAP_NET_ADMIN), 2 for an error in flags.";
