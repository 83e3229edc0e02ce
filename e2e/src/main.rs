//! Real control planes under test: kube-apiservers of different versions on one etcd, `mvp` beside
//! each, real clients. `suite` runs `cases` on a `cluster` made of `programs`.

mod cases;
mod client;
mod cluster;
mod extension;
mod history;
mod kubeadm;
mod kubectl;
mod load;
mod node;
mod programs;
mod record;
mod relay;
mod report;
mod soak;
mod sockets;
mod suite;
mod tally;
mod up;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testkit::pki::PkiFiles;

use crate::client::Client;
use crate::programs::Programs;
use crate::suite::Level;

/// Runs tests on real control planes
#[derive(Debug, Parser)]
#[command(
    name = "e2e",
    after_help = "\
Examples:
  cargo run -p e2e -- run                 about 20 minutes; writes e2e/report.md
  cargo run -p e2e -- run --full          every case; writes e2e/report-full.md
  cargo run -p e2e -- run routing crd     cases whose names start with these words
  cargo run -p e2e -- list                list all cases
  cargo run -p e2e -- up                  a cluster to try things on, until Ctrl-C
  cargo run -p e2e -- soak --minutes 60   writes e2e/soak.md

Programs are built once with Go into ~/.cache/mvp-e2e (set MVP_E2E_CACHE for another folder).
MVP_TEST_BINARY=PATH tests that mvp instead of building one from this tree."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run cases: those of the default level, or those whose names start with one of the words
    Run {
        /// Prefixes of case names, such as `routing` or `killed/two-can-serve`
        cases: Vec<String>,
        /// Run every case, also the slow ones
        #[arg(long, conflicts_with = "cases")]
        full: bool,
        /// The file for the report; default: in e2e/, when a whole level runs
        #[arg(long)]
        report: Option<PathBuf>,
    },
    /// List the cases
    List,
    /// Build the programs under test and print their paths
    Programs {
        /// Also build programs that only some cases need
        #[arg(long)]
        full: bool,
    },
    /// Start a cluster of mixed versions and keep it until Ctrl-C
    Up,
    /// Run three servers of two releases under load for a long time, and see whether gateways grow
    ///
    /// Thousands of watches and recorded reads and writes run through three gateways while servers are
    /// upgraded, downgraded, killed and stopped and certificates are renewed, round after round of
    /// about a minute. Each round's history is checked: every object is linearizable, every
    /// watch complete and in order. Memory, descriptors and threads of the two gateways that never
    /// restart are sampled; the run fails if one grows (docs/proof.md has the rule; runs below 15
    /// minutes have no verdict). It ends by itself, after the round in which the time is over, or
    /// at Ctrl-C without a report.
    Soak {
        /// How long; the last round is finished
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Watches, spread over the gateways
        #[arg(long, default_value_t = 3_000)]
        watches: usize,
        /// The file for the report
        #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/soak.md"))]
        report: PathBuf,
    },
    /// Record the discovery documents of each version for the tests of mvp-core
    Record {
        /// The folder for `vX.Y.Z.json`
        #[arg(default_value = "crates/mvp-core/tests/fixtures/recorded")]
        folder: PathBuf,
    },
    /// Record what each release serves, and its schemas, for mvp-apiserver
    RecordReleases {
        /// The folder for `surfaces.json.gz` and `schemas.gz`
        #[arg(default_value = "crates/mvp-apiserver/assets")]
        folder: PathBuf,
    },
    /// Run the extension server of the suite
    #[command(hide = true)]
    Extension { address: SocketAddr, certificate: PathBuf, key: PathBuf, front_proxy_ca: PathBuf },
    /// Send a GET as a user of the suite, and print status and body
    #[command(hide = true)]
    Get { pki: PathBuf, user: String, to: SocketAddr, path: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // One thread: the kernel kills the programs of the suite when this thread ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(arguments.command)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything passed.
async fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Run { cases, full, report } => {
            let level = if full { Level::Full } else { Level::Default };
            suite::run(&cases, level, report).await
        }
        Command::List => {
            for case in cases::all() {
                let full = if case.level == Level::Full { " (--full)" } else { "" };
                println!("{:32} {}{full}", case.name, case.about);
            }
            Ok(true)
        }
        Command::Programs { full } => {
            let cases = if full { cases::all() } else { Vec::new() };
            let programs = Programs::get_with(&suite::needs(&cases))?;
            println!("{}\n{programs}", programs.described());
            Ok(true)
        }
        Command::Up => up::up().await.map(|()| true),
        Command::Soak { minutes, watches, report } => {
            soak::soak(&soak::Plan { minutes, watches, report }).await
        }
        Command::Record { folder } => record::record(&folder).await,
        Command::RecordReleases { folder } => record::releases::record(&folder).await,
        Command::Extension { address, certificate, key, front_proxy_ca } => {
            extension::serve(address, &certificate, &key, &front_proxy_ca).await
        }
        Command::Get { pki, user, to, path } => {
            let pki = PkiFiles::at(&pki);
            let client = Client::with_certificate(&pki.ca(), &pki.pair(&user))?;
            let answer = client.get(to, &path).await?;
            println!("{}\n{}", answer.status.as_u16(), String::from_utf8_lossy(&answer.body));
            Ok(true)
        }
    }
}
