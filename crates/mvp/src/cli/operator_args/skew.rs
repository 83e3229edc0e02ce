//! The flags of `mvp skew`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::url::{self, ServerUrl};
use crate::cli::values;
use crate::operator::gateway::GatewayArgs;

/// The flags of `mvp skew`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SkewArgs {
    /// Show every API, not only those that differ.
    #[arg(long)]
    pub all_apis: bool,
    /// Show what would be lost without this server.
    #[arg(long, value_name = "SERVER")]
    pub without: Option<String>,
    /// Show what a release of Kubernetes adds and removes, such as 1.36.
    #[arg(long, value_name = "VERSION", conflicts_with = "without")]
    pub with: Option<String>,
    /// Follow an upgrade until Ctrl-C: the table again and again on a terminal, else one line for each change.
    #[arg(short, long, conflicts_with_all = ["without", "with"])]
    pub watch: bool,
    /// Output format. `wide` shows verbs.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: SkewOutput,
    #[command(flatten, next_help_heading = GATEWAY)]
    pub gateway: GatewayArgs,
    #[command(flatten, next_help_heading = DIRECT)]
    pub direct: DirectArgs,
    /// Whether the program was called as a plugin of kubectl.
    #[arg(skip)]
    pub plugin: bool,
}

const GATEWAY: &str = "The members of a gateway (default)";
const DIRECT: &str = "Servers of a kubeconfig, or by address";

/// Servers to ask directly, and the credentials for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct DirectArgs {
    /// A kubeconfig. Without this flag: the files of KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; repeat it for several. Without this flag: the current one. With one context,
    /// each endpoint of the Service default/kubernetes is asked, if they can be listed.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub context: Vec<String>,
    /// Ask the server of every context of the kubeconfig.
    #[arg(long, conflicts_with = "context")]
    pub all_contexts: bool,
    /// The URL of a server; repeat it for several. Credentials come from the flags below and from the
    /// context, if --kubeconfig or --context is given.
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = url::server_url, conflicts_with = "all_contexts")]
    pub server: Vec<ServerUrl>,
    /// The CA that issued the certificates of servers.
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// A client certificate.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// The key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// A file with a bearer token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The name in the certificates of servers, if it is not the host of the URL.
    #[arg(long, value_name = "NAME", value_parser = values::host_name)]
    pub tls_server_name: Option<String>,
}

impl DirectArgs {
    /// Whether a flag asks for a kubeconfig.
    pub(crate) fn names_kubeconfig(&self) -> bool {
        self.kubeconfig.is_some() || !self.context.is_empty() || self.all_contexts
    }
}

/// The output format of `mvp skew`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkewOutput {
    Table,
    Wide,
    Json,
    Yaml,
    Markdown,
}

const EXAMPLES: &str = "Examples:
  APIs that differ between the members that the gateway on this host knows:
    mvp skew

  The same with a kubeconfig, as a plugin of kubectl:
    ln -s $(which mvp) /usr/local/bin/kubectl-mvp
    kubectl mvp skew

  Servers of several contexts, and servers by address:
    mvp skew --kubeconfig=kubeconfig --context=server-a,server-b
    mvp skew --server=https://10.0.0.1:6443 --server=https://10.0.0.2:6443 \\
      --certificate-authority=ca.crt --token-file=token

  Before a server is upgraded or removed, in a pipeline:
    mvp skew --without=node-c && mvp skew --with=1.36

Exit codes: 0 if all servers answered; 1 if one did not, or for any other failure; 2 for an error
in flags; 3 if the step strands something: with --without, an API that only that server serves;
with --with, an API that the release removes and that has callers, or objects, or objects that
cannot be counted.";
