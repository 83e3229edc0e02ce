//! `mvp demo --story`: the same rolling upgrade twice, without the layer and with it. Every figure is
//! counted. Entry: [`run`].

mod chart;
mod harm;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::cluster::{Cluster, Mode};
use super::load::{self, Load, Tally};
use super::plan;
use super::server::Server;
use crate::cli::Output;
pub(super) use harm::Harm;

/// The time between two upgrades.
const PHASE: Duration = Duration::from_millis(1700);

/// What one upgrade did.
pub(super) struct Run {
    pub(super) seconds: Vec<Tally>,
    pub(super) harm: Harm,
}

/// Tells the story.
pub(super) async fn run(
    certificates: &Arc<Certificates>,
    output: Output,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let teller = Teller { loud: output == Output::Text, colour: io::stdout().is_terminal() };
    teller.say(&format!(
        "{}\n\nThree servers go from 1.34 to 1.36, one after the other. Until its upgrade, server-b has\n\
         batch/v1 switched off. Three clients read ConfigMaps, Jobs and MutatingAdmissionPolicies\n\
         (new in 1.36) through all servers in turn. Every figure is counted from real answers.\n\n",
        teller.bold("A rolling upgrade under load")
    ))?;
    let mut runs = Vec::new();
    for mode in [Mode::Alone, Mode::Proxied] {
        let title = match mode {
            Mode::Alone => "1. Without mvp",
            _ => "2. With mvp",
        };
        teller.say(&format!("{}\n", teller.bold(title)))?;
        let run = upgrade(certificates, mode, PHASE, &teller, stop).await?;
        teller.say(&chart::draw(&run, teller.colour))?;
        runs.push((mode, run));
    }
    if output == Output::Json {
        let runs: Vec<_> = runs.iter().map(|(mode, run)| shown(*mode, run)).collect();
        writeln!(io::stdout(), "{:#}", json!({ "runs": runs }))?;
    }
    Ok(())
}

/// Upgrades three servers under load, and lets the controllers work in the middle of it.
pub(super) async fn upgrade(
    certificates: &Arc<Certificates>,
    mode: Mode,
    phase: Duration,
    teller: &Teller,
    stop: &CancellationToken,
) -> anyhow::Result<Run> {
    let stop = stop.child_token();
    let mut cluster = Cluster::start(certificates, plan::before_upgrade(), mode, &stop).await?;
    let load = Load::start(certificates, &cluster)?;
    let started = Instant::now();
    let mut harm = None;
    sleep(phase).await;
    for place in 0..cluster.servers.len() {
        let plan = cluster.at(place)?.plan.upgraded();
        let seconds = started.elapsed().as_secs_f64();
        teller.say(&format!(
            "  {seconds:4.1} s  {} restarts with {}\n",
            plan.id,
            plan.release.name()
        ))?;
        load.is_ending(place);
        cluster.end(place).await?;
        let runs = |server: &Server| load.is_serving(place, server.own());
        cluster.restart(place, plan, runs).await?;
        sleep(phase).await;
        if harm.is_none() {
            let done = Harm::tempt(certificates, &cluster).await?;
            let seconds = started.elapsed().as_secs_f64();
            for line in done.lines() {
                teller.say(&format!("  {seconds:4.1} s  {line}\n"))?;
            }
            harm = Some(done);
        }
    }
    let seconds = load.end().await;
    stop.cancel();
    Ok(Run { seconds, harm: harm.unwrap_or_default() })
}

/// Prints the story as it happens, or nothing.
pub(super) struct Teller {
    loud: bool,
    colour: bool,
}

impl Teller {
    /// A teller who says nothing.
    pub(super) fn silent() -> Teller {
        Teller { loud: false, colour: false }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        if !self.loud {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn shown(mode: Mode, run: &Run) -> serde_json::Value {
    let counts = |tally: &Tally| {
        json!({
            "answered": tally.answered, "false404": tally.false_404, "true404": tally.true_404,
            "refused": tally.refused, "failed": tally.failed, "moved": tally.moved,
        })
    };
    json!({
        "proxy": mode == Mode::Proxied,
        "total": counts(&load::sum(&run.seconds)),
        "seconds": run.seconds.iter().map(counts).collect::<Vec<_>>(),
        "jobsLeftBehind": run.harm.jobs_left,
        "liveDependentsDeleted": run.harm.dependents_taken,
    })
}
