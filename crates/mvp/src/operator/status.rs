//! `mvp status`. Entry: [`run`].

use std::process::ExitCode;

use crate::cli::StatusArgs;

/// Runs the command.
pub(crate) fn run(_args: StatusArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("mvp status does not exist yet")
}
