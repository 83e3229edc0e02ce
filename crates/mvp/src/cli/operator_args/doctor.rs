//! The flags of `mvp doctor`: its own, and all of `mvp serve`.

use std::net::SocketAddr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

use crate::cli::{Output, ServeArgs};

/// The flags of `mvp doctor`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The configuration to check; that of the running gateway if no flag of it is given.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// The --admin-bind-address of the running gateway, in place of its socket. It does not tell the
    /// flags of the gateway, so that only the state of the gateway is checked.
    #[arg(long, value_name = "IP:PORT", help_heading = HEADING)]
    pub admin_address: Option<SocketAddr>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", help_heading = HEADING)]
    pub output: Output,
    /// Whether flags of mvp serve are given.
    #[arg(skip)]
    pub planned: bool,
}

const HEADING: &str = "Options";

/// The page of the command: its own flags, without the sixty of `mvp serve`.
pub(in crate::cli) fn page(command: Command) -> Command {
    command
        .help_template(PAGE)
        .after_help(EXAMPLES)
        .mut_args(|argument| match argument.get_id().as_str() {
            "admin_address" | "output" | "help" => argument,
            "admin_socket" => argument
                .help("The --admin-socket of the gateway [default: /run/mvp/admin.sock]")
                .help_heading(HEADING),
            "config" => argument.help_heading(HEADING),
            _ => argument.hide(true),
        })
        .mut_arg("help", |argument| argument.help_heading(HEADING))
}

/// Whether the command line has a flag of `mvp serve`. The admin socket alone names a running gateway.
pub(in crate::cli) fn is_planned(serve: &Command, given: &ArgMatches) -> bool {
    serve.get_arguments().map(|argument| argument.get_id().as_str()).any(|id| {
        !matches!(id, "help" | "admin_socket")
            && given.value_source(id) == Some(ValueSource::CommandLine)
    })
}

const PAGE: &str = "\
{about}

Usage: mvp doctor [OPTIONS]
       mvp doctor [OPTIONS] FLAGS OF mvp serve…

Without flags of mvp serve, it checks the running gateway of this host, with the settings that the
gateway has. With them, it checks a planned configuration. It needs no more rights than mvp serve,
changes nothing, and connects only to the addresses of the configuration and to members.

{options}{after-help}";

const EXAMPLES: &str = "\
Examples:
  The running gateway, and the cluster around it:
    mvp doctor

  A configuration, before mvp serve is started or restarted with it:
    mvp doctor --config=/etc/mvp/mvp.yaml
    mvp doctor --local-server=https://127.0.0.1:6443 --tls-cert-file=…

  Only what fails, for a script:
    mvp doctor -o json | jq '.checks[] | select(.result == \"fail\")'

Each line starts with ok, warn, FAIL, or skip (it could not be checked); below a finding is its fix.
docs/doctor.md describes every check.

Exit codes: 0 if no check fails, 1 if one fails, 2 for an error in flags or keys.";
