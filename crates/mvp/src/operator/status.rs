//! `mvp status`: the state of a gateway, or of every member. Entry: [`run`].
//!
//! - [`findings`]: what needs action, with advice
//! - [`screen`]: the screen of one gateway
//! - [`overview`]: one line for each member

mod findings;
mod overview;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::gateway::GatewayArgs;
use super::terminal::{Paint, Progress};
use crate::cli::{Output, StatusArgs};
use crate::mistake::{Mistake, OneLine};
use crate::report::{Answered, Gateways, Kind, Status};

/// The exit code if a gateway is not ready.
const NOT_READY: u8 = 3;
/// The time between two screens of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    if args.watch {
        return watch(&args);
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
    let ready = gateways.gateways.iter().all(is_fine);
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
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
        "the gateway at {gateway} is of an older release, which has no status; see its \
         /readyz?verbose and /metrics"
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
        Some(status) => status.ready && status.live,
        None => member.kind == Kind::Bare || member.left,
    }
}

fn drawn(gateways: &Gateways, all: bool, paint: Paint) -> String {
    match gateways.gateways.first().and_then(|first| first.status.as_ref()) {
        Some(status) if !all => screen::draw(status, paint),
        _ => overview::draw(&gateways.gateways, paint),
    }
}
