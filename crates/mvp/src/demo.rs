//! `mvp demo`: three API servers of different versions in one process, each with the layer inside.
//! With `--check`, it tests every promise; with `--story`, it shows an upgrade without and with the
//! layer. Entry: [`run`].

mod access;
mod certificates;
mod check;
mod client;
mod cluster;
mod controllers;
mod extension;
mod files;
mod flow;
mod introduce;
mod load;
mod plan;
mod server;
mod story;
mod upgrade;
mod watched;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;

use crate::cli::{DemoArgs, Output};
use crate::logging::LogQueue;
use crate::mistake::Mistake;
use crate::signals::Signals;
use certificates::Certificates;
use check::Check;
use cluster::{Cluster, Mode};
use controllers::Address;
use files::Files;
use flow::FlowLayer;

/// Runs the demo, its checks or its story.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let runtime =
        Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(async {
        // From here on a signal ends the demo step by step, so that nothing stays behind.
        let mut signals = Signals::new()?;
        let stop = CancellationToken::new();
        let unfinished = match (args.check, args.story) {
            (true, _) => Some("mvp demo --check"),
            (_, true) => Some("mvp demo --story"),
            _ => None,
        };
        let done = tokio::select! {
            done = perform(args, &stop) => done,
            // There are no files to reload: every signal ends the demo.
            _ = signals.next() => match unfinished {
                Some(command) => {
                    Err(Mistake::trouble(command, "a signal ended it before its end").into())
                }
                None => Ok(()),
            },
        };
        stop.cancel();
        done
    })
}

async fn perform(args: DemoArgs, stop: &CancellationToken) -> anyhow::Result<()> {
    let certificates = Arc::new(Certificates::new()?);
    if args.check {
        let checks = check::run(&certificates, stop).await;
        return report(&checks, args.output);
    }
    if args.story {
        return story::run(&certificates, args.output, stop).await;
    }
    let (listeners, ports) = Ports::choose(args.port_base)?;
    if args.output == Output::Text {
        show_flow()?;
    }
    let plans = plan::mixed();
    let mut cluster =
        Cluster::start_on(&certificates, plans, Mode::Proxied, listeners, stop).await?;
    let files = Files::write(&certificates, &cluster)?;
    let address = Address::new(&certificates, cluster.at(1)?.address)?;
    tokio::spawn(stop.clone().run_until_cancelled_owned(controllers::run(address)));
    let page = cluster.watched().serve(ports.of_page(args.port_base), stop)?;
    introduce::introduce(&cluster, &files, (&ports, &page), args.output)?;
    upgrade::run(&mut cluster, args.output).await
}

/// The ports of the demo.
enum Ports {
    /// The usual ones, or those that were asked for.
    Wanted,
    /// Others, because the usual ones are taken.
    Others { usual: u16 },
}

/// The first port, unless another one is asked for.
const USUAL_PORT: u16 = 7443;
/// The number of servers.
const SERVERS: usize = 3;

impl Ports {
    /// Listens on the ports that were asked for, or on the usual ones, or on the next ones that are
    /// free.
    fn choose(wanted: Option<u16>) -> anyhow::Result<(Vec<TcpListener>, Ports)> {
        if let Some(base) = wanted {
            return Ok((cluster::listen(base, SERVERS)?, Ports::Wanted));
        }
        if let Ok(listeners) = cluster::listen(USUAL_PORT, SERVERS) {
            return Ok((listeners, Ports::Wanted));
        }
        let others = (1..10).find_map(|step| cluster::listen(USUAL_PORT + 10 * step, SERVERS).ok());
        let listeners = match others {
            Some(listeners) => listeners,
            None => cluster::listen(0, SERVERS)?,
        };
        Ok((listeners, Ports::Others { usual: USUAL_PORT }))
    }
}

impl Ports {
    /// The port of the dashboard: the one after those of the servers, or any.
    fn of_page(&self, wanted: Option<u16>) -> u16 {
        let next = |base: u16| base.saturating_add(3);
        match (self, wanted) {
            (Ports::Wanted, Some(0)) | (Ports::Others { .. }, _) => 0,
            (Ports::Wanted, Some(base)) => next(base),
            (Ports::Wanted, None) => next(USUAL_PORT),
        }
    }
}

/// Prints a line for each proxied request from now on.
fn show_flow() -> anyhow::Result<()> {
    let out = LogQueue::start(io::stdout(), |_| {}).context("cannot start the output thread")?;
    let flow = FlowLayer { out, colour: io::stdout().is_terminal() };
    let subscriber = tracing_subscriber::registry().with(flow);
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(())
}

/// Prints a line for each promise. An error if one was broken.
fn report(checks: &[Check], output: Output) -> anyhow::Result<()> {
    let kept = checks.iter().filter(|check| check.ok).count();
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let list: Vec<_> = checks
            .iter()
            .map(|check| json!({"name": check.name, "ok": check.ok, "detail": check.detail}))
            .collect();
        let report = json!({"ok": kept == checks.len(), "checks": list});
        writeln!(out, "{report:#}")?;
    } else {
        let colour = io::stdout().is_terminal();
        for check in checks {
            let mark = match (check.ok, colour) {
                (true, true) => "\x1b[32mkept\x1b[0m  ",
                (true, false) => "kept  ",
                (false, true) => "\x1b[31mBROKEN\x1b[0m",
                (false, false) => "BROKEN",
            };
            writeln!(out, "{mark} {}: {}", check.name, check.detail)?;
        }
        writeln!(out, "{kept} of {} promises kept", checks.len())?;
    }
    if kept < checks.len() {
        let sentence = format!("{} of {} promises were broken", checks.len() - kept, checks.len());
        return Err(Mistake::trouble("mvp demo --check", sentence).into());
    }
    Ok(())
}
