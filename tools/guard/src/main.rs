//! The guard of the data path: instructions of its steps, counted by valgrind, compared with what
//! is recorded in `tools/guard/instructions.json`. Times are noise on most machines; these counts
//! are the same on every run, but for some in a thousand where sockets are involved.
//!
//! `check` and `accept` run this very program under valgrind as `run SCENARIO TIMES`, twice; what
//! the longer run costs more is what its requests cost, without any setting up.

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

/// The same allocator as the gateway's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The guard of the data path's instructions.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo run --release -p guard -- check     fails where something costs 5 % more than recorded
  cargo run --release -p guard -- accept    records the figures of now

It needs valgrind.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count, and compare with what is recorded
    Check,
    /// Count, and record
    Accept,
    /// Do one thing so many times, and nothing else: what is counted
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
