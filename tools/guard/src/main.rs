//! Guards the cost of the data path: valgrind counts the instructions of its steps, and they are
//! compared with `tools/guard/instructions.json`. Times are noisy on most machines; these counts
//! are stable, within a few per mille where sockets are involved.
//!
//! `check` and `accept` run this program under valgrind as `run SCENARIO TIMES`, twice. The
//! difference between the two runs is the cost of the requests, without the setup.

#[allow(dead_code, unreachable_pub, clippy::expect_used)]
#[path = "../../../crates/mvp-core/benches/cluster/mod.rs"]
mod cluster;
mod compare;
mod count;
mod hop;
mod pki;
mod steps;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The allocator of the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Counts the instructions of the data path
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo run --release -p guard -- check     fails if a scenario costs 5 % more than recorded
  cargo run --release -p guard -- accept    records the current counts

Requires valgrind.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count instructions and compare them with the recorded counts
    Check,
    /// Count instructions and record them
    Accept,
    /// Run one scenario this many times
    #[command(hide = true)]
    Run { scenario: String, times: usize },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check => compare::check(),
        Command::Accept => compare::accept().map(|()| true),
        Command::Run { scenario, times } => count::run(&scenario, times).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("guard: {error:#}");
            ExitCode::FAILURE
        }
    }
}
