//! What is written into every file of a release: version, commit and time. Entry: [`Facts`].

use std::process::Command;

use anyhow::{Context, bail};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::binary::Program;
use crate::cargo;

/// Version, commit and time of a release.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Such as `0.1.0`.
    pub version: String,
    /// The commit's hash; empty if it is unknown.
    pub commit: String,
    /// Seconds since 1970, for all timestamps.
    pub time: u64,
}

impl Facts {
    /// The facts of a binary: its own version and commit, and the time of that commit.
    pub(crate) fn of_program(program: &Program) -> anyhow::Result<Self> {
        let (version, commit) = (program.version.clone(), program.commit.clone());
        let time = time_of(&commit)?;
        Ok(Self { version, commit, time })
    }

    /// The facts of the checked out commit.
    pub(crate) fn of_checkout() -> anyhow::Result<Self> {
        let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
        let time = time_of(&commit)?;
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), commit, time })
    }

    /// The time in the format of RFC 3339.
    pub(crate) fn timestamp(&self) -> anyhow::Result<String> {
        let time = OffsetDateTime::from_unix_timestamp(self.time.try_into()?)?;
        Ok(time.format(&Rfc3339)?)
    }
}

/// `SOURCE_DATE_EPOCH`, or the time of a commit.
fn time_of(commit: &str) -> anyhow::Result<u64> {
    if let Ok(value) = std::env::var("SOURCE_DATE_EPOCH") {
        return value.parse().with_context(|| {
            format!("SOURCE_DATE_EPOCH is not a number of seconds since 1970: {value:?}")
        });
    }
    let said = if commit.is_empty() { None } else { git(&["log", "-1", "--format=%ct", commit]) };
    let Some(said) = said else {
        bail!(
            "the time of the commit {commit:?} is unknown to git; set SOURCE_DATE_EPOCH to a number of seconds since 1970"
        );
    };
    said.parse().with_context(|| format!("git printed no time for the commit {commit}: {said:?}"))
}

/// The first line that git prints; none if git fails or is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).current_dir(cargo::workspace().ok()?).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().next().map(str::to_owned)
}
