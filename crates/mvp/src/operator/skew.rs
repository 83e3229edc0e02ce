//! `mvp skew`. Entry: [`run`].

use std::process::ExitCode;

use crate::cli::SkewArgs;

/// Runs the command.
pub(crate) fn run(_args: SkewArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("mvp skew does not exist yet")
}
