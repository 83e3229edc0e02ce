//! `mvp status`: the state of a gateway, or of every member. Entry: [`run`].
//!
//! - [`findings`]: what needs action, with advice
//! - [`screen`]: the screen of one gateway
//! - [`overview`]: one line for each member

pub(crate) mod findings;
mod overview;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::gateway::GatewayArgs;
use super::terminal::{Paint, Progress};
use crate::cli::{Output, Probe, StatusArgs};
use crate::mistake::{Mistake, OneLine};
use crate::report::{Answered, Gateways, Kind, MemberState, Status, ViewOf};

/// The exit code if a gateway is not ready, does not know what a member serves, or has clients that
/// do not come through it.
const NOT_READY: u8 = 3;
/// The time between two screens of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    if args.watch {
        return watch(&args);
    }
    if let Some(check) = args.probe {
        return probe(&args.gateway, check);
    }
    let gateways = {
        let _progress = Progress::start("asking the gateway");
        ask(&args.gateway, args.all)?
    };
    let text = match args.output {
        Output::Text => drawn(&gateways, args.all, Paint::stdout()),
        Output::Json => serde_json::to_string_pretty(&gateways)? + "\n",
    };
    io::stdout().write_all(text.as_bytes())?;
    let ready = gateways.left_out == 0 && gateways.gateways.iter().all(is_fine);
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// Prints one health check, for probes.
fn probe(gateway: &GatewayArgs, check: Probe) -> anyhow::Result<ExitCode> {
    let path = match check {
        Probe::Readyz => "/readyz?verbose",
        Probe::Livez => "/livez?verbose",
    };
    let answer = gateway.get(path)?;
    io::stdout().write_all(answer.body.as_bytes())?;
    Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// Draws the screen again and again, until the process is interrupted.
fn watch(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() {
        let hint = "standard output is not a terminal; run mvp status -o json in a loop";
        return Err(Mistake::usage("--watch", hint).into());
    }
    loop {
        // The gateway may restart meanwhile.
        let text = match ask(&args.gateway, args.all) {
            Ok(gateways) => drawn(&gateways, args.all, Paint::stdout()),
            Err(error) => format!("{}\n", OneLine(&format!("{error:#}"))),
        };
        let mut out = io::stdout();
        write!(out, "\x1b[H\x1b[2J{text}")?;
        out.flush()?;
        std::thread::sleep(INTERVAL);
    }
}

fn ask(gateway: &GatewayArgs, all: bool) -> anyhow::Result<Gateways> {
    let answer = gateway.get(if all { "/debug/status?all" } else { "/debug/status" })?;
    anyhow::ensure!(
        answer.status != 404,
        "the gateway at {gateway} has no status: it is a load balancer (--pass-through) or of an \
         older release; see its /readyz?verbose and /metrics"
    );
    anyhow::ensure!(answer.status == 200, "the gateway at {gateway}: {}", answer.body.trim());
    let gateways: Gateways = serde_json::from_str(&answer.body)
        .with_context(|| format!("the answer of the gateway at {gateway} is no status"))?;
    anyhow::ensure!(!gateways.gateways.is_empty(), "the answer of {gateway} is empty");
    Ok(gateways)
}

/// Whether nothing about a member needs another exit code. A server without a gateway, and a member
/// that left, have nothing to report.
fn is_fine(member: &Answered<Status>) -> bool {
    match &member.status {
        Some(status) => {
            let seen = status.members.iter().all(is_seen);
            status.ready && status.live && seen && status.all_come_through() != Some(false)
        }
        None => member.kind == Kind::Bare || member.left,
    }
}

/// Whether a gateway knows what a member serves now. A gateway that needs its local server's view is
/// not ready before it has one; a plain reverse proxy never has one.
fn is_seen(member: &MemberState) -> bool {
    match member.view {
        ViewOf::Fresh => true,
        ViewOf::Stale => !member.present,
        ViewOf::Unknown => !member.present || member.local,
    }
}

fn drawn(gateways: &Gateways, all: bool, paint: Paint) -> String {
    match gateways.gateways.first().and_then(|first| first.status.as_ref()) {
        Some(status) if !all => screen::draw(status, paint),
        _ => overview::draw(gateways, paint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SteeringState;

    #[test]
    fn an_old_view_of_a_member_that_is_present_is_not_fine() {
        for (view, present, local, fine) in [
            (ViewOf::Fresh, true, false, true),
            (ViewOf::Fresh, true, true, true),
            (ViewOf::Stale, true, false, false),
            (ViewOf::Stale, true, true, false),
            (ViewOf::Unknown, true, false, false),
            // A plain reverse proxy.
            (ViewOf::Unknown, true, true, true),
            (ViewOf::Stale, false, false, true),
            (ViewOf::Unknown, false, false, true),
        ] {
            let member = MemberState { view, present, local, ..MemberState::default() };
            let members = vec![member.clone()];
            let status = Status { ready: true, live: true, members, ..Status::default() };
            assert_eq!(is_fine(&Answered::own(status)), fine, "{member:?}");
        }
    }

    #[test]
    fn connections_from_before_are_not_fine() {
        for (unsteered_connections, uptime_seconds, fine) in [
            (Some(0), Some(60.0), true),
            (Some(0), None, true),
            (Some(1), Some(60.0), false),
            (Some(1), Some(1.0), false),
            // Unknown is not protected, unless the gateway has just started.
            (None, Some(60.0), false),
            (None, None, false),
            (None, Some(1.0), true),
        ] {
            let steering = SteeringState { unsteered_connections, ..SteeringState::default() };
            let steering = Some(steering);
            let status =
                Status { ready: true, live: true, uptime_seconds, steering, ..Status::default() };
            let case = (unsteered_connections, uptime_seconds);
            assert_eq!(is_fine(&Answered::own(status)), fine, "{case:?}");
        }
    }
}
