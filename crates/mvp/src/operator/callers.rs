//! `mvp callers`. Entry: [`run`].

use std::process::ExitCode;

use crate::cli::CallersArgs;

/// Runs the command.
pub(crate) fn run(_args: CallersArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("mvp callers does not exist yet")
}
