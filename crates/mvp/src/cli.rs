//! The command line: argv, the environment and the config file in, one typed [`Invocation`] out.
//!
//! [`parse`] is the first stage of `raw → validated → running`. Each setting is defined once, in
//! [`ServeArgs`]. A key of the config file becomes the flag of the same name, unless the command
//! line or the environment sets it; then clap parses all of it again. The same happens with the flags
//! of kube-apiserver that `--like` takes over, unless the config file sets them, too.

mod duration;
mod file;
mod flags;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod like;
mod limit_args;
mod limit_values;
mod manifests_args;
mod manual_args;
mod operator_args;
mod sentence;
mod serve_args;
mod tls_values;
mod trace_values;
mod url;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use file::Origins;
pub(crate) use flags::Flags;
pub(crate) use like::{LikeSource, Origin, TakenOver};
pub(crate) use manifests_args::{KubeadmVersion, ManifestKind, ManifestsArgs, Proxy};
pub(crate) use manual_args::{CompletionsArgs, ManArgs, VersionArgs};
pub(crate) use operator_args::{
    AdoptArgs, CallersArgs, DirectArgs, DoctorArgs, Probe, SkewArgs, SkewOutput, StatusArgs,
};
pub(crate) use serve_args::ServeArgs;
pub(crate) use tls_values::{MinVersion, SniFiles};
pub(crate) use url::{Peer, ServerUrl, http_url, server_url};
pub(crate) use values::{FeatureGate, MAX_WORKERS, MembershipSource, server_id, server_id_at};

use crate::mistake::Mistake;
use file::ConfigFile;

/// Parses a command line, the config file that it names, and the flags of kube-apiserver.
pub(crate) fn parse(argv: Vec<OsString>) -> Result<Invocation, Stop> {
    let mut command = command().bin_name(if is_plugin(&argv) { "kubectl mvp" } else { "mvp" });
    let no_file = Origins::default();
    let mut matches = command
        .try_get_matches_from_mut(&argv)
        .map_err(|error| Stop::from_clap(error, &no_file))?;
    let (mut origins, mut more) = (no_file, Vec::new());
    if let Some(("serve" | "doctor", given)) = matches.subcommand()
        && let Some(path) = given.get_one::<PathBuf>("config")
        && let Some(serve) = command.find_subcommand("serve")
    {
        let file = ConfigFile::read(path).map_err(Stop::Mistake)?;
        let (arguments, from) = file.arguments(serve, given).map_err(Stop::Mistake)?;
        (origins, more) = (from, arguments);
        matches = parse_with(&argv, &more, &origins)?;
    }
    if let Some(("serve" | "doctor", given)) = matches.subcommand()
        && let Some(source) = given.get_one::<LikeSource>("like")
    {
        let taken = like::take_over(source, given).map_err(Stop::Mistake)?;
        more.extend(taken.arguments());
        origins = origins.with_like(taken);
        matches = parse_with(&argv, &more, &origins)?;
    }
    let planned = |given| {
        let serve = command.find_subcommand("serve");
        serve.is_some_and(|serve| operator_args::doctor::is_planned(serve, given))
    };
    let planned = matches.subcommand_matches("doctor").is_some_and(planned);
    let flags = command.find_subcommand("serve").zip(matches.subcommand_matches("serve"));
    let flags = flags.map(|(serve, given)| Flags::of(serve, given)).unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).map_err(|error| Stop::from_clap(error, &origins))?;
    Ok(match cli.command {
        Command::Serve(args) => Invocation::Serve(args, origins, flags),
        Command::Demo(args) => Invocation::Demo(args),
        Command::Forget(args) => Invocation::Forget(args),
        Command::Status(args) => Invocation::Status(args),
        Command::Skew(mut args) => {
            args.plugin = is_plugin(&argv);
            Invocation::Skew(args)
        }
        Command::Callers(args) => Invocation::Callers(args),
        Command::Adopt(args) => Invocation::Adopt(args),
        Command::Doctor(args) => {
            Invocation::Doctor(Box::new(DoctorArgs { planned, ..*args }), origins)
        }
        Command::Manifests(args) => Invocation::Manifests(args),
        Command::Version(args) => Invocation::Version(args),
        Command::Completions(args) => Invocation::Completions(args),
        Command::Man(args) => Invocation::Man(args),
    })
}

/// Parses a command line with more flags.
fn parse_with(
    argv: &[OsString],
    more: &[OsString],
    origins: &Origins,
) -> Result<clap::ArgMatches, Stop> {
    // Directly after the command: the rest may end in `--`.
    let (before, after) = argv.split_at(argv.len().min(2));
    let all = before.iter().chain(more).chain(after);
    command().try_get_matches_from(all).map_err(|error| Stop::from_clap(error, origins))
}

