//! `mvp doctor`: checks a planned configuration, or a running gateway and its configuration. Entry:
//! [`run`].
//!
//! Each group of checks is a module. Asking is separate from judging: judgements are pure functions of
//! files and answers. Everything has a time limit, servers are asked side by side, and nothing is
//! bound, written or announced.

mod certificates;
mod check;
mod host;
mod live;
mod local;
mod members;
mod probe;
mod report;
mod rights;
mod settings;
mod sources;

use std::process::ExitCode;
use std::time::SystemTime;

use futures_util::future::join3;

use self::check::{Check, Group};
use self::live::Live;
use self::members::{Candidate, Ourselves};
use self::probe::{Seen, Way};
use self::settings::Settings;
use super::gateway::GatewayArgs;
use super::terminal::Progress;
use crate::admin::socket;
use crate::cli::{DoctorArgs, Origins};

/// Runs the command.
pub(crate) fn run(args: DoctorArgs, origins: &Origins) -> anyhow::Result<ExitCode> {
    let progress = Progress::start("reading the configuration");
    let (output, now) = (args.output, SystemTime::now());
    let mut checks = Vec::new();
    let (settings, live) = if args.planned {
        (Some(Settings::read(args.serve, origins, now)), None)
    } else {
        let live = live::ask(&gateway(&args)).map_err(|error| {
            let hint = "to check a configuration without a gateway, give the flags of mvp serve";
            anyhow::anyhow!("{error:#}; {hint}")
        })?;
        checks.extend(live.checks.clone());
        // Files are where the gateway finds them.
        if let Some(flags) = &live.flags {
            let _ = std::env::set_current_dir(&flags.folder);
        }
        let args = live.flags.as_ref().map(crate::cli::serve_args).transpose()?;
        (args.map(|args| Settings::read(args, &Origins::default(), now)), Some(live))
    };
    match &settings {
        Some(settings) => checks.extend(examine(settings, live.as_ref(), now, &progress)?),
        None => checks.push(Group::Configuration.skip(
            "flags",
            "only the Unix socket tells the flags of a gateway; give its --admin-socket",
        )),
    }
    drop(progress);
    report::print(&checks, output)
}

/// Where the running gateway is.
fn gateway(args: &DoctorArgs) -> GatewayArgs {
    let admin_socket = args.serve.admin_socket.clone().unwrap_or_else(|| socket::DEFAULT.into());
    GatewayArgs { admin_socket, admin_address: args.admin_address }
}

/// Checks a configuration, and the servers that it names.
fn examine(
    settings: &Settings,
    live: Option<&Live>,
    now: SystemTime,
    progress: &Progress,
) -> anyhow::Result<Vec<Check>> {
    let mut checks = configuration(settings);
    checks.extend(certificates::check(settings, now));
    checks.extend(host::check(settings, live.is_some()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    progress.now("asking the servers");
    checks.extend(runtime.block_on(ask(settings, live.map(|live| &live.members))));
    Ok(checks)
}

/// Whether `mvp serve` would start with these flags.
fn configuration(settings: &Settings) -> Vec<Check> {
    let group = Group::Configuration;
    match &settings.config {
        Err(mistake) => vec![group.mistake("flags", &mistake.to_string())],
        Ok(config) => {
            // The dates of certificates have a check of their own.
            let warnings = config.warnings.iter().filter(|text| !text.ends_with("; renew it"));
            let fix = "change the flags, unless this is intended; see mvp serve --help";
            let checks: Vec<Check> = warnings.map(|text| group.warn("flags", text, fix)).collect();
            match checks.is_empty() {
                true => vec![group.ok("flags", "mvp serve starts with these flags")],
                false => checks,
            }
        }
    }
}

/// Asks the local server and the members, side by side. `known` are the members of a running gateway.
async fn ask(settings: &Settings, known: Option<&Vec<Candidate>>) -> Vec<Check> {
    let (way, mut checks) = way(settings);
    let local = async {
        match way.as_ref().filter(|_| settings.args.local_server.is_some()) {
            Some(way) => local::check(settings, way).await,
            None => (Vec::new(), Seen::default()),
        }
    };
    let rights = async {
        match &way {
            Some(way) => rights::check(settings, way).await,
            None => Vec::new(),
        }
    };
    let found = async {
        match known {
            Some(members) => (members.clone(), Vec::new()),
            None => sources::find(settings, way.as_ref()).await,
        }
    };
    let ((local, seen), rights, (found, unread)) = join3(local, rights, found).await;
    let id = match &settings.config {
        Ok(config) => config.local.as_ref().map(|local| local.id.clone()),
        Err(_) => settings.args.server_id.clone(),
    };
    let own = Ourselves { id, release: seen.release.ok() };
    checks.extend(local);
    checks.extend(rights);
    checks.extend(unread);
    checks.extend(members::check(settings, found, &own).await);
    checks
}

/// The way to the local server, or to the first one behind a load balancer.
fn way(settings: &Settings) -> (Option<Way>, Vec<Check>) {
    let group = Group::LocalServer;
    let skip = |why: &str| (None, vec![group.skip("reachable", why)]);
    match settings.first_server() {
        None => skip("no --local-server is given"),
        Some((_, None)) => skip("there is no usable --local-ca-file or --peer-ca-file"),
        Some((url, Some(authorities))) => match Way::to(url, authorities, settings) {
            Ok(way) => (Some(way.from(settings.source())), Vec::new()),
            Err(error) => skip(&format!("{error:#}")),
        },
    }
}
