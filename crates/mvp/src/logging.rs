//! Logs: one line an event on standard error, as text for people or as JSON for machines.
//!
//! [`init`] is called once, by `main`, before anything is served. Times are UTC. Colour is used
//! only where a person looks at a terminal and has not set `NO_COLOR`. A line that cannot be written
//! is lost: reporting that on the same closed standard error would be a panic.

use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts logging for the whole process.
pub(crate) fn init(format: LogFormat, filter: &LogFilter) -> anyhow::Result<()> {
    let layer = match format {
        LogFormat::Text => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            fmt::layer()
                .compact()
                .with_ansi(io::stderr().is_terminal() && !no_color)
                .log_internal_errors(false)
                .with_writer(io::stderr)
                .boxed()
        }
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .log_internal_errors(false)
            .with_writer(io::stderr)
            .boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter.0.clone())).try_init()?;
    Ok(())
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
