//! Logs: one line per event on standard error, as text or as JSON. Entry: [`init`].
//!
//! Times are UTC. Colour is used on a terminal only, and not if `NO_COLOR` is set. Lines go through a
//! bounded queue to a thread that writes them: see [`queue`].

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};
use std::str::FromStr;
use std::thread;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt};

pub(crate) use queue::{FlushGuard, LogQueue};

use crate::mistake::Problem;

/// Starts logging for the whole process, panics included. `main` calls it once.
pub(crate) fn init(format: LogFormat, filter: &LogFilter) -> anyhow::Result<LogQueue> {
    // The writer thread must not wait for its own queue.
    let direct = Dispatch::new(subscriber(format, filter, io::stderr));
    let report = move |count: u64| {
        tracing::dispatcher::with_default(&direct, || tracing::warn!(count, "log lines dropped"));
    };
    let queue = LogQueue::start(io::stderr(), report).context("cannot start the log thread")?;
    tracing::subscriber::set_global_default(subscriber(format, filter, queue.clone()))?;
    // The default hook writes to standard error directly, which may block.
    panic::set_hook(Box::new(log_panic));
    Ok(queue)
}

fn subscriber<W>(format: LogFormat, filter: &LogFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = match format {
        LogFormat::Text => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            fmt::layer()
                .compact()
                .with_ansi(io::stderr().is_terminal() && !no_color)
                .log_internal_errors(false)
                .with_writer(writer)
                .boxed()
        }
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .log_internal_errors(false)
            .with_writer(writer)
            .boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter.0.clone()))
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let location = info.location().map(ToString::to_string);
    let thread = thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured)
        .then(|| backtrace.to_string().replace('\n', " "));
    tracing::error!(
        thread = thread.name(),
        location,
        reason = message.replace('\n', " "),
        backtrace,
        "panic"
    );
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One compact line.
    Text,
    /// One JSON object.
    Json,
}

/// The log level, and levels for single targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = Problem;

    /// `LEVEL`, or `LEVEL,TARGET=LEVEL,…`.
    ///
    /// The parser of `Targets` would treat a misspelt level as the name of a target.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for directive in text.split(',').map(str::trim) {
            targets = match directive.split_once('=') {
                Some((target, name)) if !target.trim().is_empty() => {
                    targets.with_target(target.trim(), level(name)?)
                }
                Some(_) => return Err(format!("{directive:?} names no target; {FIX}").into()),
                None => targets.with_default(level(directive)?),
            };
        }
        Ok(Self(targets))
    }
}

const FIX: &str = "use off, error, warn, info, debug or trace, or TARGET=LEVEL for one target";

fn level(name: &str) -> Result<LevelFilter, Problem> {
    const LEVELS: [(&str, LevelFilter); 6] = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    LEVELS
        .into_iter()
        .find(|(known, _)| name.trim().eq_ignore_ascii_case(known))
        .map(|(_, level)| level)
        .ok_or_else(|| format!("{name:?} is not a log level; {FIX}").into())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_targets() {
        let filter: LogFilter = "warn, mvp_proxy=debug".parse().unwrap();
        assert!(filter.0.would_enable("mvp_proxy::layer", &Level::DEBUG));
        assert!(!filter.0.would_enable("hyper", &Level::INFO));
        let only_target: LogFilter = "mvp_proxy=trace".parse().unwrap();
        assert!(only_target.0.would_enable("mvp", &Level::INFO));
        assert!(!only_target.0.would_enable("mvp", &Level::DEBUG));
    }

    #[test]
    fn a_misspelt_level_is_not_a_target() {
        for text in ["inof", "", "info,=debug", "info,mvp=loud", "info,"] {
            let error = text.parse::<LogFilter>().unwrap_err().to_string();
            assert!(error.ends_with(FIX), "{text:?}: {error}");
        }
    }
}
