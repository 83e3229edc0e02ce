//! Logs: one line an event on standard error, as text for people or as JSON for machines.
//!
//! [`init`] is called once, by `main`, before anything is served. Times are UTC. Colour is used
//! only where a person looks at a terminal and has not set `NO_COLOR`. Lines go through a bounded
//! queue to a thread that writes them: see [`queue`].

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

/// Starts logging for the whole process, panics too.
pub(crate) fn init(format: LogFormat, filter: &LogFilter) -> anyhow::Result<LogQueue> {
    // The writer thread must not wait for its own queue.
    let direct = Dispatch::new(subscriber(format, filter, io::stderr));
    let report = move |count: u64| {
        tracing::dispatcher::with_default(&direct, || tracing::warn!(count, "log lines dropped"));
    };
    let queue = LogQueue::start(io::stderr(), report).context("cannot start the log thread")?;
    tracing::subscriber::set_global_default(subscriber(format, filter, queue.clone()))?;
    // The hook of the standard library writes to standard error itself, and so may block.
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

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One compact line.
    Text,
    /// One JSON object.
    Json,
}

/// Which events are logged: a level, and other levels for some targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = String;

    /// `LEVEL`, or `LEVEL,TARGET=LEVEL,…`.
    ///
    /// The parser of `Targets` itself takes a misspelt level for the name of a target.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for directive in text.split(',').map(str::trim) {
            targets = match directive.split_once('=') {
                Some((target, name)) if !target.trim().is_empty() => {
                    targets.with_target(target.trim(), level(name)?)
                }
                Some(_) => return Err(format!("{directive:?} names no target; {FIX}")),
                None => targets.with_default(level(directive)?),
            };
        }
        Ok(Self(targets))
    }
}

const FIX: &str = "use off, error, warn, info, debug or trace, and TARGET=LEVEL for some targets";

fn level(name: &str) -> Result<LevelFilter, String> {
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
        .ok_or_else(|| format!("{name:?} is not a log level; {FIX}"))
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
            let error = text.parse::<LogFilter>().unwrap_err();
            assert!(error.ends_with(FIX), "{text:?}: {error}");
        }
    }
}
