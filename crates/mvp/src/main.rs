//! `mvp`, the Mixed Version Proxy for Kubernetes: the binary.
//!
//! The one place that reads argv, the environment and files: [`cli`] (raw) → [`config`] (checked)
//! → [`serve`] or [`demo`] (running). Whatever is wrong is said in one sentence on standard error
//! before anything is served: exit code 2 for usage, 1 for the rest.

mod admin;
mod cli;
mod config;
mod connections;
mod demo;
mod descriptors;
mod files;
mod forget;
mod health;
mod heartbeat;
mod inside;
mod logging;
mod members;
mod mistake;
mod reload;
mod serve;
mod shutdown;
mod signals;
mod supervise;
mod tls;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use crate::cli::{Invocation, Stop};
use crate::config::ServeConfig;
use crate::logging::FlushGuard;
use crate::mistake::{Mistake, OneLine};

/// Fewer page faults and less contention than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os().collect()) {
        Ok(invocation) => invocation,
        Err(Stop::Page(page)) => return print_page(&page),
        Err(Stop::Mistake(mistake)) => return fail(&mistake, mistake.exit_code()),
    };
    // Fails only where one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match invocation {
        Invocation::Serve(args, origins) => {
            match ServeConfig::check(*args, &origins, SystemTime::now()) {
                Ok(config) => return serve(config),
                Err(mistake) => return fail(&mistake, mistake.exit_code()),
            }
        }
        Invocation::Demo(args) => forgive_broken_pipe(demo::run(args)),
        Invocation::Forget(args) => forgive_broken_pipe(forget::run(&args)),
        Invocation::Version => forgive_broken_pipe(version()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (sentence, code) = described(&error);
            fail(sentence, code)
        }
    }
}

/// From here on nothing waits for standard error: also what ends the process goes to the queue.
fn serve(config: ServeConfig) -> ExitCode {
    let log = match logging::init(config.log_format, &config.log_filter) {
        Ok(log) => FlushGuard(log),
        Err(error) => return fail(format_args!("{error:#}"), ExitCode::from(1)),
    };
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let Err(error) = serve::run(config, &log.0) else { return ExitCode::SUCCESS };
    let (sentence, code) = described(&error);
    log.0.push(format!("error: {}\n", OneLine(&sentence)).as_bytes());
    code
}

/// What to tell the operator, and the exit code.
fn described(error: &anyhow::Error) -> (String, ExitCode) {
    match error.downcast_ref::<Mistake>() {
        Some(mistake) => (mistake.to_string(), mistake.exit_code()),
        None => (format!("{error:#}"), ExitCode::from(1)),
    }
}

fn version() -> anyhow::Result<()> {
    writeln!(io::stdout(), "mvp {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}

/// Help and version go to standard output; help that nobody asked for goes to standard error.
fn print_page(page: &clap::Error) -> ExitCode {
    // Nobody may be reading any more, as in `mvp serve --help | head -1`.
    let _ = page.print();
    if page.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// Whoever read our standard output has seen enough; that is no failure of ours.
fn forgive_broken_pipe(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    outcome.or_else(|error| match error.downcast_ref::<io::Error>() {
        Some(reason) if reason.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// One line; where even that cannot be written, the exit code must do.
fn fail(sentence: impl fmt::Display, code: ExitCode) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {}", OneLine(&sentence.to_string()));
    code
}
