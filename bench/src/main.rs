//! Compares `mvp` with other proxies and kube-apiserver's own in one run: finds `programs`,
//! measures `scenarios` by a `load` before a `backend`, and writes a `report`.

mod backend;
mod client;
mod cores;
mod forwarder;
mod load;
mod machine;
mod members;
mod others;
mod pki;
mod plan;
mod programs;
mod report;
mod results;
mod scenarios;
mod targets;
mod train;
mod usage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand, ValueEnum};
use testkit::pki::PkiFiles;

use crate::plan::Plan;
use crate::results::Results;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares mvp with haproxy, nginx, Envoy, Pingora and kube-apiserver's own proxy
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  cargo run --release -p bench -- --quick                  five minutes, plus what is built once
  cargo run --release -p bench -- --full                   everything; writes docs/performance.md
  cargo run --release -p bench -- --quick --only requests  one scenario
  cargo run --release -p bench -- --train                  the profile for the compiler, ten minutes

Scenarios: requests, latency, handshakes, watches, discovery, members, growth, fairness, embedded, kube.
kube needs the programs that `cargo run -p e2e -- programs` builds. --quick measures nginx, Envoy,
Pingora and the newer haproxy in `requests` only, and growth and fairness only if they are named.
MVP_TEST_BINARY=PATH measures that mvp instead of building one from this tree."
)]
struct Arguments {
    /// Measure a few cases, in five minutes at most
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure every case in five rounds; writes docs/performance.md and bench/results
    #[arg(long)]
    full: bool,
    /// Measure only this scenario; may be repeated
    #[arg(long, value_name = "SCENARIO", value_parser = scenarios::ALL)]
    only: Vec<String>,
    /// The number of rounds in which each target is measured
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Write docs/performance.md even if the machine was busy; the document says so
    #[arg(long)]
    accept_busy: bool,
    /// Report stored results again, without measuring
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the profile by which the compiler optimizes releases, from a run under load
    #[arg(long, exclusive = true)]
    train: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server behind the proxies
    #[command(hide = true)]
    Backend { pki: PathBuf, lacking: SocketAddr, peer: SocketAddr, groups: usize },
    /// Run the bare forwarder
    #[command(hide = true)]
    Forward { pki: PathBuf, listen: SocketAddr, server: SocketAddr },
    /// Run many members
    #[command(hide = true)]
    Members { pki: PathBuf, count: usize, groups: usize },
    /// Run the load
    #[command(hide = true)]
    Load { order: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // One thread: the kernel kills the programs of the bench when this thread ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome =
        runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(arguments)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Some(Command::Backend { pki, lacking, peer, groups }) => {
            backend::serve(&PkiFiles::at(pki), *lacking, *peer, *groups).await
        }
        Some(Command::Forward { pki, listen, server }) => {
            forwarder::serve(&PkiFiles::at(pki), *listen, *server).await
        }
        Some(Command::Members { pki, count, groups }) => {
            members::serve(&PkiFiles::at(pki), *count, *groups).await
        }
        Some(Command::Load { order }) => load::run(order).await,
        None => bench(arguments).await,
    }
}

async fn bench(arguments: Arguments) -> anyhow::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    if arguments.train {
        return train::train(workspace).await;
    }
    let results = match &arguments.from {
        Some(file) => serde_json::from_slice(&std::fs::read(file)?)?,
        None => measure(&arguments, workspace).await?,
    };
    match arguments.output {
        Output::Text => print!("{}", report::text(&results)),
        Output::Json => println!("{}", serde_json::to_string(&results)?),
    }
    // A run of some scenarios must not replace the complete report.
    match results.full && arguments.only.is_empty() {
        true => report::write(&results, workspace, arguments.accept_busy),
        false => Ok(()),
    }
}

async fn measure(arguments: &Arguments, workspace: &Path) -> anyhow::Result<Results> {
    let mut plan = match (arguments.quick, arguments.full) {
        (_, true) => Plan::full(),
        (true, false) => Plan::quick(),
        _ => bail!("missing mode: pass --quick (five minutes) or --full (everything)"),
    };
    plan.rounds = arguments.rounds.unwrap_or(plan.rounds).max(1);
    let mut machine = machine::Machine::look(workspace);
    let found = programs::get(&arguments.only, workspace)?;
    machine.versions = found.versions.clone();
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let folder = tempfile::tempdir()?;
    let started = std::time::Instant::now();
    let (samples, failures) =
        scenarios::run(&plan, &arguments.only, &found.programs, found.kube.as_ref(), folder.path())
            .await?;
    machine.load_after = machine::load();
    eprintln!("measured in {} s", started.elapsed().as_secs());
    let mut missing = found.missing;
    missing.extend(failures);
    Ok(Results { machine, full: plan.full, rounds: plan.rounds, missing, samples })
}