/// Parses the flags of another process, which it tells itself.
pub(crate) fn serve_args(flags: &Flags) -> Result<ServeArgs, Mistake> {
    let argv = ["mvp", "serve"].into_iter().map(OsString::from).chain(flags.arguments());
    let wrong = |error| sentence::from_clap(&error, &Origins::default());
    match Cli::try_parse_from(argv).map_err(wrong)?.command {
        Command::Serve(args) => Ok(*args),
        _ => Err(Mistake::usage("mvp", "these are no flags of mvp serve")),
    }
}

/// The definition of all commands.
pub(crate) fn command() -> clap::Command {
    Cli::command().mut_subcommand("doctor", operator_args::doctor::page)
}

/// Whether kubectl calls this program, as `kubectl mvp`.
fn is_plugin(argv: &[OsString]) -> bool {
    argv.first().and_then(|path| Path::new(path).file_name()).is_some_and(|name| name == PLUGIN)
}

/// The name of a link to `mvp` that kubectl finds as its plugin.
const PLUGIN: &str = "kubectl-mvp";

/// A command to run.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// `mvp serve`, the origins of its settings, and their values.
    Serve(Box<ServeArgs>, Origins, Flags),
    /// `mvp demo`.
    Demo(DemoArgs),
    /// `mvp forget`.
    Forget(ForgetArgs),
    /// `mvp status`.
    Status(StatusArgs),
    /// `mvp skew`.
    Skew(Box<SkewArgs>),
    /// `mvp callers`.
    Callers(CallersArgs),
    /// `mvp adopt`.
    Adopt(AdoptArgs),
    /// `mvp doctor`, and the origins of the settings that it checks.
    Doctor(Box<DoctorArgs>, Origins),
    /// `mvp manifests`.
    Manifests(ManifestsArgs),
    /// `mvp version`.
    Version(VersionArgs),
    /// `mvp completions`.
    Completions(CompletionsArgs),
    /// `mvp man`.
    Man(ManArgs),
}

/// The reason why no command runs.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A help page or the version to print.
    Page(clap::Error),
    /// An error to print.
    Mistake(Mistake),
}

impl Stop {
    fn from_clap(error: clap::Error, origins: &Origins) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Self::Page(error),
            _ => Self::Mistake(sentence::from_clap(&error, origins)),
        }
    }
}

/// Mixed Version Proxy for Kubernetes: every API server answers for all APIs of its cluster.
#[derive(Debug, Parser)]
#[command(name = "mvp", version, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a gateway beside an API server, or a load balancer in front of all of them.
    Serve(Box<ServeArgs>),
    /// Run a small cluster of API servers in one process, to try mvp.
    Demo(DemoArgs),
    /// Make the gateway on this host forget a member that left: requests for APIs that only it
    /// served get 404 instead of 503.
    Forget(ForgetArgs),
    /// Show the state of a gateway, or of all.
    Status(StatusArgs),
    /// Show which APIs differ between the servers of a cluster.
    Skew(Box<SkewArgs>),
    /// Show who called which API through a gateway in the last hour.
    Callers(CallersArgs),
    /// End connections to kube-apiserver from before the steering, so that clients come back through
    /// mvp.
    Adopt(AdoptArgs),
    /// Check a configuration and the cluster that it names, with a fix for each finding.
    Doctor(Box<DoctorArgs>),
    /// Print what installs mvp: a DaemonSet, a systemd unit and others.
    Manifests(ManifestsArgs),
    /// Print the version, the commit and what this binary contains.
    Version(VersionArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Print or write the manual pages.
    Man(ManArgs),
}

/// The flags of `mvp forget`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  node-b is gone for good; run this on each host that has a gateway:
    mvp forget node-b
  The gateway has another --admin-socket:
    mvp forget node-b --admin-socket=/run/mvp-2/admin.sock")]
pub(crate) struct ForgetArgs {
    /// The ID of the member.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The --admin-socket of the gateway.
    #[arg(long, value_name = "PATH", default_value = crate::admin::socket::DEFAULT)]
    pub admin_socket: PathBuf,
    /// Replaced by --admin-socket.
    #[arg(long, value_name = "IP:PORT", hide = true)]
    pub admin_address: Option<String>,
}

/// The flags of `mvp demo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  A cluster of three servers with a dashboard, until Ctrl-C:
    mvp demo
  Check every promise, for a script:
    mvp demo --check -o json
  A rolling upgrade, without mvp and with it:
    mvp demo --story")]
pub(crate) struct DemoArgs {
    /// Check every promise, one line each; exit code 0 if all are kept.
    #[arg(long, conflicts_with = "story")]
    pub check: bool,
    /// Show a rolling upgrade under load, without mvp and with it; about 30 seconds.
    #[arg(long)]
    pub story: bool,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    /// First port to listen on; the other servers use the next ones, then the dashboard. 0 takes
    /// free ports. Without this flag it is 7443, or the next ports that are free.
    #[arg(long, value_name = "PORT", value_parser = values::port_base)]
    pub port_base: Option<u16>,
}

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}
