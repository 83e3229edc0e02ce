//! `mvp`, the Mixed Version Proxy for Kubernetes: the binary.
//!
//! Only this crate reads argv, the environment and files: [`cli`] (raw) → [`config`] (validated) →
//! [`mod@serve`] or [`demo`] (running). An error is one sentence on standard error before anything is
//! served: exit code 2 for usage, 1 for the rest.

mod admin;
mod balance;
mod build_info;
mod callers;
mod cli;
mod config;
mod connections;
mod core_dumps;
mod dashboard;
mod demo;
mod descriptors;
mod files;
mod follow;
mod forget;
#[cfg(fuzzing)]
pub mod fuzzing;
mod health;
mod heartbeat;
mod inside;
mod lifecycle;
mod logging;
mod manifests;
mod manual;
mod members;
mod mistake;
mod operator;
mod process_metrics;
mod readiness_metrics;
mod reload;
mod report;
mod serve;
mod shutdown;
mod signals;
mod steering;
mod supervise;
mod tls;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use crate::cli::{Flags, Invocation, Stop};
use crate::config::ServeConfig;
use crate::config::balance::BalanceConfig;
use crate::logging::{FlushGuard, LogFilter, LogFormat, LogQueue};
use crate::mistake::{Mistake, OneLine};

/// It has fewer page faults and less contention than the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os().collect()) {
        Ok(invocation) => invocation,
        Err(Stop::Page(page)) => return print_page(&page),
        Err(Stop::Mistake(mistake)) => return fail(&mistake, mistake.exit_code()),
    };
    // Fails only if one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match invocation {
        Invocation::Serve(args, origins, _) if args.pass_through => {
            return match BalanceConfig::check(&args, &origins) {
                Ok(config) => pass_through(&config),
                Err(mistake) => fail(&mistake, mistake.exit_code()),
            };
        }
        Invocation::Serve(args, origins, flags) => {
            match ServeConfig::check(*args, &origins, SystemTime::now()) {
                Ok(config) => return serve(config, flags),
                Err(mistake) => return fail(&mistake, mistake.exit_code()),
            }
        }
        Invocation::Demo(args) => success(demo::run(args)),
        Invocation::Forget(args) => success(forget::run(&args)),
        Invocation::Status(args) => operator::status::run(args),
        Invocation::Skew(args) => operator::skew::run(&args),
        Invocation::Callers(args) => operator::callers::run(args),
        Invocation::Adopt(args) => operator::adopt::run(&args),
        Invocation::Doctor(args, origins) => operator::doctor::run(*args, &origins),
        Invocation::Manifests(args) => success(manifests::run(&args)),
        Invocation::Version(args) => success(build_info::run(&args)),
        Invocation::Completions(args) => success(manual::completions(&args)),
        Invocation::Man(args) => success(manual::pages(&args)),
    };
    match forgive_broken_pipe(outcome) {
        Ok(code) => code,
        Err(error) => {
            let (sentence, code) = described(&error);
            fail(sentence, code)
        }
    }
}

/// Runs `mvp serve`.
fn serve(config: ServeConfig, flags: Flags) -> ExitCode {
    let core_dumps = core_dumps::forbid();
    // Before the first thread, that of the log: rights belong to threads.
    let steering = match steering::prepare(&config) {
        Ok(steering) => steering,
        Err(error) => return fail(format_args!("{error:#}"), ExitCode::from(1)),
    };
    let (format, filter) = (config.log_format, config.log_filter.clone());
    logged(format, &filter, |log| {
        if let Some(like) = config.origins.like() {
            like.log();
        }
        if let Err(error) = core_dumps {
            tracing::warn!(%error, "core dumps are not forbidden");
        }
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        serve::run(config, flags, steering, log)
    })
}

/// Runs `mvp serve --pass-through`.
fn pass_through(config: &BalanceConfig) -> ExitCode {
    logged(config.log_format, &config.log_filter, |log| balance::run(config, log))
}

/// Runs with logs. From here on nothing blocks on standard error: a fatal error goes through the log
/// queue, too.
fn logged(
    format: LogFormat,
    filter: &LogFilter,
    run: impl FnOnce(&LogQueue) -> anyhow::Result<()>,
) -> ExitCode {
    let log = match logging::init(format, filter) {
        Ok(log) => FlushGuard(log),
        Err(error) => return fail(format_args!("{error:#}"), ExitCode::from(1)),
    };
    let Err(error) = run(&log.0) else { return ExitCode::SUCCESS };
    let (sentence, code) = described(&error);
    log.0.push(format!("error: {}\n", OneLine(&sentence)).as_bytes());
    code
}

/// The sentence for the operator, and the exit code.
fn described(error: &anyhow::Error) -> (String, ExitCode) {
    match error.downcast_ref::<Mistake>() {
        Some(mistake) => (mistake.to_string(), mistake.exit_code()),
        None => (format!("{error:#}"), ExitCode::from(1)),
    }
}

/// Prints help or the version to standard output; help for a missing command to standard error.
fn print_page(page: &clap::Error) -> ExitCode {
    // The reader may have closed the pipe, as in `mvp serve --help | head -1`.
    let _ = page.print();
    if page.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn success(outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Ignores a broken pipe on standard output: the reader has read enough.
fn forgive_broken_pipe(outcome: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    outcome.or_else(|error| match error.downcast_ref::<io::Error>() {
        Some(reason) if reason.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(error),
    })
}

/// Prints an error as one line. If that fails, the exit code still tells.
fn fail(sentence: impl fmt::Display, code: ExitCode) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {}", OneLine(&sentence.to_string()));
    code
}
